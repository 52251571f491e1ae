/* SPDX-License-Identifier: Apache-2.0 */
/* The kill campaign: under each lossless preset, processes of any age are killed at random, one
 * every 20 to 250 ms, while native and HTTP clients generate. No text differs, the engine never
 * ends, and its memory, measured from outside, stays within the budget. Waits of the clients for
 * their next token are reported.
 *
 *   SLUICE_KILLS=N         kills per preset
 *   SLUICE_PRESETS=A,B     only these presets: the campaign can be run in parts
 *   SLUICE_SEED=N          of victims and intervals */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/policy/presets/presets.h"
#include "procs/clients/common/stream.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/completions.h"
#include "tests/scenario/fixtures.h"

#define INTERVAL_MIN   20
#define INTERVAL_MAX   250
#define NATIVE_CLIENTS 2
#define HTTP_CLIENTS   2
#define NATIVE_TOKENS  64
#define HTTP_TOKENS                                                                                \
    16 /* a killed gateway ends every request, and the next one waits in the queue again */
#define CLIENTS (NATIVE_CLIENTS + HTTP_CLIENTS)
/* A small gateway: the budget is mostly experts. */
#define HTTP_OPTIONS                                                                               \
    "--http=0", "--http-connections=64", "--http-body=64KiB", "--http-buffer=256KiB"
#define SILENCE_MS     60000 /* without a token: the client hangs */
#define PROGRESS_EVERY 100
#define SPARE_BYTES    (8 * MIB) /* above the minimum budget: about a third of the experts fit */
#define RESIDENT_BYTES (64 * MIB)
#define WAITS_MAX      (1u << 20)

struct waits { /* in microseconds */
    uint32_t *us;
    size_t count;
};

struct campaign;

struct client {
    struct campaign *campaign;
    unsigned number;
    pthread_t thread;
    struct waits first,
        next;   /* waits for the first token, with those of the queue; and for the others */
    bool begun; /* the first token of the request has arrived */
    uint64_t arrived_ns; /* of the newest token; at first, of the request */
    size_t text_bytes;   /* HTTP: of the response so far */
};

struct campaign {
    struct engine *engine;
    const char *preset;
    unsigned port;
    uint64_t budget;
    struct sampler *sampler;
    struct client clients[CLIENTS];
    char *http_expected[TEST_PROMPTS]; /* of HTTP_TOKENS tokens, from before the first kill */
    struct random random;
    unsigned kills, young; /* young: of them, processes that were not ready */
    atomic_uint texts, http_texts, broken;
    atomic_bool stop, failed;
    pthread_mutex_t lock;
    char failure[600];
};

/* Of the whole run. */
static struct {
    unsigned kills, young, texts, http_texts, broken;
} sum;

/* Threads report a failure; the case's thread ends the case. */
static void fail(struct campaign *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct campaign *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    pthread_mutex_lock(&c->lock);
    if (!atomic_load(&c->failed))
        vsnprintf(c->failure, sizeof c->failure, fmt, args);
    atomic_store(&c->failed, true);
    pthread_mutex_unlock(&c->lock);
    va_end(args);
}

static bool over(const struct campaign *c)
{
    return atomic_load(&c->stop) || atomic_load(&c->failed);
}

/* ---- clients --------------------------------------------------------------------------------- */

static void request_begins(struct client *k)
{
    k->arrived_ns = clock_now_ns();
    k->text_bytes = 0;
    k->begun = false;
}

static void token_arrived(struct client *k)
{
    uint64_t now = clock_now_ns();
    struct waits *w = k->begun ? &k->next : &k->first;
    if (w->count < WAITS_MAX)
        w->us[w->count++] = (uint32_t)((now - k->arrived_ns) / NS_PER_US);
    k->arrived_ns = now;
    k->begun = true;
}

static void native_tokens(const struct engine_next *next, void *arg)
{
    if (next->count > 0)
        token_arrived(arg);
}

static void native_text(struct client *k, struct session *session, unsigned prompt)
{
    struct campaign *c = k->campaign;
    const struct text *expected = baseline(prompt);
    struct engine_submit submit;
    struct stream_result got;
    struct error error = {.code = ERR_NONE};
    engine_submit_defaults(&submit);
    submit.prompt = test_prompt(prompt);
    submit.prompt_bytes = strlen(submit.prompt);
    submit.max_tokens = NATIVE_TOKENS;
    submit.ignore_eos = true;
    submit.sampling.temperature = 0;
    request_begins(k);
    if (stream_run(session, &submit, native_tokens, k, &got, &error) != 0)
        fail(c, "prompt %u failed after %zu tokens: %s (%s)", prompt, got.count, error.text,
             error_name(error.code));
    else if (got.count != NATIVE_TOKENS ||
             strncmp(got.text, expected->text, strlen(got.text)) != 0 ||
             memcmp(got.ids, expected->ids, got.count * sizeof *got.ids) != 0)
        fail(c, "prompt %u: the text differs: %.300s", prompt, got.text);
    else
        atomic_fetch_add(&c->texts, 1);
    stream_result_free(&got);
}

static void *native_client(void *arg)
{
    struct client *k = arg;
    struct error error;
    struct session session = {.log_fd = -1};
    snprintf(session.run, sizeof session.run, "%s", k->campaign->engine->run);
    session.engine = engine_client_open(session.run, &error);
    if (!session.engine)
        fail(k->campaign, "%s", error.text);
    for (unsigned i = k->number; session.engine && !over(k->campaign); i++)
        native_text(k, &session, i % TEST_PROMPTS);
    rpc_client_close(session.engine);
    return NULL;
}

/* The text of the events so far. A connection may break inside of one. False: an error event. */
static bool events_text(const char *raw, char *out, size_t cap, bool *done)
{
    size_t n = 0;
    *done = strstr(raw, "data: [DONE]") != NULL;
    out[0] = 0;
    for (const char *at = raw; (at = strstr(at, "data: {")) != NULL; at += 7) {
        json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
        bool error = json_object_get(event, "error") != NULL;
        if (choice)
            n += (size_t)snprintf(out + n, cap - n, "%s", lookup_text(choice, "text"));
        json_decref(event);
        if (error || n >= cap)
            return false;
    }
    return true;
}

/* Receives until the connection ends. A token has arrived when the text is longer. */
static void http_receive(struct client *k, struct http *h, char *text, size_t cap, bool *done,
                         bool *error)
{
    char block[16384];
    *done = *error = false;
    text[0] = 0;
    for (;;) {
        struct pollfd wait = {.fd = h->fd, .events = POLLIN};
        if (poll(&wait, 1, SILENCE_MS) <= 0) {
            fail(k->campaign, "no bytes over HTTP for %d ms", SILENCE_MS);
            return;
        }
        ssize_t n = recv(h->fd, block, sizeof block, 0);
        char *raw = n > 0 ? realloc(h->raw, h->bytes + (size_t)n + 1) : NULL;
        if (!raw)
            return;
        h->raw = raw;
        memcpy(raw + h->bytes, block, (size_t)n);
        h->bytes += (size_t)n;
        raw[h->bytes] = 0;
        *error = !events_text(raw, text, cap, done);
        if (strlen(text) > k->text_bytes) {
            k->text_bytes = strlen(text);
            token_arrived(k);
        }
    }
}

/* A killed gateway breaks its connections: the client sends the request again, which is a new wait
 * for a first token. */
static void http_text(struct client *k, unsigned prompt)
{
    struct campaign *c = k->campaign;
    const char *expected = c->http_expected[prompt];
    static _Thread_local char text[32768];
    bool done = false, error = false;
    while (!done && !over(c)) {
        struct http h;
        request_begins(k);
        completion_start(&h, c->port, test_prompt(prompt), HTTP_TOKENS);
        http_receive(k, &h, text, sizeof text, &done, &error);
        bool ours = strncmp(expected, text, strlen(text)) == 0;
        if (error || !ours || (done && strcmp(expected, text) != 0))
            fail(c, "prompt %u over HTTP: %s: %.400s", prompt,
                 error ? "an error" : "the text differs",
                 error ? h.raw + (h.bytes > 400 ? h.bytes - 400 : 0) : text);
        else if (h.bytes > 0 && !done && strncmp(h.raw, "HTTP/1.1 200", 12) != 0)
            fail(c, "prompt %u over HTTP: %.20s ... %.300s", prompt, h.raw,
                 h.raw + (h.bytes > 300 ? h.bytes - 300 : 0));
        atomic_fetch_add(done ? &c->http_texts : &c->broken, 1);
        http_close(&h);
    }
}

static void *http_client(void *arg)
{
    struct client *k = arg;
    for (unsigned i = k->number; !over(k->campaign); i++)
        http_text(k, i % TEST_PROMPTS);
    return NULL;
}

/* ---- kills ----------------------------------------------------------------------------------- */

/* Any process but the supervisor. */
static void kill_one(struct campaign *c)
{
    json_t *doc = engine_stats(c->engine);
    const json_t *victims[64];
    size_t count = 0;
    for (size_t i = 1; i < lookup_processes(doc) && count < ARRAY_LEN(victims); i++)
        if (lookup_u64(lookup_row(doc, i), "pid") > 0)
            victims[count++] = lookup_row(doc, i);
    if (count > 0) {
        const json_t *victim = victims[random_below(&c->random, count)];
        pid_t pid = (pid_t)lookup_u64(victim, "pid");
        bool ready = strcmp(lookup_text(victim, "state"), "ready") == 0;
        if (process_state(pid) != 'Z' && kill(pid, SIGKILL) == 0) {
            c->kills++;
            c->young += !ready;
        }
    }
    json_decref(doc);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static void report_waits(const struct campaign *c, bool first)
{
    size_t n = 0;
    for (unsigned i = 0; i < CLIENTS; i++)
        n += first ? c->clients[i].first.count : c->clients[i].next.count;
    uint32_t *us = malloc((n + 1) * sizeof *us);
    CHECK(us, "no memory");
    n = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        const struct waits *w = first ? &c->clients[i].first : &c->clients[i].next;
        memcpy(us + n, w->us, w->count * sizeof *us);
        n += w->count;
    }
    qsort(us, n, sizeof *us, by_value);
    if (n > 0)
        test_note("%s: %zu waits for the %s token: p50 %.1f, p99 %.1f, max %.1f ms", c->preset, n,
                  first ? "first" : "next", us[n / 2] / 1e3, us[(n - 1) * 99 / 100] / 1e3,
                  us[n - 1] / 1e3);
    free(us);
}

static void report(struct campaign *c)
{
    uint64_t samples, peak = sampler_peak(c->sampler, &samples);
    test_note(
        "%s: %u kills (%u of processes that were not ready), %u texts, %u of them over HTTP, none "
        "differed; %u HTTP connections broke; memory at most %.1f of %.1f MiB (%" PRIu64
        " samples, %s)",
        c->preset, c->kills, c->young, atomic_load(&c->texts) + atomic_load(&c->http_texts),
        atomic_load(&c->http_texts), atomic_load(&c->broken), (double)peak / (double)MIB,
        (double)c->budget / (double)MIB, samples, c->engine->cgroup[0] ? "cgroup" : "/proc");
    report_waits(c, true);
    report_waits(c, false);
    CHECK(peak <= c->budget, "%s: memory exceeded the budget", c->preset);
    sum.kills += c->kills;
    sum.young += c->young;
    sum.texts += atomic_load(&c->texts);
    sum.http_texts += atomic_load(&c->http_texts);
    sum.broken += atomic_load(&c->broken);
}

static void clients_start(struct campaign *c)
{
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client *k = &c->clients[i];
        *k = (struct client){.campaign = c, .number = i};
        k->first.us = malloc(WAITS_MAX * sizeof *k->first.us);
        k->next.us = malloc(WAITS_MAX * sizeof *k->next.us);
        CHECK(k->first.us && k->next.us &&
                  pthread_create(&k->thread, NULL, i < NATIVE_CLIENTS ? native_client : http_client,
                                 k) == 0,
              "no thread");
    }
}

static void clients_end(struct campaign *c)
{
    atomic_store(&c->stop, true);
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(c->clients[i].thread, NULL);
}

static void campaign_kill(struct campaign *c, unsigned wanted)
{
    unsigned noted = 0;
    while (c->kills < wanted && !atomic_load(&c->failed)) {
        deadline_reach(deadline_in(
            INTERVAL_MIN + (unsigned)random_below(&c->random, INTERVAL_MAX - INTERVAL_MIN + 1)));
        CHECK(process_state(c->engine->pid) != 'Z', "%s: the engine ended after %u kills",
              c->preset, c->kills);
        kill_one(c);
        if (c->kills >= noted + PROGRESS_EVERY) {
            noted = c->kills;
            test_note("%s: %u of %u kills, %u texts", c->preset, c->kills, wanted,
                      atomic_load(&c->texts) + atomic_load(&c->http_texts));
        }
    }
}

/* ---- engines --------------------------------------------------------------------------------- */

/* The minimum budget under a preset, and what it may use beyond. */
static uint64_t budget_for(struct engine *e, const char *preset, const char *option,
                           const char *plan)
{
    engine_start(e, (const char *const[]){option, plan, HTTP_OPTIONS, "--cgroup=off", NULL});
    json_t *doc = engine_stats(e);
    uint64_t minimum = lookup_u64(doc, "memory.min_budget_bytes");
    json_decref(doc);
    engine_stop(e);
    CHECK(minimum > 0, "stats lack memory.min_budget_bytes");
    return align_up(minimum + (strcmp(preset, "resident") == 0 ? RESIDENT_BYTES : SPARE_BYTES),
                    PAGE_BYTES);
}

static void start_engine(struct campaign *c, const char *plan)
{
    char preset[48], budget[48];
    struct error error;
    snprintf(preset, sizeof preset, "--preset=%s", c->preset);
    c->engine = engine_new();
    c->budget = budget_for(c->engine, c->preset, preset, plan);
    snprintf(budget, sizeof budget, "--budget=%" PRIu64, c->budget);
    if (cgroup_try(c->engine->cgroup, &error)) {
        engine_use_fresh_programs(c->engine);
        c->sampler = sampler_start(c->engine->cgroup);
    } else {
        c->engine->cgroup[0] = 0;
    }
    engine_start(c->engine,
                 (const char *const[]){preset, plan, budget, HTTP_OPTIONS, "--cgroup=off", NULL});
    if (!c->engine->cgroup[0])
        c->sampler = sampler_start_processes(c->engine);
    c->port = http_port(c->engine);
    for (unsigned i = 0; i < TEST_PROMPTS; i++) {
        c->http_expected[i] = completion_text(c->port, test_prompt(i), HTTP_TOKENS);
        CHECK(strncmp(c->http_expected[i], baseline(i)->text, strlen(c->http_expected[i])) == 0,
              "prompt %u over HTTP: the text differs before the first kill", i);
    }
}

static void run_preset(const char *preset, const char *plan, unsigned kills, uint64_t seed)
{
    static struct campaign c;
    c = (struct campaign){.preset = preset, .lock = PTHREAD_MUTEX_INITIALIZER};
    random_seed(&c.random, seed, preset_find(preset));
    start_engine(&c, plan);
    clients_start(&c);
    campaign_kill(&c, kills);
    clients_end(&c);
    if (atomic_load(&c.failed))
        engine_show_log(c.engine);
    CHECK(!atomic_load(&c.failed), "%s, after %u kills: %s", preset, c.kills, c.failure);
    report(&c);
    engine_stop(c.engine);
    sampler_stop(c.sampler);
    for (unsigned i = 0; i < CLIENTS; i++) {
        free(c.clients[i].first.us);
        free(c.clients[i].next.us);
    }
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        free(c.http_expected[i]);
}

static bool wanted_preset(const char *name)
{
    const char *list = getenv("SLUICE_PRESETS");
    size_t n = strlen(name);
    struct knobs knobs;
    struct error error;
    if (knobs_resolve(name, NULL, NULL, &knobs, &error) != 0 || knobs_lossy(&knobs))
        return false;
    for (const char *at = list; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        if (strcspn(at, ",") == n && strncmp(at, name, n) == 0)
            return true;
    return !list || !*list;
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? strtoull(value, NULL, 10) : otherwise;
}

static void random_kills(void)
{
    unsigned presets = 0;
    for (uint32_t i = 0; i < preset_count(); i++) {
        struct knobs knobs;
        struct error error;
        presets += knobs_resolve(preset_at(i)->name, NULL, NULL, &knobs, &error) == 0 &&
                   !knobs_lossy(&knobs);
    }
    unsigned all = test_amount(AMOUNT_kills_random);
    unsigned kills = (unsigned)number_of("SLUICE_KILLS", (all + presets - 1) / presets);
    uint64_t seed = number_of("SLUICE_SEED", 1);
    test_note("seed %" PRIu64 " (SLUICE_SEED), %u lossless presets, %u kills each (SLUICE_KILLS)",
              seed, presets, kills);
    char plan[PATH_MAX], option[PATH_MAX + 8];
    baseline(0);
    plan_make(plan, "native.plan", 1u << PRECISION_NATIVE); /* eap needs one */
    snprintf(option, sizeof option, "--plan=%s", plan);
    unsigned met = 0;
    for (uint32_t i = 0; i < preset_count(); i++)
        if (wanted_preset(preset_at(i)->name) && test_sample(EVERY_random_kill_presets, &met))
            run_preset(preset_at(i)->name, option, kills, seed);
    test_note(
        "%u kills (%u not ready), %u native and %u HTTP texts, none differed, %u connections broke",
        sum.kills, sum.young, sum.texts, sum.http_texts, sum.broken);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(random_kills)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
