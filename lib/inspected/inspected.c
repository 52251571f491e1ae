/* SPDX-License-Identifier: Apache-2.0 */
/* Runs sluice-inspect on a model file, and maps and checks the index that it wrote. */
#include "lib/inspected/inspected.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/model/index/model_index.h"
#include "lib/sandbox/sandbox.h"

#define INDEX_MAX     (2 * GIB)
#define SEGMENT_FD    3
#define MODEL_FD      4
#define FIRST_FREE    10
#define VARIABLES_MAX 16
#define MESSAGE_BYTES 4096
#define PREFIX        "error: "

extern char **environ;

static int program_path(char path[PATH_MAX], struct error *error)
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
    char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;
    if (!slash || slash - path + sizeof "/sluice-inspect" > PATH_MAX)
        return error_set_errno(error, ERR_FAILED, errno, "cannot locate sluice-inspect");
    strcpy(slash, "/sluice-inspect");
    return 0;
}

/* Under sanitizers all variables: their options are among them. */
static void environment_make(char *kept[VARIABLES_MAX + 1])
{
    size_t n = 0;
    for (char **v = environ; *v && n < VARIABLES_MAX; v++)
        if (sandbox_keeps_variable(*v) || strstr(*v, "SAN_OPTIONS="))
            kept[n++] = *v;
    kept[n] = NULL;
}

static int spawn(int fd, const char *path, int out, int messages, pid_t *pid, struct error *error)
{
    char program[PATH_MAX], *variables[VARIABLES_MAX + 1];
    char *argv[] = {program, "--segment-fd=3", "--model-fd=4", (char *)(uintptr_t)path, NULL};
    posix_spawn_file_actions_t actions;
    if (program_path(program, error) != 0)
        return -1;
    environment_make(variables);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, messages, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, messages, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, SEGMENT_FD);
    posix_spawn_file_actions_adddup2(&actions, fd, MODEL_FD);
    int rc = posix_spawn(pid, program, &actions, NULL, argv, variables);
    posix_spawn_file_actions_destroy(&actions);
    return rc == 0 ? 0 : error_set_errno(error, ERR_FAILED, rc, "cannot start %.200s", program);
}

/* The last line that inspect printed, without "error: ". */
static const char *last_line(char *text)
{
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = 0;
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    return strncmp(line, PREFIX, strlen(PREFIX)) == 0 ? line + strlen(PREFIX) : line;
}

static void read_messages(int fd, char text[MESSAGE_BYTES])
{
    size_t used = 0;
    for (ssize_t n = 1; n != 0;) {
        if (used == MESSAGE_BYTES - 1) /* the end is what matters */
            memmove(text, text + MESSAGE_BYTES / 2, used -= MESSAGE_BYTES / 2);
        n = read(fd, text + used, MESSAGE_BYTES - 1 - used);
        if (n < 0 && errno != EINTR)
            break;
        used += n > 0 ? (size_t)n : 0;
    }
    text[used] = 0;
}

static int wait_for(pid_t pid, const char *path, char *messages, struct error *error)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_set_errno(error, ERR_FAILED, errno, "cannot wait for sluice-inspect");
    if (WIFSIGNALED(status))
        return error_set(error, ERR_BAD_INPUT, "reading %.200s ended by signal %d (%s)", path,
                         WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) == 0)
        return 0;
    return error_set(error, WEXITSTATUS(status) == 2 ? ERR_BAD_INPUT : ERR_FAILED, "%s",
                     last_line(messages));
}

static int take_index(int fd, struct model_index **index, struct error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size <= 0 || (uint64_t)st.st_size > INDEX_MAX)
        return error_set(error, ERR_FAILED, "sluice-inspect wrote no index");
    size_t bytes = (size_t)st.st_size;
    char *blob = malloc(bytes);
    if (!blob)
        return error_set(error, ERR_NO_MEMORY, "out of memory (index of %zu bytes)", bytes);
    int status = 0;
    for (size_t at = 0; at < bytes && status == 0;) {
        ssize_t n = pread(fd, blob + at, bytes - at, (off_t)at);
        if (n <= 0)
            status = error_set_errno(error, ERR_IO, n < 0 ? errno : EIO, "cannot read the index");
        at += n > 0 ? (size_t)n : 0;
    }
    *index = (struct model_index *)(void *)blob;
    if (status == 0)
        status = model_index_check(*index, bytes, error);
    if (status == 0)
        return 0;
    free(blob);
    *index = NULL;
    return -1;
}

/* Copies of descriptors above those that the child gets. */
static int high(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE);
}

static int run(int fd, int out, const int ends[2], const char *path, struct error *error)
{
    char messages[MESSAGE_BYTES];
    pid_t pid;
    int model = high(fd), blob = high(out), messages_end = high(ends[1]);
    int status = model < 0 || blob < 0 || messages_end < 0
                     ? error_set_errno(error, ERR_FAILED, errno, "cannot copy a descriptor")
                     : spawn(model, path, blob, messages_end, &pid, error);
    const int copies[] = {model, blob, messages_end, ends[1]};
    for (size_t i = 0; i < ARRAY_LEN(copies); i++)
        if (copies[i] >= 0)
            close(copies[i]);
    if (status != 0)
        return -1;
    read_messages(ends[0], messages);
    return wait_for(pid, path, messages, error);
}

int inspected_index(int fd, const char *path, struct model_index **index, struct error *error)
{
    int ends[2];
    *index = NULL;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set_errno(error, ERR_FAILED, errno, "cannot create a pipe");
    int out = memfd_create("sluice-index", MFD_CLOEXEC);
    int status = out < 0 ? error_set_errno(error, ERR_FAILED, errno, "out of memory (model index)")
                         : run(fd, out, ends, path, error);
    if (out < 0)
        close(ends[1]);
    if (status == 0)
        status = take_index(out, index, error);
    close(ends[0]);
    if (out >= 0)
        close(out);
    return status;
}
