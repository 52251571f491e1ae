/* SPDX-License-Identifier: Apache-2.0 */
/* Building blocks of scenario tests: test cases, real engines in private run directories,
 * concurrent generations, running programs, memory cgroups.
 *
 * A test program prints one line per case, "ok NAME", "not ok NAME: reason" or "SKIP NAME: reason",
 * and exits with 1 if a case failed. A case ends at its first failure: test_fail does not return.
 * After each case the harness removes its engines and temporary files and checks that none are
 * left.
 *
 * Tests wait for a condition, with a deadline on the monotonic clock; they never sleep for a fixed
 * time. */
#ifndef SLUICE_TESTS_HARNESS_HARNESS_H
#define SLUICE_TESTS_HARNESS_HARNESS_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/endpoints.h"
#include "ipc/engine/engine_client.h"
#include "lib/json/lookup.h"
#include "tests/harness/sample.h"

/* ---- cases ---- */

struct test_case {
    const char *name;
    void (*run)(void);
};

/* A case named like its function. */
#define ROW(name)                                                                                  \
    {                                                                                              \
#name, name                                                                                \
    }

/* Runs the cases named in argv, or all. Returns the exit status of the program. Options before the
 * names:
 *   --type=MIX  test_model() is not the demo model, but one with random weights of this mix of
 *               tensor types (sluice synth)
 *   --short     the names are those of the short form; the long form runs all cases
 *   --without=CASE,...  all but these, which another test runs
 *   --list      prints the cases, and what the short form leaves out (sample.tbl.h), and runs
 *               nothing */
int test_main(int argc, char **argv, const struct test_case *cases, size_t count);

_Noreturn void test_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Put before the reason of later failures of this case. */
void test_context(const char *text);
_Noreturn void test_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Prints a measurement into the test's output. */
void test_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_fail(__VA_ARGS__);                                                                \
    } while (0)

/* Directory of the programs, the model, and a directory that is removed after the case. */
const char *test_libexec(void);
const char *test_model(void);
const char *test_dir(void);
/* True if test_model() is the demo model. */
bool test_demo(void);
/* Writes the path of `name` in test_dir() and returns it. */
const char *path_in_dir(char path[PATH_MAX], const char *name);

/* ---- waiting ---- */

uint64_t deadline_in(unsigned ms);
/* A short wait between two checks of a condition, which costs CPU, too: 5 ms, or an eighth of the
 * time since the first call with this deadline, at most 40 ms. False once the deadline has passed.
 */
bool deadline_tick(uint64_t deadline);
/* Waits until the deadline is reached: for tests that measure over a fixed time. */
void deadline_reach(uint64_t deadline);

/* ---- processes ---- */

bool process_alive(pid_t pid);
/* A process that is not confused with a later one of the same pid. */
struct process_id {
    pid_t pid;
    uint64_t started; /* in clock ticks since the machine's start */
};
struct process_id process_id_of(pid_t pid);
bool process_id_alive(struct process_id id);
/* 'R', 'S', 'T', 'Z' ...; 0: no such process. */
char process_state(pid_t pid);
void process_wait_state(pid_t pid, char state, unsigned ms);
void process_wait_gone(pid_t pid, unsigned ms);
/* Until a child has ended, at most ms: waitpid then returns it. 0: none, returns at once. */
void process_wait_child(pid_t pid, unsigned ms);
/* Private memory, resident or swapped out, from smaps_rollup. */
uint64_t process_private_bytes(pid_t pid);

struct command {
    int status; /* exit status, 128 + signal */
    char *out, *err;
    size_t out_bytes, err_bytes;
};

/* Runs a program to its end. argv[0]: a path, or a command such as "generate" (sluice-generate of
 * this build). input may be NULL. Kills it after ms and fails the case. */
void command_run(struct command *c, const char *input, unsigned ms, const char *const argv[]);
void command_free(struct command *c);
/* The same for one that must succeed. Its output as JSON, NULL: it is none; the caller releases
 * it. */
json_t *command_json(unsigned ms, const char *const argv[]);
/* Lines in a text. */
size_t command_lines(const char *text);

/* ---- terminals ---- */

/* A program of this build on a pseudo-terminal of that size. out: its stdout, -1: the terminal. */
struct terminal;
struct terminal *terminal_open(unsigned rows, unsigned columns, int out, const char *const argv[]);
void terminal_type(struct terminal *t, const char *keys);
/* Waits until the text appears after the text of the previous wait. */
void terminal_wait(struct terminal *t, const char *text, unsigned ms);
/* As terminal_wait; a space of `words` matches any run of spaces and line breaks. */
void terminal_wait_words(struct terminal *t, const char *words, unsigned ms);
/* Whether the text is in what was waited for so far. */
bool terminal_showed(const struct terminal *t, const char *text);
void terminal_resize(struct terminal *t, unsigned rows, unsigned columns);
/* Waits until the program exits; returns its status or 128 + signal. Frees t. */
int terminal_end(struct terminal *t, unsigned ms);

/* ---- engines ---- */

#define ENGINE_PIDS_MAX 256

struct engine_table; /* counters.c */

struct engine {
    char run[RUN_NAME_MAX + 1];
    char dir[ENDPOINT_BYTES]; /* its run directory */
    char log[PATH_MAX];
    char libexec[PATH_MAX];     /* "": that of this build */
    char cgroup[PATH_MAX];      /* memory cgroup to start in, or "" */
    const char *const *wrapper; /* NULL, or a command that executes the engine, such as setpriv */
    int stderr_fd;              /* instead of the log file; 0: the log file */
    pid_t pid;                  /* of what was started: the supervisor, or its wrapper; 0: none */
    pid_t supervisor;           /* once it is ready */
    struct engine_table *table; /* its process table, once it was read */
    struct rpc_client *control;
    struct session *session;
    struct process_id seen[ENGINE_PIDS_MAX]; /* every process seen so far */
    size_t seen_count;
};

/* A new engine, not started. The harness owns it and stops it if the case fails. */
struct engine *engine_new(void);

/* Starts an engine on the demo model with more options, NULL-terminated, and waits until it is
 * ready. */
void engine_start(struct engine *e, const char *const options[]);
/* Starts without waiting. */
void engine_spawn(struct engine *e, const char *const options[]);
void engine_wait_ready(struct engine *e, unsigned ms);
/* For engines that may fail: ready, or ended with that status of waitpid. */
bool engine_wait_started(struct engine *e, unsigned ms, int *status);
/* False if it does not end in time. */
bool engine_wait_end(struct engine *e, unsigned ms, int *status);
/* Records the pids of its processes, if it answers. */
void engine_look(struct engine *e);
/* Orderly stop; checks for exit status 0 and that nothing is left behind. */
void engine_stop(struct engine *e);
/* The same with another exit status. */
void engine_stop_with(struct engine *e, int expected);
/* kill -9 of all processes, after a failed case. */
void engine_destroy(struct engine *e);
/* Checks that all processes exit within ms and nothing is left in /dev/shm. */
void engine_check_gone(struct engine *e, unsigned ms);

json_t *engine_stats(struct engine *e); /* new reference */
/* The sum over the processes of a service, read from shared memory: for what is polled. Of a ready
 * engine, which must not have ended; so are the other numbers. */
uint64_t engine_counter(struct engine *e, const char *service, const char *counter);
/* pid of a process; waits until it is ready and its pid is not `not_pid`. */
pid_t engine_pid(struct engine *e, const char *service, unsigned number, pid_t not_pid);
/* A process that has ended counts, although its successor may not exist yet. */
uint64_t engine_restarts(struct engine *e, const char *service, unsigned number);
/* Of an idle engine, `stats` has the pids, restarts and counters of these processes. */
void engine_check_stats(struct engine *e);
void engine_wait_counter(struct engine *e, const char *service, const char *counter,
                         uint64_t at_least, unsigned ms);
/* A control call that must succeed; steals fields. New reference. */
json_t *engine_control(struct engine *e, const char *op, json_t *fields);
/* Its log so far; the caller frees. */
char *engine_log(const struct engine *e);
/* Until its log has that text. */
void engine_wait_log(const struct engine *e, const char *text, unsigned ms);
/* Prints the last lines of its log as notes. */
void engine_show_log(const struct engine *e);

/* ---- generations ---- */

struct text {
    uint32_t *ids;
    size_t count;
    char *text;
    char finish[16];
    json_t *stats;
    struct error error; /* code ERR_NONE: success */
};

/* Generates n greedy tokens, ignoring end-of-text. Fails the case unless all n arrive. */
void engine_generate(struct engine *e, const char *prompt, size_t n, struct text *out);

/* The same in a separate thread. */
struct generation;
struct generation *generation_start(struct engine *e, const char *prompt, size_t n);
/* Samples with this seed, at a temperature of 0.8; seed 0: greedy. */
struct generation *generation_start_seeded(struct engine *e, const char *prompt, size_t n,
                                           uint64_t seed);
/* With a prompt as text, which is copied; all else of the request stays until the end. */
struct generation *generation_start_submit(struct engine *e, const struct engine_submit *submit);
size_t generation_tokens(const struct generation *g); /* so far */
bool generation_done(const struct generation *g);
/* Waits for its end, at most ms, and frees g. */
void generation_finish(struct generation *g, unsigned ms, struct text *out);

void text_check_same(const struct text *expected, const struct text *got, const char *what);
void text_free(struct text *t);

/* Prompts of about 10, 60 and 300 tokens. */
const char *test_prompt(unsigned i);
#define TEST_PROMPTS 3

/* ---- the machine ---- */

#define LOAD_OTHERS_MAX 0.10 /* fraction of all CPUs; above it time limits are not judged */

struct load {
    uint64_t started_ns, own, machine;
};

/* Starts measuring; then the fraction of all CPUs that other processes have used since. */
void load_start(struct load *load, struct engine *e);
double load_of_others(const struct load *load, struct engine *e);

/* If a time limit was not kept: fails the case, or skips it if other processes used the CPUs. */
void load_judge(const struct load *load, struct engine *e, bool kept, const char *what);

/* ---- memory cgroups ---- */

/* Creates a memory cgroup (v1 or v2), its path in `path`; if that is not permitted, skips the case
 * (cgroup_make) or returns false. */
void cgroup_make(char path[PATH_MAX]);
bool cgroup_try(char path[PATH_MAX], struct error *error);
void cgroup_limit(const char *path, uint64_t bytes);
uint64_t cgroup_usage(const char *path);
/* Number of processes killed there for lack of memory. */
uint64_t cgroup_failures(const char *path);
/* Samples usage every 10 ms, and keeps the maximum. */
struct sampler;
struct sampler *sampler_start(const char *cgroup);
/* The same without a cgroup: private and program pages of an engine's processes (Pss), and the
 * blocks of its segments. Kernel memory is not included. */
struct sampler *sampler_start_processes(const struct engine *e);
uint64_t sampler_peak(const struct sampler *s, uint64_t *samples);
void sampler_reset(struct sampler *s);
uint64_t sampler_stop(struct sampler *s);

/* Copies the programs and their libraries to a new directory and drops them from the page cache:
 * the cgroup of the next process that runs them is charged for the pages. Sets e->libexec. */
void engine_use_fresh_programs(struct engine *e);

#endif
