/* SPDX-License-Identifier: Apache-2.0 */
/* `ctl prefixes clear` removes all that is kept, in memory and on storage, also when compute or the
 * whole engine is killed in the middle of it. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/prefix/prefix.h"
#include "tests/scenario/continued.h"
#include "tests/scenario/prefix_files.h"

static void cleared(void)
{
    struct command c;
    stored_prepare(stored_demo);
    struct engine *e = stored_start(stored_demo, NULL);
    stored_check(e, false, "before it is cleared");
    stored_wait(e, "prefixes_stored", 1);
    command_run(&c, NULL, STORED_WAIT_MS,
                (const char *const[]){"ctl", "--name", e->run, "prefixes", NULL});
    CHECK(c.status == 0 && strstr(c.out, "memory") && strstr(c.out, "storage"), "ctl: %s%s", c.out,
          c.err);
    command_free(&c);
    command_run(&c, NULL, STORED_WAIT_MS,
                (const char *const[]){"ctl", "--name", e->run, "prefixes", "clear", NULL});
    CHECK(c.status == 0 && strstr(c.out, "no prefix is kept"), "ctl: %s%s", c.out, c.err);
    command_free(&c);
    CHECK(stored_files(PREFIX_NAME_SUFFIX) == 0, "files are left");
    CHECK(stored_check(e, false, "after it was cleared") == 0, "rows are left");
    engine_stop(e);
    stored_finish();
}

/* ---- a removal that is interrupted ---- */

static void wait_cleared(struct engine *e)
{
    struct error error;
    struct rpc_client *client = engine_client_open(e->run, &error);
    CHECK(client, "%s", error.text);
    uint64_t deadline = deadline_in(STORED_WAIT_MS);
    for (bool clearing = true; clearing;) {
        json_t *reply = NULL;
        CHECK(deadline_tick(deadline), "the removal does not end");
        CHECK(control_call(client, "prefixes", json_object(), &reply, &error) == 0, "%s",
              error.text);
        clearing = json_is_true(json_object_get(reply, "clearing"));
        CHECK(clearing || (json_array_size(json_object_get(reply, "memory")) == 0 &&
                           json_array_size(json_object_get(reply, "storage")) == 0),
              "something is kept after the removal");
        json_decref(reply);
    }
    rpc_client_close(client);
}

static pid_t spawn_clear(struct engine *e)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sluice-ctl", test_libexec());
    pid_t pid = fork();
    CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        execl(path, "sluice-ctl", "--name", e->run, "prefixes", "clear", NULL);
        _exit(127);
    }
    return pid;
}

/* Begins to remove all, until compute is at a step of it; returns its pid. Who asked for it is
 * killed, and does not ask again. */
static pid_t clear_until(struct engine *e, int step)
{
    pid_t pid = engine_pid(e, "compute", 0, 0);
    json_decref(engine_control(e, "inject",
                               json_pack("{s:s, s:i}", "point", "COMPUTE_CLEARS", "arg", step)));
    pid_t client = spawn_clear(e);
    uint64_t deadline = deadline_in(STORED_WAIT_MS);
    while (process_state(pid) != 'T')
        CHECK(deadline_tick(deadline), "compute did not reach step %d", step);
    CHECK(kill(client, SIGKILL) == 0 && waitpid(client, NULL, 0) == client, "ctl has ended");
    return pid;
}

#define CLEAR_STEPS 4

/* Kill -9 at each step of `prefixes clear`: the successor ends it. */
static void cleared_with_kills(void)
{
    stored_prepare(stored_qwen35moe);
    for (int step = 0; step < CLEAR_STEPS; step++) {
        struct engine *e = stored_start(stored_qwen35moe, NULL);
        stored_check(e, false, "before it is cleared");
        stored_wait(e, "prefixes_stored", 1);
        continued_kill(e, clear_until(e, step));
        wait_cleared(e);
        CHECK(stored_files(PREFIX_NAME_SUFFIX) == 0, "files are left after a kill at step %d",
              step);
        CHECK(stored_check(e, false, "after it was cleared") == 0, "rows are left, step %d", step);
        engine_stop(e);
        stored_remove_files();
    }
    stored_finish();
}

/* The engine ends with it: the next one on this directory finds nothing of before. */
static void cleared_when_all_are_killed(void)
{
    stored_prepare(stored_demo);
    for (int step = 2; step < CLEAR_STEPS; step++) {
        struct engine *e = stored_start(stored_demo, NULL);
        stored_check(e, false, "before it is cleared");
        stored_wait(e, "prefixes_stored", 1);
        clear_until(e, step);
        CHECK(step != 2 || stored_files(PREFIX_NAME_SUFFIX) == 1, "it was removed too early");
        engine_destroy(e);
        e = stored_start_reader(stored_demo);
        CHECK(stored_files(PREFIX_NAME_SUFFIX) == 0, "files are left after a kill at step %d",
              step);
        CHECK(stored_check(e, false, "of the next engine") == 0, "rows are left, step %d", step);
        engine_stop(e);
    }
    stored_finish();
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(cleared),
        ROW(cleared_with_kills),
        ROW(cleared_when_all_are_killed),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
