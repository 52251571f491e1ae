/* SPDX-License-Identifier: Apache-2.0 */
/* Runs programs on a pseudo-terminal; the test has the other end. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/internal.h"

#define ARGS_MAX   64
#define TEXT_BYTES (4u << 20)
#define SHOWN      600

struct terminal {
    pid_t pid;
    int fd;
    size_t bytes, mark; /* received; end of the text waited for last */
    char text[TEXT_BYTES + 1];
};

void terminal_resize(struct terminal *t, unsigned rows, unsigned columns)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    CHECK(ioctl(t->fd, TIOCSWINSZ, &size) == 0, "cannot set the terminal's size");
}

/* A new session whose controlling terminal is the first one it opens. */
static pid_t spawn_on(const char *terminal, const char *const argv[], int out)
{
    struct spawning s;
    spawning_start(&s, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_addopen(&s.actions, STDIN_FILENO, terminal, O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&s.actions, out >= 0 ? out : STDIN_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&s.actions, STDIN_FILENO, STDERR_FILENO);
    return spawning_end(&s, argv);
}

struct terminal *terminal_open(unsigned rows, unsigned columns, int out, const char *const argv[])
{
    char program[PATH_MAX], name[64];
    const char *args[ARGS_MAX] = {0};
    struct terminal *t = calloc(1, sizeof *t);
    CHECK(t, "no memory");
    for (size_t n = 0; argv[n] && n + 1 < ARGS_MAX; n++)
        args[n] = argv[n];
    snprintf(program, sizeof program, "%s/sluice-%s", test_libexec(), args[0]);
    args[0] = program;
    setenv("TERM", "vt100", 1); /* in every Debian; few escape codes */
    t->fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    cleanup_terminal(t);
    if (t->fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENOSPC || errno == EACCES))
        test_skip("no pseudo-terminal: %s", strerror(errno)); /* /dev/pts is not mounted, or full */
    CHECK(t->fd >= 0 && grantpt(t->fd) == 0 && unlockpt(t->fd) == 0 &&
              ptsname_r(t->fd, name, sizeof name) == 0,
          "no pseudo-terminal: %s", strerror(errno));
    terminal_resize(t, rows, columns);
    t->pid = spawn_on(name, args, out);
    return t;
}

/* Reads available output; drops the oldest half when the buffer is full. */
static void terminal_read(struct terminal *t)
{
    ssize_t n;
    for (;;) {
        if (t->bytes == TEXT_BYTES) {
            size_t half = TEXT_BYTES / 2;
            memmove(t->text, t->text + half, TEXT_BYTES - half);
            t->bytes -= half;
            t->mark = t->mark > half ? t->mark - half : 0;
        }
        n = read(t->fd, t->text + t->bytes, TEXT_BYTES - t->bytes);
        if (n <= 0)
            break;
        for (ssize_t i = 0; i < n; i++) /* NUL bytes would end the string */
            if (t->text[t->bytes + (size_t)i] == 0)
                t->text[t->bytes + (size_t)i] = ' ';
        t->bytes += (size_t)n;
    }
    t->text[t->bytes] = 0;
}

/* The end of the output, for one line. */
static const char *shown(const struct terminal *t)
{
    static char text[SHOWN + 1];
    size_t n = t->bytes < SHOWN ? t->bytes : SHOWN;
    memcpy(text, t->text + t->bytes - n, n);
    text[n] = 0;
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = '~';
    return text;
}

/* The end of `text` in `in`, or NULL. */
static const char *end_of_text(const char *in, const char *text)
{
    const char *found = strstr(in, text);
    return found ? found + strlen(text) : NULL;
}

/* The end of `words` at the start of `in`: a space there stands for any space, line breaks
 * included. */
static const char *end_of_words_at(const char *in, const char *words)
{
    for (; *words; words++) {
        if (*words == ' ' ? !isspace((unsigned char)*in) : *in != *words)
            return NULL;
        in++;
        while (*words == ' ' && isspace((unsigned char)*in))
            in++;
    }
    return in;
}

static const char *end_of_words(const char *in, const char *words)
{
    const char *end = NULL;
    while (*in && !(end = end_of_words_at(in, words)))
        in++;
    return end;
}

static void wait_until(struct terminal *t, const char *(*end_of)(const char *, const char *),
                       const char *text, unsigned ms)
{
    uint64_t deadline = deadline_in(ms);
    for (;;) {
        terminal_read(t);
        const char *end = end_of(t->text + t->mark, text);
        if (end) {
            t->mark = (size_t)(end - t->text);
            return;
        }
        CHECK(deadline_tick(deadline), "the terminal does not show '%s': ...%s", text, shown(t));
    }
}

void terminal_wait(struct terminal *t, const char *text, unsigned ms)
{
    wait_until(t, end_of_text, text, ms);
}

void terminal_wait_words(struct terminal *t, const char *words, unsigned ms)
{
    wait_until(t, end_of_words, words, ms);
}

bool terminal_showed(const struct terminal *t, const char *text)
{
    return memmem(t->text, t->mark, text, strlen(text)) != NULL;
}

void terminal_type(struct terminal *t, const char *keys)
{
    uint64_t deadline = deadline_in(10000);
    for (size_t bytes = strlen(keys); bytes > 0;) {
        ssize_t n = write(t->fd, keys, bytes);
        if (n > 0) {
            keys += n;
            bytes -= (size_t)n;
            continue;
        }
        CHECK(deadline_tick(deadline), "the terminal accepts no input");
    }
}

int terminal_end(struct terminal *t, unsigned ms)
{
    uint64_t deadline = deadline_in(ms);
    int status;
    while (waitpid(t->pid, &status, WNOHANG) == 0) {
        terminal_read(t); /* otherwise a full terminal could block its exit */
        CHECK(deadline_tick(deadline), "the program does not exit: ...%s", shown(t));
    }
    t->pid = 0;
    cleanup_terminal_gone(t);
    terminal_destroy(t);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void terminal_destroy(struct terminal *t)
{
    if (t->pid > 0) {
        kill(t->pid, SIGKILL);
        waitpid(t->pid, NULL, 0);
    }
    if (t->fd >= 0)
        close(t->fd);
    free(t);
}
