/* What scenario tests are made of: test cases, real engines in a run directory of their own,
 * concurrent generations, programs run to their end, memory cgroups.
 *
 * A test program prints one line per case, "ok NAME", "not ok NAME: reason" or "SKIP NAME: reason",
 * and exits 1 when a case failed. A case ends at its first failure: test_fail does not return.
 * Whatever a case leaves behind (engines, temporary files) is cleared up and looked for after it.
 *
 * Nothing here sleeps for a length of time and hopes: every wait is for a condition, with a
 * deadline on the monotonic clock. */
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

/* ---- cases ---- */

struct test_case {
    const char *name;
    void (*run)(void);
};

/* Runs the cases named in argv, or all. Returns the exit status of the program. */
int test_main(int argc, char **argv, const struct test_case *cases, size_t count);

_Noreturn void test_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void test_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A line of what the test measured, kept with its output. */
void test_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            test_fail(__VA_ARGS__);                                                                \
    } while (0)

/* True for `sluice test --long`. */
bool test_long(void);

/* Directory of the programs, the demo model, and a directory that goes away with the case. */
const char *test_libexec(void);
const char *test_model(void);
const char *test_dir(void);

/* ---- waiting ---- */

uint64_t deadline_in(unsigned ms);
/* One short wait between two checks of a condition; false once the deadline has passed. */
bool deadline_tick(uint64_t deadline);
/* Waits until the deadline is reached: for tests whose subject is time itself. */
void deadline_reach(uint64_t deadline);

/* ---- processes ---- */

bool process_alive(pid_t pid);
/* 'R', 'S', 'T', 'Z' ...; 0 when it is gone. */
char process_state(pid_t pid);
void process_wait_state(pid_t pid, char state, unsigned ms);
void process_wait_gone(pid_t pid, unsigned ms);
/* Its private memory, in memory or swapped out, from smaps_rollup. */
uint64_t process_private_bytes(pid_t pid);

struct command {
    int status; /* exit status, 128 + signal */
    char *out, *err;
    size_t out_bytes, err_bytes;
};

/* Runs a program to its end. argv[0]: a path, or a command such as "generate" (sluice-generate of this
 * build). input may be NULL. Kills it after ms and fails the case. */
void command_run(struct command *c, const char *input, unsigned ms, const char *const argv[]);
void command_free(struct command *c);
/* Lines in a text. */
size_t command_lines(const char *text);

/* ---- terminals ---- */

/* A program of this build on a pseudo-terminal of that size. out: its stdout, -1: the terminal. */
struct terminal;
struct terminal *terminal_open(unsigned rows, unsigned columns, int out, const char *const argv[]);
void terminal_type(struct terminal *t, const char *keys);
/* Until a text appears behind the one waited for before. */
void terminal_wait(struct terminal *t, const char *text, unsigned ms);
void terminal_resize(struct terminal *t, unsigned rows, unsigned columns);
/* Waits for the end of the program; its status, 128 + signal. Frees t. */
int terminal_end(struct terminal *t, unsigned ms);

/* ---- engines ---- */

#define ENGINE_PIDS_MAX 256

struct engine {
    char run[RUN_NAME_MAX + 1];
    char dir[ENDPOINT_BYTES]; /* its run directory */
    char log[PATH_MAX];
    char libexec[PATH_MAX]; /* "" for this build's own */
    char cgroup[PATH_MAX];  /* memory cgroup it is started in, or "" */
    pid_t pid;              /* of the supervisor, 0: not running */
    struct rpc_client *control;
    struct session *session;
    pid_t seen[ENGINE_PIDS_MAX]; /* every process of it that was ever seen */
    size_t seen_count;
};

/* A blank engine of this case. It belongs to the harness, which ends what a failed case leaves. */
struct engine *engine_new(void);

/* Starts an engine on the demo model with more options, NULL-terminated, and waits until it is
 * ready. */
void engine_start(struct engine *e, const char *const options[]);
/* Begins a start without waiting. */
void engine_spawn(struct engine *e, const char *const options[]);
void engine_wait_ready(struct engine *e, unsigned ms);
/* Ends it in order: exit status 0 and nothing left behind. */
void engine_stop(struct engine *e);
/* kill -9 of everything, for the end of a failed case. */
void engine_destroy(struct engine *e);
/* All its processes gone within ms, nothing of it in /dev/shm. */
void engine_check_gone(struct engine *e, unsigned ms);

json_t *engine_stats(struct engine *e); /* new reference */
uint64_t engine_counter(struct engine *e, const char *service, const char *counter);
/* pid of a process, waiting until it is ready with another pid than `not_pid`. */
pid_t engine_pid(struct engine *e, const char *service, unsigned number, pid_t not_pid);
uint64_t engine_restarts(struct engine *e, const char *service, unsigned number);
void engine_wait_counter(struct engine *e, const char *service, const char *counter,
                         uint64_t at_least, unsigned ms);
/* A control call that has to succeed; fields stolen. New reference. */
json_t *engine_control(struct engine *e, const char *op, json_t *fields);
/* Last lines of its log, as notes. */
void engine_show_log(const struct engine *e);

/* ---- generations ---- */

struct text {
    uint32_t *ids;
    size_t count;
    char *text;
    char finish[16];
    json_t *stats;
    struct error error; /* code ERR_NONE when all is well */
};

/* n greedy tokens, end-of-text not a stop. Fails the case unless all n came. */
void engine_generate(struct engine *e, const char *prompt, size_t n, struct text *out);

/* The same in a thread of its own. */
struct generation;
struct generation *generation_start(struct engine *e, const char *prompt, size_t n);
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

#define LOAD_OTHERS_MAX 0.10 /* of all processors: beyond it no time is judged */

struct load {
    uint64_t started_ns, own, machine;
};

/* From here on; then the share of the processors others than this engine and test have used. */
void load_start(struct load *load, struct engine *e);
double load_of_others(const struct load *load, struct engine *e);

/* A promise about time that was not kept: fails the case, or skips it on a machine busy with
 * others. */
void load_judge(const struct load *load, struct engine *e, bool kept, const char *what);

/* ---- memory cgroups ---- */

/* Makes a memory cgroup (v1 or v2) into path; skips the case when that is not allowed, or is false.
 */
void cgroup_make(char path[PATH_MAX]);
bool cgroup_try(char path[PATH_MAX], struct error *error);
void cgroup_limit(const char *path, uint64_t bytes);
uint64_t cgroup_usage(const char *path);
/* "" or what was killed for lack of memory there. */
uint64_t cgroup_failures(const char *path);
/* Starts sampling usage every 10 ms; the greatest usage since. */
struct sampler;
struct sampler *sampler_start(const char *cgroup);
/* The same without a cgroup: private and program pages of a running engine's processes (Pss), and
 * the blocks of its segments. The kernel's own memory for them is not seen. */
struct sampler *sampler_start_processes(const struct engine *e);
uint64_t sampler_peak(const struct sampler *s, uint64_t *samples);
void sampler_reset(struct sampler *s);
uint64_t sampler_stop(struct sampler *s);

/* Copies of the programs and of their libraries in a fresh directory, out of the page cache: their
 * pages are charged to who runs them next. Sets e->libexec. */
void engine_use_fresh_programs(struct engine *e);

#endif
