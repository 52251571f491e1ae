/* SPDX-License-Identifier: Apache-2.0 */
/* A call of one process fails: the N-th, once or from then on (tests/inject). Over a start, a
 * generation and a stop, the outcome is the right text, or a named error and an orderly end or
 * restart; never another text, a hang, a failed assertion, a SIGSEGV, or something left behind.
 *
 * A case per program. The short form draws N at random, with the seed SLUICE_SEED; the long form
 * takes every N up to EVERY, then steps that grow, until no call is failed any more.
 * SLUICE_TRY=PROGRAM:SITE:N:MODE repeats one attempt in the case of its program. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "tests/scenario/http.h"

#define WAIT_MS   60000 /* for anything: beyond it is a hang */
#define CLIENT_MS 90000 /* for generate, whose own deadline is a minute */
#define SHORT_NS  (4 * NS_PER_S)
#define SEED      1
#define EVERY     64
#define N_MAX     256 /* of the short form; an eighth of it but for malloc */
#define TOKENS    "12"
#define PROMPT    "It was a dark and stormy night, and"
#define LOG_BYTES (256 * KIB)

static const char *const sites[] = {
#define SITE(name, error) #name,
#include "tests/inject/sites.tbl.h"
};

struct attempt {
    const char *program;
    char site[16];
    unsigned n;
    char mode[8];
    bool fired, ended; /* the call failed; the engine ended for it */
};

static struct engine *the_engine; /* of the case */
static char tried[96];            /* the attempt, as a variable of the environment */
static char *expected;            /* what generate prints without faults */

/* ---- one attempt ---- */

static void describe(const struct attempt *a)
{
    snprintf(tried, sizeof tried, "SLUICE_TRY=%s:%s:%u:%s", a->program, a->site, a->n, a->mode);
    test_context(tried);
}

static void fault_set(const struct attempt *a, const char *fired)
{
    char fault[96];
    snprintf(fault, sizeof fault, "%s:%s:%u:%s", a->program, a->site, a->n, a->mode);
    setenv("SLUICE_FAULT", fault, 1);
    setenv("SLUICE_FAULT_FIRED", fired, 1);
    setenv("LD_PRELOAD", SLUICE_FAULT_SHIM, 1);
}

static void fault_unset(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("SLUICE_FAULT");
    unsetenv("SLUICE_FAULT_FIRED");
}

/* They fail once only: without any memory, a client waits for its deadline, a minute. */
static bool is_client(const struct attempt *a)
{
    return strcmp(a->program, "generate") == 0 || strcmp(a->program, "stats") == 0 ||
           strcmp(a->program, "ctl") == 0;
}

/* The log of the engine, in a buffer of the case. */
static char *log_of(const struct engine *e)
{
    static char text[LOG_BYTES];
    FILE *f = fopen(e->log, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    return text;
}

/* Libraries whose crash for a failed call is not ours to mend; the process is restarted. */
static const char *const libraries[] = {"/libnng.so", "/libmicrohttpd.so", "/libjansson.so",
                                        "/liburing.so"};

/* The crash that the shim reported in this text, which states where; a note, or a failure. */
static bool library_crashed(const char *text)
{
    static const char mark[] = "fault_shim: signal ";
    const char *at = strstr(text, mark);
    if (!at)
        return false;
    size_t n = strcspn(at, "\n");
    for (size_t i = 0; i < ARRAY_LEN(libraries); i++)
        if (memmem(at, n, libraries[i], strlen(libraries[i]))) {
            test_note("%s: %.*s", tried, (int)(n - sizeof mark + 1 + 7), at + sizeof mark - 1 - 7);
            return true;
        }
    test_fail("%.*s", (int)n, at);
}

static void check_log(const struct engine *e)
{
    char *log = log_of(e);
    CHECK(!strstr(log, "PANIC"), "an assertion failed: %.200s", strstr(log, "PANIC"));
    bool library = library_crashed(log);
    char *crash = strstr(log, "signal 11") ? strstr(log, "signal 11") : strstr(log, "signal 6");
    CHECK(!crash || library, "%.200s", crash);
}

/* The engine ended: with a status of its own and a reason in its log, unless the log
 * cannot be written. */
static void check_ended(struct engine *e, const struct attempt *a, int status)
{
    if (WIFSIGNALED(status) && library_crashed(log_of(e)))
        return;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) <= 2, "the engine ended with status %#x",
          (unsigned)status);
    CHECK(WEXITSTATUS(status) == 0 || strcmp(a->site, "write") == 0 ||
              strstr(log_of(e), "rror: ") || strstr(log_of(e), "FATAL "),
          "the engine ended with status %d without a reason", WEXITSTATUS(status));
}

/* Runs generate; its text is the right one, or it states an error. True: the text. */
static bool generate(struct engine *e, const struct attempt *a, const char *fired)
{
    struct command c;
    if (a && strcmp(a->program, "generate") == 0)
        fault_set(a, fired);
    command_run(&c, NULL, CLIENT_MS,
                (const char *const[]){"generate", "--name", e->run, "-p", PROMPT, "-n", TOKENS,
                                      "--temp", "0", "--ignore-eos", "--quiet", NULL});
    fault_unset();
    bool good = c.status == 0;
    if (good)
        CHECK(!expected || strcmp(c.out, expected) == 0, "another text: '%.200s'", c.out);
    else
        CHECK(library_crashed(c.err) || ((c.status == 1 || c.status == 2) && c.err_bytes > 0),
              "generate ended with status %d: %.200s", c.status, c.err);
    if (good && !expected)
        expected = strdup(c.out);
    command_free(&c);
    return good;
}

static void run_client(struct engine *e, const struct attempt *a, const char *fired)
{
    struct command c;
    bool ctl = strcmp(a->program, "ctl") == 0;
    fault_set(a, fired);
    command_run(&c, NULL, WAIT_MS,
                ctl ? (const char *const[]){"ctl", "--name", e->run, "status", NULL}
                    : (const char *const[]){"stats", "--name", e->run, NULL});
    fault_unset();
    CHECK(c.status == 0 || library_crashed(c.err) ||
              ((c.status == 1 || c.status == 2) && c.err_bytes > 0),
          "status %d: %.200s", c.status, c.err);
    command_free(&c);
}

/* A completion, over the port that the log names. A connection may break; a text that arrives is
 * the right one. */
static bool complete(struct engine *e)
{
    struct http h;
    const char *at;
    uint64_t deadline = deadline_in(WAIT_MS);
    while (!(at = strstr(log_of(e), "http://127.0.0.1:")) || !strchr(at, '\n'))
        CHECK(deadline_tick(deadline), "no port in the log");
    unsigned port = (unsigned)strtoul(at + 17, NULL, 10);
    http_open(&h, port, "/v1/completions", NULL,
              "{\"prompt\":\"" PROMPT "\",\"max_tokens\":" TOKENS
              ",\"temperature\":0,\"ignore_eos\":true}");
    http_finish(&h, WAIT_MS);
    bool good = h.status == 200;
    if (good && expected) { /* unknown before the first generation */
        json_t *doc = http_json(&h);
        const char *text = lookup_text(json_array_get(json_object_get(doc, "choices"), 0), "text");
        size_t n = strcspn(expected, "\n");
        CHECK(strncmp(text, expected, n) == 0, "another text over HTTP: '%.200s'", text);
        json_decref(doc);
    }
    http_close(&h);
    return good;
}

/* After a single failure everything works again, soon. */
static void check_recovers(struct engine *e, const struct attempt *a)
{
    uint64_t deadline = deadline_in(WAIT_MS);
    while (!generate(e, NULL, NULL))
        CHECK(deadline_tick(deadline), "generate does not work again");
    while (strcmp(a->program, "gateway") == 0 && !complete(e))
        CHECK(deadline_tick(deadline), "HTTP does not work again");
}

static void stop(struct engine *e, const struct attempt *a)
{
    int status = 0;
    kill(e->pid, SIGTERM);
    CHECK(engine_wait_end(e, WAIT_MS, &status), "SIGTERM has no effect");
    check_ended(e, a, status);
}

/* False: the engine ended. A supervisor without any memory from then on may not answer, so the log
 * states that it was ready; one that cannot write answers and has no log. */
static bool started(struct engine *e, const struct attempt *a, int *status)
{
    if (strcmp(a->program, "run") != 0 || strcmp(a->mode, "on") != 0 ||
        strcmp(a->site, "write") == 0)
        return engine_wait_started(e, WAIT_MS, status);
    uint64_t deadline = deadline_in(WAIT_MS);
    while (!strstr(log_of(e), "ready: model")) {
        if (engine_wait_end(e, 0, status))
            return false;
        CHECK(deadline_tick(deadline), "the engine is not ready");
    }
    return true;
}

static void attempt(struct attempt *a)
{
    char fired[PATH_MAX], trace[PATH_MAX];
    int status = 0;
    describe(a);
    snprintf(fired, sizeof fired, "%s/fired", test_dir());
    snprintf(trace, sizeof trace, "--trace=%s/trace", test_dir());
    unlink(fired);
    bool once = strcmp(a->mode, "once") == 0, gateway = strcmp(a->program, "gateway") == 0;
    const char *backend =
        strcmp(a->site, "pread") == 0 || strcmp(a->site, "thread") == 0 ? "pread" : "auto";
    struct engine *e = the_engine;
    unlink(e->log);
    if (!is_client(a))
        fault_set(a, fired);
    engine_spawn(e, (const char *const[]){"--resident-experts=50", "--force", "on", trace,
                                          "--http=0", "--backend", backend, "--idle-timeout=2000",
                                          "--sandbox=off", /* keeps LD_PRELOAD */ NULL});
    fault_unset();
    bool ready = started(e, a, &status);
    engine_look(e);
    if (ready && (strcmp(a->program, "stats") == 0 || strcmp(a->program, "ctl") == 0))
        run_client(e, a, fired);
    if (ready && gateway)
        complete(e);
    if (ready)
        generate(e, a, fired);
    a->fired = access(fired, F_OK) == 0;
    if (ready && once && e->pid > 0)
        check_recovers(e, a);
    a->ended = !ready;
    if (ready)
        stop(e, a);
    else
        check_ended(e, a, status);
    CHECK(a->fired || ready, "the engine ended without a fault");
    check_log(e);
    engine_check_gone(e, 5000);
}

/* ---- which attempts ---- */

#define ATTEMPTS_MAX 60u /* until a call failed, on a machine on which they take long */

/* True: SLUICE_TRY names an attempt, which is in *a if it is of this program. */
static bool requested(const char *program, struct attempt *a, bool *own)
{
    const char *text = getenv("SLUICE_TRY");
    char name[16];
    *own = text && sscanf(text, "%15[^:]:%15[^:]:%u:%7s", name, a->site, &a->n, a->mode) == 4 &&
           strcmp(name, program) == 0;
    a->program = program;
    return text != NULL;
}

static unsigned step_after(unsigned n)
{
    return n < EVERY ? n + 1 : n + n / 16;
}

static unsigned every_n(const char *program, const char *site, const char *mode)
{
    unsigned fired = 0;
    for (unsigned n = 1;; n = step_after(n)) {
        struct attempt a = {.program = program, .n = n};
        snprintf(a.site, sizeof a.site, "%s", site);
        snprintf(a.mode, sizeof a.mode, "%s", mode);
        attempt(&a);
        if (!a.fired)
            return fired;
        fired++;
    }
}

static unsigned long_form(const char *program)
{
    bool client = is_client(&(struct attempt){.program = program});
    unsigned fired = 0;
    for (size_t i = 0; i < ARRAY_LEN(sites); i++) {
        unsigned once = every_n(program, sites[i], "once"),
                 on = client ? 0 : every_n(program, sites[i], "on");
        test_note("%s, %s: %u calls failed once, %u from then on", program, sites[i], once, on);
        fired += once + on;
    }
    return fired;
}

/* N is drawn on a logarithmic scale; a site whose N-th call does not occur gets a lower N. */
static unsigned short_form(const char *program, const char *used)
{
    const char *text = getenv("SLUICE_SEED");
    struct random random;
    uint64_t seed = text ? strtoull(text, NULL, 10) : SEED, deadline = clock_now_ns() + SHORT_NS;
    unsigned fired = 0, attempts = 0, limit[ARRAY_LEN(sites)];
    random_seed(&random, seed, strlen(program) * 256u + (unsigned char)program[2]);
    for (size_t i = 0; i < ARRAY_LEN(sites); i++)
        limit[i] = !strstr(used, sites[i])           ? 0
                   : strcmp(sites[i], "malloc") == 0 ? N_MAX
                                                     : N_MAX / 8;
    for (; clock_now_ns() < deadline || (fired == 0 && attempts < ATTEMPTS_MAX); attempts++) {
        size_t i = (size_t)(random_u64(&random) % ARRAY_LEN(sites));
        unsigned bits = 1;
        if (limit[i] == 0)
            continue;
        while ((2u << bits) <= limit[i])
            bits++;
        struct attempt a = {.program = program};
        a.n = 1 + (unsigned)(random_u64(&random) % (1u << random_u64(&random) % (bits + 1)));
        a.n = a.n < limit[i] ? a.n : limit[i];
        snprintf(a.site, sizeof a.site, "%s", sites[i]);
        snprintf(a.mode, sizeof a.mode, "%s",
                 is_client(&a) || random_u64(&random) % 3 ? "once" : "on");
        attempt(&a);
        fired += a.fired;
        if (!a.fired)
            limit[i] = (a.n + 1) / 2;
    }
    test_note("%s: %u attempts with seed %llu, %u calls failed", program, attempts,
              (unsigned long long)seed, fired);
    return fired;
}

static void program(const char *name, const char *used)
{
    struct attempt none = {.program = name, .site = "malloc", .n = 1000000000, .mode = "once"}, one;
    bool own;
    if (access(SLUICE_FAULT_SHIM, R_OK) != 0)
        test_skip("%s is not built", SLUICE_FAULT_SHIM);
    the_engine = engine_new();
    if (!expected)
        attempt(&none);
    if (requested(name, &one, &own)) {
        if (!own)
            test_skip("SLUICE_TRY is of another program");
        attempt(&one);
        CHECK(one.fired, "no call failed");
        return;
    }
    CHECK((test_long() ? long_form(name) : short_form(name, used)) > 0, "no call of %s failed",
          name);
}

/* ---- causes ---------------------------------------------------------------------------------- */

/* A client without memory, or descriptors, states that: the engine that it could not ask is
 * running. */
static unsigned causes_of(struct engine *e, const char *site, const char *mode, unsigned last)
{
    char fired[PATH_MAX];
    unsigned errors = 0;
    snprintf(fired, sizeof fired, "%s/fired", test_dir());
    for (unsigned n = 1; n <= last; n++) {
        struct command c;
        struct attempt a = {.program = "generate", .n = n};
        snprintf(a.site, sizeof a.site, "%s", site);
        snprintf(a.mode, sizeof a.mode, "%s", mode);
        describe(&a);
        unlink(fired);
        fault_set(&a, fired);
        command_run(&c, NULL, WAIT_MS,
                    (const char *const[]){"generate", "--name", e->run, "-p", PROMPT, "-n", "1",
                                          "-q", NULL});
        fault_unset();
        CHECK(!strstr(c.err, "is running"), "%.200s", c.err);
        errors += c.status != 0;
        command_free(&c);
    }
    return errors;
}

static void client_states_its_own_failure(void)
{
    if (access(SLUICE_FAULT_SHIM, R_OK) != 0)
        test_skip("%s is not built", SLUICE_FAULT_SHIM);
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=50", NULL});
    unsigned once = causes_of(e, "malloc", "once", 7);
    unsigned on = causes_of(e, "malloc", "on", 4),
             descriptors = causes_of(e, "descriptor", "once", 6);
    CHECK(once > 0 && on > 0 && descriptors > 0, "%u, %u and %u errors", once, on, descriptors);
    engine_stop(e);
}

/* used: the sites that the short form draws from; the long form tries all. */
#define PROGRAM(name, used)                                                                        \
    static void name##_fails(void)                                                                 \
    {                                                                                              \
        program(#name, used);                                                                      \
    }
PROGRAM(run, "malloc mmap fallocate read open write descriptor thread spawn")
PROGRAM(inspect, "malloc pread write")
PROGRAM(compute, "malloc mmap fallocate descriptor thread")
PROGRAM(cache, "malloc mmap fallocate descriptor thread")
PROGRAM(loader, "malloc mmap pread uring open descriptor thread")
PROGRAM(predictor, "malloc mmap descriptor thread")
PROGRAM(gateway, "malloc mmap descriptor thread")
PROGRAM(recorder, "malloc mmap write open descriptor thread")
PROGRAM(generate, "malloc write descriptor thread")
PROGRAM(stats, "malloc write descriptor thread")
PROGRAM(ctl, "malloc write descriptor thread")

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(run_fails),     ROW(inspect_fails),  ROW(compute_fails),
        ROW(cache_fails),   ROW(loader_fails),   ROW(predictor_fails),
        ROW(gateway_fails), ROW(recorder_fails), ROW(generate_fails),
        ROW(stats_fails),   ROW(ctl_fails),      ROW(client_states_its_own_failure),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
