/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a small model and tunings of it. */
#include "tests/scenario/tuned.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

char tuned_model[PATH_MAX];
const char *tuned_store_dir, *tuned_loss = LOSS, *tuned_limit = "1GiB";

void make_model(void)
{
    struct command c;
    path_in_dir(tuned_model, "it's a model.gguf");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"synth", "-q", "-o", tuned_model, "tiny", "layers=3",
                                      "experts=8", "--type", "Q8_0", "--seed", "2", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
}

void tune_for(struct command *c, const char *loss)
{
    command_run(c, NULL, END_MS,
                (const char *const[]){TUNE_FOR(loss), "--yes", "--output", "json", NULL});
    CHECK(c->status == 0, "status %d: %.2000s", c->status, c->err);
}

void tune(struct command *c)
{
    tune_for(c, LOSS);
}

/* A directory that pack has made, and written nothing into, is no store. */
static bool has_files(const char *directory)
{
    glob_t found;
    char pattern[PATH_MAX];
    snprintf(pattern, sizeof pattern, "%s/*", directory);
    size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return n > 0;
}

size_t stores(void)
{
    glob_t found;
    char pattern[PATH_MAX];
    size_t n = 0;
    path_in_dir(pattern, "*.tuned-*");
    size_t all = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    for (size_t i = 0; i < all; i++)
        n += has_files(found.gl_pathv[i]);
    globfree(&found);
    return n;
}

size_t listed(bool unused)
{
    struct command c;
    size_t n = 0, i;
    const json_t *one;
    command_run(&c, NULL, END_MS, (const char *const[]){"models", "--output", "json", NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    json_t *all = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(json_is_array(all), "%.300s", c.out);
    json_array_foreach(all, i, one) n += json_is_true(json_object_get(one, "unused")) == unused;
    json_decref(all);
    command_free(&c);
    return n;
}

size_t tunings(void)
{
    return listed(false);
}

void generate(struct command *c, const char *more)
{
    command_run(c, NULL, END_MS,
                (const char *const[]){"generate", "-m", tuned_model, "--budget", BUDGET,
                                      "--max-loss", LOSS, "--ctx-size", "64", "-p", "It was", "-n",
                                      "8", "--temp", "0", more, NULL});
    CHECK(c->status == 0, "status %d: %.1000s", c->status, c->err);
}

void check_generate(const char *more, const char *wanted, const char *unwanted)
{
    struct command c;
    generate(&c, more);
    CHECK(!wanted || strstr(c.err, wanted), "'%s' is missing: %.1000s", wanted, c.err);
    CHECK(!unwanted || !strstr(c.err, unwanted), "'%s' in: %.1000s", unwanted, c.err);
    command_free(&c);
}

pid_t start_tune(const char *log)
{
    char program[PATH_MAX];
    pid_t pid;
    snprintf(program, sizeof program, "%s/sluice-tune", test_libexec());
    const char *const args[] = {TUNE_FOR(tuned_loss),
                                "--yes",
                                "--store-limit",
                                tuned_limit,
                                tuned_store_dir ? "--store-dir" : NULL,
                                tuned_store_dir,
                                NULL};
    char *argv[sizeof args / sizeof args[0]];
    memcpy(argv, args, sizeof args);
    argv[0] = program;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    CHECK(posix_spawn(&pid, program, &actions, NULL, argv, environ) == 0, "cannot start tune");
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static char file[65536]; /* text of read_file */

const char *read_file(const char *path)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, file, sizeof file - 1) : 0;
    if (fd >= 0)
        close(fd);
    file[n > 0 ? n : 0] = 0;
    return file;
}

bool contains(const char *path, const char *text)
{
    return strstr(read_file(path), text) != NULL;
}

int stop_at(const char *text, int signal_number, void (*act)(void))
{
    char log[PATH_MAX];
    int status;
    uint64_t deadline = deadline_in(END_MS);
    path_in_dir(log, "tune.log");
    unlink(log);
    pid_t pid = start_tune(log);
    while (!contains(log, text))
        if (!deadline_tick(deadline) || waitpid(pid, &status, WNOHANG) == pid)
            test_fail("'%s' did not appear: %.3000s", text, read_file(log));
    if (act)
        act();
    if (signal_number)
        kill(pid, signal_number);
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    return status;
}

void forget_all(const char *name)
{
    char path[PATH_MAX];
    path_in_dir(path, name);
    CHECK(mkdir(path, 0700) == 0 && setenv("XDG_CACHE_HOME", path, 1) == 0, "%s", path);
}

void remove_all(const char *freed)
{
    struct command c;
    command_run(&c, NULL, END_MS, (const char *const[]){"models", "rm", tuned_model, NULL});
    CHECK(c.status == 0 && (!freed || !strstr(c.out, freed)), "status %d: %.300s%.300s", c.status,
          c.out, c.err);
    command_free(&c);
    CHECK(tunings() == 0 && listed(true) == 0 && stores() == 0, "%zu stores are left", stores());
}
