/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and stops engines for tests, and checks that nothing of them is left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "procs/clients/common/session.h"
#include "tests/harness/internal.h"

#define ARGS_MAX      64
#define READY_MS      60000
#define STOP_MS       20000
#define LOG_SHOWN     40
#define LOG_SHOWN_MAX 16384

static unsigned engines_made;

/* ---- start ---- */

/* Small models spend a fourth of the time in handing work to other threads: at most changes, the
 * engines of a program have one compute thread unless it says how many (sample.tbl.h). */
static bool one_thread(void)
{
    unsigned number = 0;
    for (const char *at = program_invocation_short_name; *at; at++)
        number += (unsigned char)*at;
    return (number + test_turn()) % 11 >= test_amount(AMOUNT_changes_with_threads);
}

void engine_spawn(struct engine *e, const char *const options[])
{
    char program[PATH_MAX + 32], procs_file[PATH_MAX + 32], libraries[PATH_MAX + 32];
    engine_table_close(e); /* of an engine before this one */
    e->supervisor = 0;
    if (!e->run[0]) /* a second start keeps the name */
        snprintf(e->run, sizeof e->run, "t%dx%u", (int)getpid(), ++engines_made);
    snprintf(e->dir, sizeof e->dir, "%s/%s", test_dir(), e->run);
    snprintf(e->log, sizeof e->log, "%s/%s.log", test_dir(), e->run);
    const char *args[ARGS_MAX] = {0};
    size_t n = 0;
    if (e->cgroup[0]) {
        /* A shell enters the group, then execs the engine: every page is charged to the group. */
        snprintf(procs_file, sizeof procs_file, "%s/cgroup.procs", e->cgroup);
        args[n++] = "/bin/sh";
        args[n++] = "-c";
        args[n++] = "echo $$ >\"$0\" && exec \"$@\"";
        args[n++] = procs_file;
    }
    if (e->libexec[0]) {
        snprintf(libraries, sizeof libraries, "LD_LIBRARY_PATH=%s/lib", e->libexec);
        args[n++] = "/usr/bin/env";
        args[n++] = libraries;
    }
    for (size_t i = 0; e->wrapper && e->wrapper[i]; i++)
        args[n++] = e->wrapper[i];
    snprintf(program, sizeof program, "%s/sluice-run", e->libexec[0] ? e->libexec : test_libexec());
    if (access(program, X_OK) != 0)
        test_skip("%s is not built", program);
    args[n++] = program;
    args[n++] = "--name";
    args[n++] = e->run;
    bool model = false, warm = false, threads = false;
    for (; options && *options && n + 5 < ARGS_MAX; options++) {
        args[n++] = *options;
        model |= strcmp(*options, "-m") == 0;
        warm |= strncmp(*options, "--warm-start", 12) == 0;
        threads |= strncmp(*options, "--threads", 9) == 0 || strncmp(*options, "--gpu", 5) == 0;
    }
    if (!threads && one_thread())
        args[n++] = "--threads=1";
    if (!warm) /* an earlier engine of the case must not matter */
        args[n++] = "--warm-start=off";
    if (!model) {
        args[n++] = "-m";
        args[n++] = test_model();
    }
    int log = e->stderr_fd > 0 ? dup(e->stderr_fd)
                               : open(e->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    CHECK(log >= 0, "cannot make %s", e->log);
    e->seen_count = 0;
    e->pid = spawn_program(args, -1, log, log);
    close(log);
}

static bool ended(struct engine *e, int *status)
{
    if (e->pid == 0)
        return true;
    if (waitpid(e->pid, status, WNOHANG) != e->pid)
        return false;
    e->pid = 0;
    return true;
}

static bool is_ready(struct engine *e)
{
    struct error error;
    json_t *reply = NULL;
    if (!e->control)
        e->control = control_client_open(e->run, &error);
    if (!e->control)
        return false;
    if (control_call(e->control, "status", NULL, &reply, &error) != 0)
        return false;
    bool ready = strcmp(lookup_text(reply, "state"), "ready") == 0;
    e->supervisor = (pid_t)lookup_u64(reply, "pid");
    json_decref(reply);
    return ready;
}

static void close_clients(struct engine *e)
{
    rpc_client_close(e->control);
    e->control = NULL;
    engine_table_close(e);
    if (e->session) {
        rpc_client_close(e->session->engine);
        free(e->session);
        e->session = NULL;
    }
}

bool engine_wait_started(struct engine *e, unsigned ms, int *status)
{
    uint64_t deadline = deadline_in(ms);
    while (!is_ready(e)) {
        if (ended(e, status)) {
            close_clients(e);
            return false;
        }
        CHECK(deadline_tick(deadline), "the engine is not ready after %u ms", ms);
    }
    return true;
}

bool engine_wait_end(struct engine *e, unsigned ms, int *status)
{
    process_wait_child(e->pid, ms);
    if (!ended(e, status))
        return false;
    close_clients(e);
    return true;
}

void engine_wait_ready(struct engine *e, unsigned ms)
{
    int status = 0;
    CHECK(engine_wait_started(e, ms, &status), "the engine ended with status %d while it started",
          WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    struct error error;
    e->session = calloc(1, sizeof *e->session);
    CHECK(e->session, "no memory");
    snprintf(e->session->run, sizeof e->session->run, "%s", e->run);
    e->session->log_fd = -1;
    e->session->engine = engine_client_open(e->run, &error);
    CHECK(e->session->engine, "%s", error.text);
    json_decref(engine_stats(e)); /* records the pid of every process */
}

void engine_start(struct engine *e, const char *const options[])
{
    engine_spawn(e, options);
    engine_wait_ready(e, READY_MS);
}

/* ---- end ---- */

/* The first file of this engine that is left in /dev/shm. */
static bool shm_left(const struct engine *e, char *name, size_t cap)
{
    DIR *dir = opendir("/dev/shm");
    bool found = false;
    char needle[RUN_NAME_MAX + 4];
    snprintf(needle, sizeof needle, ".%s-", e->run);
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        found = strncmp(entry->d_name, "sluice", 6) == 0 && strstr(entry->d_name, needle);
        if (found)
            snprintf(name, cap, "%s", entry->d_name);
    }
    if (dir)
        closedir(dir);
    return found;
}

void engine_check_gone(struct engine *e, unsigned ms)
{
    char name[256];
    uint64_t deadline = deadline_in(ms);
    for (size_t i = 0; i < e->seen_count; i++)
        while (process_id_alive(e->seen[i]))
            CHECK(deadline_tick(deadline), "process %d of the engine still runs after %u ms",
                  (int)e->seen[i].pid, ms);
    CHECK(!shm_left(e, name, sizeof name), "/dev/shm/%s was left behind", name);
}

void engine_stop_with(struct engine *e, int expected)
{
    int status = 0;
    json_decref(engine_stats(e));
    json_decref(engine_control(e, "stop", NULL));
    CHECK(engine_wait_end(e, STOP_MS, &status), "the engine did not stop within %d ms", STOP_MS);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == expected,
          "the engine stopped with status %#x", (unsigned)status);
    engine_check_gone(e, 1000);
}

void engine_stop(struct engine *e)
{
    engine_stop_with(e, 0);
}

void engine_destroy(struct engine *e)
{
    close_clients(e);
    if (e->pid > 0) {
        kill(-e->pid, SIGKILL);
        waitpid(e->pid, NULL, 0);
    }
    e->pid = 0;
    for (size_t i = 0; i < e->seen_count; i++)
        if (process_id_alive(e->seen[i])) {
            uint64_t deadline = deadline_in(2000);
            while (process_id_alive(e->seen[i]) && deadline_tick(deadline))
                continue;
            if (process_id_alive(e->seen[i]))
                kill(e->seen[i].pid, SIGKILL);
        }
    e->seen_count = 0;
}

char *engine_log(const struct engine *e)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = fopen(e->log, "re"), *copy = open_memstream(&text, &n);
    CHECK(f && copy, "cannot read %s: %s", e->log, strerror(errno));
    for (int c; (c = getc_unlocked(f)) != EOF;)
        putc_unlocked(c, copy);
    fclose(f);
    CHECK(fclose(copy) == 0, "no memory");
    return text;
}

void engine_wait_log(const struct engine *e, const char *text, unsigned ms)
{
    uint64_t deadline = deadline_in(ms);
    for (;;) {
        char *log = engine_log(e);
        bool found = strstr(log, text) != NULL;
        free(log);
        if (found)
            return;
        CHECK(deadline_tick(deadline), "the log lacks '%s'", text);
    }
}

void engine_show_log(const struct engine *e)
{
    static char text[LOG_SHOWN_MAX];
    FILE *f = fopen(e->log, "re");
    if (!f)
        return;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    fseek(f, size > LOG_SHOWN_MAX ? size - LOG_SHOWN_MAX : 0, SEEK_SET);
    size_t n = fread(text, 1, sizeof text - 1, f), lines = 0;
    fclose(f);
    text[n] = 0;
    while (n > 0 && lines < LOG_SHOWN)
        lines += text[--n] == '\n';
    printf("# last lines of engine %s:\n", e->run);
    char *rest = NULL;
    for (char *line = strtok_r(text + n, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        printf("#   %s\n", line);
}

/* ---- queries ---- */

void engine_saw(struct engine *e, pid_t pid)
{
    size_t at = 0;
    while (at < e->seen_count && e->seen[at].pid != pid)
        at++;
    if (pid > 0 && at == e->seen_count && at < ENGINE_PIDS_MAX)
        e->seen[e->seen_count++] = process_id_of(pid);
}

static void remember(struct engine *e, const json_t *doc)
{
    for (size_t i = 0; i < lookup_processes(doc); i++)
        engine_saw(e, (pid_t)lookup_u64(lookup_row(doc, i), "pid"));
}

void engine_look(struct engine *e)
{
    struct error error;
    json_t *doc = NULL;
    if (e->control && control_call(e->control, "stats", NULL, &doc, &error) == 0)
        remember(e, doc);
    json_decref(doc);
}

json_t *engine_stats(struct engine *e)
{
    struct error error;
    json_t *doc = NULL;
    CHECK(e->control && control_call(e->control, "stats", NULL, &doc, &error) == 0, "stats: %s",
          e->control ? error.text : "no control client");
    remember(e, doc);
    return doc;
}

json_t *engine_control(struct engine *e, const char *op, json_t *fields)
{
    struct error error;
    json_t *reply = NULL;
    CHECK(control_call(e->control, op, fields, &reply, &error) == 0, "control %s: %s", op,
          error.text);
    return reply;
}
