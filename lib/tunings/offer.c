/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the tuning that a start of an engine uses or offers. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/text/shell.h"
#include "lib/tunings/tunings.h"

#define STATUS_INTERRUPTED 130
#define COMMAND_BYTES      (SHELL_WORD_BYTES(PATH_MAX) + 200)

extern char **environ;

static void say(const struct tuning_start *s, const char *line)
{
    if (s->say)
        s->say(s->arg, line);
}

/* Its output on stdout goes to stderr: stdout is for the text of the model. Its exit status, -1: it
 * did not start. */
static int run_tune(const struct tuning_start *s)
{
    char program[PATH_MAX], budget[32], loss[32];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    if (n < 0)
        return -1;
    program[n] = 0;
    char *slash = strrchr(program, '/');
    size_t at = slash ? (size_t)(slash - program) + 1 : 0;
    snprintf(program + at, sizeof program - at, "sluice-tune");
    snprintf(budget, sizeof budget, "%llu", (unsigned long long)s->budget);
    snprintf(loss, sizeof loss, "%.10g", s->max_loss);
    char *argv[] = {program,
                    (char *)"-m",
                    (char *)(uintptr_t)s->model,
                    (char *)"--budget",
                    budget,
                    (char *)"--max-loss",
                    loss,
                    NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    pid_t pid;
    int why = posix_spawn(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    int status;
    if (why != 0)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : STATUS_INTERRUPTED;
}

/* "sluice tune ..." with the options of this start. */
static void command(const struct tuning_start *s, char *out, size_t size)
{
    char budget[64] = "", model[SHELL_WORD_BYTES(PATH_MAX)];
    shell_word(s->model, model, sizeof model);
    if (s->budget)
        snprintf(budget, sizeof budget, " --budget %llu", (unsigned long long)s->budget);
    /* a name that begins like an option is one only after a blank */
    snprintf(out, size, "sluice tune -m%s%s%s --max-loss %g --yes", model[0] == '-' ? "" : " ",
             model, budget, s->max_loss);
}

static void say_if_elsewhere(const struct tuning_start *s, const struct tuning *t)
{
    char cpu[TUNINGS_CPU_BYTES], again[COMMAND_BYTES], line[sizeof again + 300];
    tunings_cpu(cpu);
    if (!t->cpu[0] || !cpu[0] || strcmp(cpu, t->cpu) == 0)
        return;
    command(s, again, sizeof again);
    snprintf(line, sizeof line,
             "this tuning was measured on another CPU (%s); new, from the same profile: %s", t->cpu,
             again);
    say(s, line);
}

static void use(const struct tuning_start *s, const struct tuning *t)
{
    char line[PATH_MAX + 200 + TUNINGS_DOMAIN_BYTES];
    if (t->store[0])
        snprintf(line, sizeof line,
                 "tuning: preset %s with the store %s, measured loss at most %.2f %%%s%s%s",
                 t->preset, t->store, t->loss_high, t->domain[0] ? " on text such as '" : "",
                 t->domain, t->domain[0] ? "' only" : "");
    else
        snprintf(line, sizeof line,
                 "tuning: lossless, which was fastest within this loss and budget");
    say(s, line);
    say_if_elsewhere(s, t);
}

static void hint(const struct tuning_start *s)
{
    char tune[COMMAND_BYTES], line[sizeof tune + 200];
    command(s, tune, sizeof tune);
    snprintf(line, sizeof line,
             "--max-loss has no effect yet: no tuning of this model for this loss and budget; make "
             "it with: %s",
             tune);
    say(s, line);
}

int tuning_offer(const struct tuning_start *s, struct tuning *t, struct error *error)
{
    struct error why = {0};
    struct stat st;
    if (stat(s->model, &st) != 0 || !S_ISREG(st.st_mode))
        return 0; /* a store is what its user made of a model; a missing file is reported by the
                   * engine */
    int found = tunings_find(s->model, s->max_loss, s->budget, s->say, s->arg, t, &why);
    if (found == 0 && s->ask) {
        int status = run_tune(s);
        if (status == STATUS_INTERRUPTED)
            return error_set(error, ERR_CANCELLED,
                             "tuning was interrupted; it continues with the next start");
        found = status == 0
                    ? tunings_find(s->model, s->max_loss, s->budget, s->say, s->arg, t, &why)
                    : 0;
    }
    if (found > 0)
        use(s, t);
    else if (found < 0)
        say(s, why.text);
    else
        hint(s);
    return found > 0;
}
