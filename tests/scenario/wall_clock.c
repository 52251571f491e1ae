/* SPDX-License-Identifier: Apache-2.0 */
/* The wall clock is set, forwards and back, while a text is generated and processes are restarted:
 * no process waits longer or is killed for it, and the text is the same. All processes and clients
 * run with a clock of the test's (tests/inject/clock_shim.c). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/completions.h"

#define HOUR 3600ll
#define YEAR (365 * 24 * HOUR)

static _Atomic int64_t *the_clock; /* nanoseconds that are added */

/* From now on programs are started with this clock. */
static void clock_make(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/clock", test_dir());
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && ftruncate(fd, sizeof *the_clock) == 0, "%s: %s", path, strerror(errno));
    the_clock = mmap(NULL, sizeof *the_clock, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(the_clock != MAP_FAILED, "mmap: %s", strerror(errno));
    close(fd);
    setenv("LD_PRELOAD", SLUICE_CLOCK_SHIM, 1);
    setenv("SLUICE_TEST_CLOCK", path, 1);
}

static void clock_forget(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("SLUICE_TEST_CLOCK");
}

/* A new client under that clock: its text starts like the baseline's. */
static void native_client(const struct engine *e, const char *what)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "--name", e->run, "-p", test_prompt(0), "-n",
                                      "32", "--temp", "0", "--ignore-eos", "--quiet", NULL});
    size_t n = strcspn(c.out, "\n");
    CHECK(c.status == 0 && n > 0 && strncmp(c.out, baseline(0)->text, n) == 0,
          "%s: status %d: %.200s%.200s", what, c.status, c.out, c.err);
    command_free(&c);
}

/* In the middle of a stream; then compute dies, so that gateway and cache have to connect again. */
static void set_and_kill(struct engine *e, unsigned port, int64_t seconds, const char *what)
{
    struct http h;
    pid_t compute = engine_pid(e, "compute", 0, 0);
    completion_start(&h, port, test_prompt(0), baseline_tokens());
    CHECK(http_wait(&h, "data: ", END_MS), "%s: no token", what);
    atomic_store(the_clock, seconds * (int64_t)NS_PER_S);
    CHECK(kill(compute, SIGKILL) == 0, "%s: compute exited on its own", what);
    completion_check(&h, baseline(0)->text, baseline_tokens(), what);
    engine_pid(e, "compute", 0, compute);
    native_client(e, what);
}

static void set_forwards_and_back(void)
{
    if (access(SLUICE_CLOCK_SHIM, R_OK) != 0)
        test_skip("%s is not built", SLUICE_CLOCK_SHIM);
    baseline(0);
    clock_make();
    struct engine *e = engine_new();
    engine_spawn(e, (const char *const[]){"--resident-experts=25", "--http=0", "--sandbox=off",
                                          /* keeps LD_PRELOAD */ NULL});
    engine_wait_ready(e, END_MS);
    unsigned port = http_port(e);
    set_and_kill(e, port, 10 * YEAR, "ten years forwards");
    set_and_kill(e, port, -HOUR, "back to an hour ago");
    clock_forget();
    CHECK(engine_counter(e, "supervisor", "kills") == 0,
          "a heartbeat was judged by the wall clock");
    char *log = engine_log(e);
    CHECK(strstr(log, "\n203") || strstr(log, "\n204"), "the clock was not set: %.300s", log);
    free(log);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(set_forwards_and_back)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
