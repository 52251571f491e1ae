/* SPDX-License-Identifier: Apache-2.0 */
/* A full disk under every writer: the engine continues with the right text, a command ends with an
 * error, and no file is left that is not whole. Files are on a small tmpfs in a mount namespace of
 * this program; outputs and logs go to /dev/full. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"

#define END_MS 120000

/* A tmpfs of 64 KiB, which goes with this process. */
static const char *small_disk(void)
{
    static char dir[PATH_MAX];
    static bool own_namespace;
    if (!own_namespace &&
        (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0))
        test_skip("a mount namespace needs root: %s", strerror(errno));
    own_namespace = true;
    snprintf(dir, sizeof dir, "%s/small", test_dir());
    CHECK(mkdir(dir, 0700) == 0, "mkdir: %s", strerror(errno));
    if (mount("small", dir, "tmpfs", 0, "size=64k") != 0)
        test_skip("cannot mount a tmpfs: %s", strerror(errno));
    return dir;
}

static void unmount(const char *dir)
{
    CHECK(umount2(dir, MNT_DETACH) == 0, "umount: %s", strerror(errno));
}

/* Leaves `bytes` of it free. */
static void fill(const char *dir, size_t bytes)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/ballast", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fallocate(fd, 0, 0, (off_t)(64 * KIB - bytes)) == 0, "fallocate: %s",
          strerror(errno));
    close(fd);
}

/* Regular files other than the ballast. */
static size_t files_in(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    CHECK(d, "opendir: %s", strerror(errno));
    for (struct dirent *entry; (entry = readdir(d));)
        n += entry->d_name[0] != '.' && strcmp(entry->d_name, "ballast") != 0;
    closedir(d);
    return n;
}

/* ---- the engine ---- */

static void log_of_an_engine(void)
{
    baseline(0);
    struct engine *e = engine_new();
    e->stderr_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    CHECK(e->stderr_fd >= 0, "/dev/full: %s", strerror(errno));
    engine_start(e, (const char *const[]){"--resident-experts=50", "--log-level=debug", NULL});
    baseline_compare(e, 0, "with a log that cannot be written");
    pid_t pid = engine_pid(e, "compute", 0, 0);
    kill(pid, SIGKILL); /* more lines */
    engine_pid(e, "compute", 0, pid);
    baseline_compare(e, 0, "after a restart");
    close(e->stderr_fd);
    engine_stop(e);
}

/* The recorder ends the recording; what it wrote is whole records. */
static void trace_of_an_engine(void)
{
    char trace[PATH_MAX + 16], path[PATH_MAX + 16];
    struct command c;
    baseline(0);
    const char *dir = small_disk();
    struct engine *e = engine_new();
    snprintf(trace, sizeof trace, "--trace=%s/trace", dir);
    snprintf(path, sizeof path, "%s/trace", dir);
    engine_start(e, (const char *const[]){"--resident-experts=50", trace, NULL});
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        baseline_compare(e, i, "with a trace on a full disk");
    pid_t pid = engine_pid(e, "recorder", 0, 0);
    kill(pid, SIGKILL); /* its successor finds the disk full */
    engine_pid(e, "recorder", 0, pid);
    baseline_compare(e, 0, "after a restart of the recorder");
    engine_stop(e);
    command_run(&c, NULL, END_MS, (const char *const[]){"sim", path, NULL});
    CHECK(c.status == 0, "sim: %s", c.err);
    command_free(&c);
    unmount(dir);
}

/* ---- commands ---- */

/* Runs a command of this build through a shell: "$0" is its program, "$1" and "$2" the others. */
static void check_fails(const char *script, const char *program, const char *one, const char *two)
{
    char path[PATH_MAX];
    struct command c;
    snprintf(path, sizeof path, "%s/sluice-%s", test_libexec(), program);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"/bin/sh", "-c", script, path, one, two, NULL});
    CHECK(c.status == 1 && (strstr(c.err, "annot write") || strstr(c.err, strerror(ENOSPC))),
          "%s, %s: status %d: %.300s", program, script, c.status, c.err);
    command_free(&c);
}

/* JSON and text on standard output. */
static void standard_output(void)
{
    struct engine *e = engine_new();
    engine_start(e, NULL);
    check_fails("\"$0\" --name \"$1\" --json >/dev/full", "stats", e->run, "");
    check_fails("\"$0\" --name \"$1\" >/dev/full", "stats", e->run, "");
    check_fails("\"$0\" --name \"$1\" status >/dev/full", "ctl", e->run, "");
    check_fails("\"$0\" --name \"$1\" --json status >/dev/full", "ctl", e->run, "");
    check_fails("\"$0\" >/dev/full", "ps", "", "");
    check_fails("\"$0\" --name \"$1\" -p x -n 4 --ignore-eos >/dev/full", "generate", e->run, "");
    check_fails("\"$0\" --name \"$1\" -p x -n 4 --output json >/dev/full", "generate", e->run, "");
    check_fails("\"$0\" \"$1\" >/dev/full", "inspect", test_model(), "");
    check_fails("\"$0\" -m \"$1\" --json >/dev/full", "doctor", test_model(), "");
    engine_stop(e);
}

/* Neither a part of a file nor a temporary one is left. */
static void plan_written(const char *dir)
{
    char out[PATH_MAX + 16];
    snprintf(out, sizeof out, "%s/a.plan", dir);
    check_fails("exec \"$0\" -m \"$1\" -o \"$2\" --preset edgemoe --shares int8=0.5,int4=0.5",
                "plan", test_model(), out);
    CHECK(files_in(dir) == 0, "the plan left %zu files", files_in(dir));
}

static void profile_and_plan(void)
{
    char out[PATH_MAX + 16];
    const char *dir = small_disk();
    fill(dir, 4 * KIB);
    snprintf(out, sizeof out, "%s/a.profile", dir);
    check_fails("printf 'It was a dark and stormy night. %.0s' $(seq 100) >\"${2%small/*}text\"; "
                "exec \"$0\" -m \"$1\" -o \"$2\" --text \"${2%small/*}text\"",
                "profile", test_model(), out);
    CHECK(files_in(dir) == 0, "the profile left %zu files", files_in(dir));
    fill(dir, 0); /* the plan would fit into a page */
    plan_written(dir);
    unmount(dir);
}

/* /save in repl. */
static void saved_conversation(void)
{
    char script[PATH_MAX + 64];
    struct command c;
    const char *dir = small_disk();
    fill(dir, 0);
    snprintf(script, sizeof script, "hello\n/save %s/talk\n/bye\n", dir);
    struct engine *e = engine_new();
    engine_start(e, NULL);
    command_run(&c, script, END_MS, (const char *const[]){"repl", "--name", e->run, NULL});
    CHECK(strstr(c.out, "annot write") || strstr(c.err, "annot write"), "%s%s", c.out, c.err);
    command_free(&c);
    CHECK(files_in(dir) == 0, "/save left %zu files", files_in(dir));
    engine_stop(e);
    unmount(dir);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(log_of_an_engine), ROW(trace_of_an_engine), ROW(standard_output),
        ROW(profile_and_plan), ROW(saved_conversation),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
