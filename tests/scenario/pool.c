/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the pool, from outside: requests of random lengths, some of which are cancelled, leave
 * the pool and each process as they were; and sixteen sequences with prefixes stay in the budget,
 * also of a model with states, by the pages of the processes and by a memory cgroup. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ipc/engine/engine_client.h"
#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "tests/harness/harness.h"
#include "tests/scenario/continued.h"
#include "tests/scenario/prefix_files.h"

#define TOGETHER      16u
#define PROMPT_MAX    200u
#define FAMILIES      4u  /* prompts of one begin alike */
#define WARM          32u /* requests after which a process has what it takes */
#define CONVERSATIONS 8u
#define END_MS        60000
#define SLACK_BYTES   MIB /* of the allocator of a process */

struct request {
    uint64_t id, from;
    uint64_t cancel_at; /* tokens; UINT64_MAX: never */
};

struct load_of_requests {
    struct rpc_client *client;
    struct random random;
    struct request request[TOGETHER];
    uint32_t ended, cancelled;
};

static uint32_t below(struct load_of_requests *l, uint32_t n)
{
    return (uint32_t)random_below(&l->random, n);
}

static void submit(struct load_of_requests *l, struct request *r)
{
    uint32_t prompt[PROMPT_MAX], family = below(l, FAMILIES);
    struct engine_submit s;
    struct error error;
    engine_submit_defaults(&s);
    s.prompt_ids = prompt;
    s.prompt_ids_count = 1 + below(l, PROMPT_MAX);
    s.max_tokens = 1 + below(l, 40);
    s.ignore_eos = true;
    s.side = below(l, 4) == 0;
    uint32_t shared = below(l, PROMPT_MAX);
    for (uint32_t i = 0; i < s.prompt_ids_count; i++)
        prompt[i] = 20 + (i < shared ? i * (family + 3) : below(l, 400)) % 400;
    CHECK(engine_submit(l->client, &s, &r->id, &error) == 0, "%s", error.text);
    r->from = 0;
    r->cancel_at = below(l, 3) == 0 ? below(l, (uint32_t)s.max_tokens) : UINT64_MAX;
}

/* Reads what there is; whether it has ended. */
static bool has_ended(struct load_of_requests *l, struct request *r)
{
    struct engine_next next;
    struct error error;
    if (r->from >= r->cancel_at) {
        CHECK(engine_cancel(l->client, r->id, &error) == 0, "%s", error.text);
        r->cancel_at = UINT64_MAX;
        l->cancelled++;
    }
    CHECK(engine_next(l->client, r->id, r->from, 20, &next, &error) == 0, "%s", error.text);
    r->from = next.next;
    bool done = next.done;
    CHECK(!done || next.failure.code == ERR_NONE, "%s", next.failure.text);
    engine_next_free(&next);
    return done;
}

/* `count` requests, TOGETHER of them at a time. */
static void send(struct load_of_requests *l, uint32_t count)
{
    uint32_t sent = 0, running = 0;
    uint64_t deadline = deadline_in(END_MS + count * 10000);
    while (sent < count || running > 0) {
        CHECK(deadline_tick(deadline), "%u of %u requests have ended", l->ended, count);
        for (uint32_t i = 0; i < TOGETHER; i++) {
            struct request *r = &l->request[i];
            if (r->id == 0 && sent < count) {
                submit(l, r);
                sent++;
                running++;
            } else if (r->id != 0 && has_ended(l, r)) {
                r->id = 0;
                running--;
                l->ended++;
            }
        }
    }
}

static const char *const services[] = {"compute", "cache", "loader", "predictor"};

static const char *name_of(size_t i)
{
    return i < ARRAY_LEN(services) ? services[i] : "supervisor";
}

#define PROCESSES (ARRAY_LEN(services) + 1)

static void private_bytes(struct engine *e, uint64_t bytes[PROCESSES])
{
    for (size_t i = 0; i < ARRAY_LEN(services); i++)
        bytes[i] = process_private_bytes(engine_pid(e, services[i], 0, 0));
    bytes[ARRAY_LEN(services)] = process_private_bytes(e->pid);
}

static void open_load(struct load_of_requests *l, struct engine *e)
{
    struct error error;
    memset(l, 0, sizeof *l);
    random_seed(&l->random, 17, 0);
    l->client = engine_client_open(e->run, &error);
    CHECK(l->client, "%s", error.text);
}

static char model[PATH_MAX]; /* "": the demo model */

static void start(struct engine *e, const char *budget, const char *keep)
{
    const char *options[16] = {"--ctx-size=2048", "--parallel=16", "--checkpoint-tokens=64", budget,
                               keep};
    size_t n = 5;
    if (model[0]) {
        options[n++] = "-m";
        options[n++] = model;
    }
    if (e->cgroup[0])
        options[n++] = "--cgroup=off";
    engine_start(e, options);
}

/* The smallest budget that these sequences run with leaves few experts resident. */
static const char *small_budget(const char *keep)
{
    static char option[48];
    struct engine *e = engine_new();
    start(e, "--cgroup=off", keep);
    json_t *doc = engine_stats(e);
    uint64_t least = lookup_u64(doc, "memory.min_budget_bytes");
    json_decref(doc);
    engine_stop(e);
    snprintf(option, sizeof option, "--budget=%" PRIu64, align_up(least + 6 * MIB, PAGE_BYTES));
    return option;
}

static uint32_t count_of_requests(void)
{
    return test_amount(AMOUNT_pool_requests);
}

static void requests_leave_memory(void)
{
    struct load_of_requests l;
    uint64_t before[PROCESSES], after[PROCESSES], deadline;
    struct engine *e = engine_new();
    model[0] = 0;
    start(e, small_budget("--keep-kv=0"), "--keep-kv=0");
    open_load(&l, e);
    send(&l, WARM);
    private_bytes(e, before);
    send(&l, count_of_requests());
    deadline = deadline_in(END_MS);
    while (engine_counter(e, "compute", "kv_bytes") > 0)
        CHECK(deadline_tick(deadline), "the pool still has %llu bytes",
              (unsigned long long)engine_counter(e, "compute", "kv_bytes"));
    private_bytes(e, after);
    for (size_t i = 0; i < PROCESSES; i++)
        CHECK(after[i] <= before[i] + SLACK_BYTES, "%s has grown from %llu to %llu bytes",
              name_of(i), (unsigned long long)before[i], (unsigned long long)after[i]);
    CHECK(l.cancelled > 0 && engine_counter(e, "compute", "sequences_cancelled") > 0,
          "no request was cancelled");
    CHECK(engine_counter(e, "compute", "sequences_failed") == 0, "a request failed");
    rpc_client_close(l.client);
    engine_stop(e);
}

/* s: of the whole engine. */
static void send_with_prefixes(struct engine *e, struct sampler *s)
{
    struct load_of_requests l;
    uint64_t samples;
    open_load(&l, e);
    send(&l, count_of_requests());
    json_t *doc = engine_stats(e);
    uint64_t budget = lookup_u64(doc, "memory.budget_bytes"), peak = sampler_peak(s, &samples);
    uint64_t planned =
        lookup_u64(doc, "memory.plan.kv_bytes") + lookup_u64(doc, "memory.plan.kv_spare_bytes");
    json_decref(doc);
    test_note("at most %llu bytes in %llu samples, budget %llu", (unsigned long long)peak,
              (unsigned long long)samples, (unsigned long long)budget);
    CHECK(samples > 10 && peak <= budget, "%llu bytes are used of %llu", (unsigned long long)peak,
          (unsigned long long)budget);
    CHECK(engine_counter(e, "compute", "kv_bytes") <= planned, "the pool is too large");
    CHECK(engine_counter(e, "compute", "kv_kept_entries") > 1, "nothing is kept");
    CHECK(engine_counter(e, "compute", "tokens_reused") > 0, "nothing is reused");
    sampler_stop(s);
    rpc_client_close(l.client);
    engine_stop(e);
}

static void with_prefixes(void)
{
    struct engine *e = engine_new();
    start(e, small_budget("--keep-kv=1GiB"), "--keep-kv=1GiB");
    send_with_prefixes(e, sampler_start_processes(e));
}

/* What the kernel counts: without a limit, which would keep the use below the budget. After the
 * start, which scenario_budget measures: until then the kernel has what it read of the programs. */
static void with_prefixes_in_a_cgroup(void)
{
    struct engine *e = engine_new();
    const char *budget = small_budget("--keep-kv=1GiB");
    cgroup_make(e->cgroup);
    engine_use_fresh_programs(e);
    start(e, budget, "--keep-kv=1GiB");
    send_with_prefixes(e, sampler_start(e->cgroup));
}

static void sixteen_with_prefixes(void)
{
    model[0] = 0;
    with_prefixes();
}

static void sixteen_in_a_cgroup(void)
{
    model[0] = 0;
    with_prefixes_in_a_cgroup();
}

static void sixteen_with_states(void)
{
    continued_make(model, stored_qwen35moe);
    with_prefixes();
}

static void sixteen_with_states_in_a_cgroup(void)
{
    continued_make(model, stored_qwen35moe);
    with_prefixes_in_a_cgroup();
}

static uint64_t planned_bytes(struct engine *e, const char *key)
{
    json_t *doc = engine_stats(e);
    uint64_t bytes = lookup_u64(doc, key);
    json_decref(doc);
    return bytes;
}

/* Prompts that begin differently, one after another; returns how many of their tokens were kept. */
static uint64_t ask_some(struct engine *e, uint32_t count, size_t tokens, struct text *text,
                         const struct text *want)
{
    uint64_t cached = 0;
    for (uint32_t i = 0; i < count; i++) {
        char prompt[8192];
        snprintf(prompt, sizeof prompt, "%u times. %s %s", i, test_prompt(2), test_prompt(2));
        engine_generate(e, prompt, tokens, &text[i]);
        cached += lookup_u64(text[i].stats, "cached_tokens");
        if (want)
            text_check_same(&want[i], &text[i], "with memory beside the pool");
    }
    return cached;
}

static void free_some(struct text *text, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        text_free(&text[i]);
}

static uint64_t ask_all(struct engine *e, struct text text[CONVERSATIONS], const struct text *want)
{
    return ask_some(e, CONVERSATIONS, 20, text, want);
}

static void free_all(struct text text[CONVERSATIONS])
{
    free_some(text, CONVERSATIONS);
}

static void change_budget(struct engine *e, uint64_t bytes)
{
    json_decref(engine_control(e, "budget", json_pack("{s:I}", "bytes", (json_int_t)bytes)));
    uint64_t deadline = deadline_in(END_MS);
    while (planned_bytes(e, "memory.budget_bytes") != bytes)
        CHECK(deadline_tick(deadline), "the budget is not in effect");
}

/* Now all experts have memory; returns a budget, now in effect, that gives them about half of it.
 * Which one that is depends on what processes and libraries take on this machine. */
static uint64_t shrink_until_experts_lack(struct engine *e)
{
    uint64_t all = planned_bytes(e, "memory.arena_quota_bytes"), budget = 52 << 20;
    do {
        budget -= 2 << 20;
        change_budget(e, budget);
    } while (planned_bytes(e, "memory.arena_quota_bytes") > all / 2);
    return budget;
}

/* Waits until prefixes have, beside the pool, only what experts lend (below). */
static void wait_kept_is_lent(struct engine *e, uint64_t pool)
{
    uint64_t spare, lent, has, deadline = deadline_in(END_MS);
    do {
        has = engine_counter(e, "compute", "kv_bytes");
        json_t *doc = engine_stats(e);
        spare = lookup_u64(doc, "memory.plan.kv_spare_bytes");
        lent = lookup_u64(doc, "memory.plan.kv_lent_bytes");
        json_decref(doc);
        CHECK(deadline_tick(deadline),
              "%llu bytes are kept, the pool has %llu, beside it %llu, experts lend %llu",
              (unsigned long long)has, (unsigned long long)pool, (unsigned long long)spare,
              (unsigned long long)lent);
    } while (has == 0 || spare > lent || has > pool + lent);
}

/* Conversations that are several times the pool are kept where all experts have memory. A smaller
 * budget takes that back for the experts; the texts are the same. */
static void spare_memory(void)
{
    struct text first[CONVERSATIONS], again[CONVERSATIONS];
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--ctx-size=512", "--budget=256MiB", NULL});
    ask_all(e, first, NULL);
    uint64_t cached = ask_all(e, again, first), has = engine_counter(e, "compute", "kv_bytes");
    free_all(again);
    uint64_t pool = planned_bytes(e, "memory.plan.kv_bytes");
    test_note("%llu bytes are kept, the pool has %llu; %llu tokens were kept",
              (unsigned long long)has, (unsigned long long)pool, (unsigned long long)cached);
    CHECK(has > 2 * pool && cached > CONVERSATIONS * 100, "no spare memory is used");
    uint64_t budget = shrink_until_experts_lack(e);
    wait_kept_is_lent(e, pool);
    CHECK(ask_all(e, again, first) < cached, "as much was kept as before");
    CHECK(planned_bytes(e, "memory.used_bytes") <= budget, "more than the budget is used");
    free_all(first);
    free_all(again);
    engine_stop(e);
}

/* ---- memory of experts ---- */

#define FEW   4u /* conversations, of which the pool holds two */
#define SHORT 2u /* tokens of an answer */

static uint64_t ask_few(struct engine *e, struct text text[FEW], const struct text *want)
{
    return ask_some(e, FEW, SHORT, text, want);
}

/* About half of the experts are resident: processes take less than what is planned before they can
 * be measured. */
static struct engine *start_with_half(const char *const options[])
{
    static char budget[48];
    struct command c;
    struct engine *e = engine_new();
    const char *args[16] = {"--ctx-size=512", budget};
    size_t n = 2;
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){"run", "-m", test_model(), "--ctx-size=512", "--print-memory", NULL});
    json_t *doc = json_loads(c.out, 0, NULL);
    snprintf(budget, sizeof budget, "--budget=%" PRIu64, lookup_u64(doc, "budgets.25"));
    json_decref(doc);
    command_free(&c);
    for (size_t i = 0; options[i]; i++)
        args[n++] = options[i];
    engine_start(e, args);
    return e;
}

static uint64_t lent_bytes(struct engine *e)
{
    return planned_bytes(e, "memory.plan.kv_lent_bytes");
}

static void check_peak(struct engine *e, struct sampler *s)
{
    uint64_t samples, budget = planned_bytes(e, "memory.budget_bytes");
    uint64_t peak = sampler_peak(s, &samples);
    CHECK(samples > 10 && peak <= budget, "%llu bytes are used of %llu", (unsigned long long)peak,
          (unsigned long long)budget);
}

/* Conversations that come back are kept in memory of experts, because it takes longer to compute
 * them than to read what experts lack. A smaller budget, and a kill of compute, change no text. */
static void experts_lend(void)
{
    struct text first[FEW], again[FEW];
    struct engine *e = start_with_half((const char *const[]){NULL});
    struct sampler *s = sampler_start_processes(e);
    ask_few(e, first, NULL);
    CHECK(lent_bytes(e) == 0, "memory is lent before anything comes back");
    uint64_t cached = 0, quota = planned_bytes(e, "memory.arena_quota_bytes");
    uint64_t deadline = deadline_in(2 * END_MS);
    for (unsigned round = 0; cached < FEW * 150; round++) {
        cached = ask_few(e, again, first);
        free_some(again, FEW);
        CHECK(deadline_tick(deadline), "%llu tokens were kept after %u rounds, %llu bytes are lent",
              (unsigned long long)cached, round, (unsigned long long)lent_bytes(e));
    }
    test_note("%llu bytes are lent, %llu tokens were kept", (unsigned long long)lent_bytes(e),
              (unsigned long long)cached);
    CHECK(lent_bytes(e) > 0 && planned_bytes(e, "memory.arena_quota_bytes") < quota,
          "experts have as much as before");
    CHECK(engine_counter(e, "compute", "kv_bytes") > planned_bytes(e, "memory.plan.kv_bytes"),
          "it is not used");
    check_peak(e, s);
    continued_kill(e, engine_pid(e, "compute", 0, 0));
    CHECK(ask_few(e, again, first) >= FEW * 150, "lent memory is lost with compute");
    free_some(again, FEW);
    check_peak(e, s);
    uint64_t less = planned_bytes(e, "memory.min_budget_bytes") + 2 * MIB;
    json_decref(engine_control(e, "budget", json_pack("{s:I}", "bytes", (json_int_t)less)));
    while (planned_bytes(e, "memory.budget_bytes") != less)
        CHECK(deadline_tick(deadline), "the budget is not in effect");
    CHECK(planned_bytes(e, "memory.used_bytes") <= less, "more than the budget is used");
    ask_few(e, again, first);
    free_some(again, FEW);
    free_some(first, FEW);
    sampler_stop(s);
    engine_stop(e);
}

/* None for conversations that never come back, however many there are. */
static void experts_lend_nothing(void)
{
    struct engine *e = start_with_half((const char *const[]){NULL});
    struct sampler *s = sampler_start_processes(e);
    struct text text;
    for (uint32_t i = 0; i < 3 * CONVERSATIONS; i++) {
        char prompt[8192];
        snprintf(prompt, sizeof prompt, "%u: %s %s", i * 17, test_prompt(2), test_prompt(2));
        engine_generate(e, prompt, 20, &text);
        text_free(&text);
        CHECK(engine_counter(e, "compute", "kv_wanted_bytes") == 0, "memory is wished for");
    }
    CHECK(engine_counter(e, "compute", "kv_kept_evictions") > 0, "nothing was given up");
    CHECK(engine_counter(e, "compute", "experts_step_ns") > 0, "no expert was waited for");
    CHECK(lent_bytes(e) == 0, "memory is lent");
    check_peak(e, s);
    sampler_stop(s);
    engine_stop(e);
}

/* Nor where experts save more with it: they are read slowly, and answers are long. */
static void dear_experts_lend_nothing(void)
{
    struct engine *e = start_with_half((const char *const[]){"--throttle=64MB", NULL});
    struct text text;
    uint64_t lost = 0;
    for (uint32_t i = 0; i < 5; i++) {
        char prompt[8192];
        snprintf(prompt, sizeof prompt, "%u: %s %s", i % 3, test_prompt(2), test_prompt(2));
        engine_generate(e, prompt, 150, &text);
        text_free(&text);
    }
    lost = engine_counter(e, "compute", "kv_step_ns");
    test_note("a step of memory saves experts %llu ns, prefixes %llu ns",
              (unsigned long long)engine_counter(e, "compute", "experts_step_ns"),
              (unsigned long long)lost);
    CHECK(lost > 0, "nothing came back");
    CHECK(engine_counter(e, "compute", "kv_wanted_bytes") == 0, "memory is wished for");
    CHECK(lent_bytes(e) == 0, "memory is lent");
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(requests_leave_memory),
        ROW(sixteen_with_prefixes),
        ROW(sixteen_in_a_cgroup),
        ROW(sixteen_with_states),
        ROW(sixteen_with_states_in_a_cgroup),
        ROW(spare_memory),
        ROW(experts_lend),
        ROW(experts_lend_nothing),
        ROW(dear_experts_lend_nothing),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
