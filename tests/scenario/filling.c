/* What is loaded without being asked for: the first filling of the room, and swapmoe's exchanges.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/model/plan.h"
#include "tests/harness/internal.h"
#include "tests/scenario/baseline.h"

#define WAIT_MS 60000

/* A plan for the demo model, with norms and frequencies that nobody measured. */
static void make_plan(char path[PATH_MAX])
{
    struct error error;
    struct model_index *m;
    uint8_t hash[PLAN_HASH_BYTES];
    int fd = open(test_model(), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "cannot open %s", test_model());
    CHECK(model_index_build(fd, test_model(), &m, &error) == 0, "%s", error.text);
    CHECK(plan_model_hash(m, fd, hash, &error) == 0, "%s", error.text);
    const struct model_hparams *h = &m->hparams;
    struct plan *plan = plan_create(
        h->layers, h->experts, h->experts_used, hash,
        plan_array_bit(PLAN_ARRAY_norm) | plan_array_bit(PLAN_ARRAY_frequency), 0, &error);
    CHECK(plan, "%s", error.text);
    for (uint32_t i = 0; i < h->layers * h->experts; i++) {
        plan_norm(plan)[i] = 1 + (float)(i % 7);
        plan_frequency(plan)[i] = (float)(i % 11) / 20;
    }
    snprintf(path, PATH_MAX, "%s/made.plan", test_dir());
    CHECK(plan_write(plan, path, &error) == 0, "%s", error.text);
    free(plan);
    free(m);
    close(fd);
}

static void start(struct engine *e, const char *experts, const char *a, const char *b)
{
    char path[PATH_MAX], option[PATH_MAX + 8];
    make_plan(path);
    snprintf(option, sizeof option, "--plan=%s", path);
    engine_start(e, (const char *const[]){option, experts, a, b, NULL});
}

static void wait_resident(struct engine *e, uint64_t wanted)
{
    uint64_t deadline = deadline_in(WAIT_MS), now;
    while ((now = engine_counter(e, "cache", "resident_entries")) < wanted)
        CHECK(deadline_tick(deadline), "%" PRIu64 " experts are resident, not %" PRIu64, now,
              wanted);
}

static void generate(struct engine *e, unsigned prompt)
{
    struct text got;
    engine_generate(e, test_prompt(prompt), BASELINE_TOKENS, &got);
    text_free(&got);
}

/* Everything is there before the first use, and nothing misses. */
static void everything(void)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--system=resident", NULL});
    wait_resident(e, 256);
    baseline_compare(e, 0, "filled at first");
    CHECK(engine_counter(e, "compute", "misses") == 0, "something was missing");
    engine_stop(e);
}

/* The room is filled, and nothing leaves for it. */
static void most_used(void)
{
    struct engine *e = engine_new();
    start(e, "--experts=25", "--knobs=warm=frequency,prediction=none,limit=none", NULL);
    wait_resident(e, 64);
    CHECK(engine_counter(e, "cache", "evictions") == 0, "something left");
    baseline_compare(e, 0, "filled with the most used");
    engine_stop(e);
}

static void wait_filled(struct engine *e)
{
    uint64_t deadline = deadline_in(WAIT_MS), before, now = 0;
    do { /* until a look at the figures later nothing has come */
        before = now;
        generate(e, 2);
        now = engine_counter(e, "cache", "resident_entries");
        CHECK(deadline_tick(deadline), "the room is still being filled");
    } while (now != before);
}

static void fixed_set(void)
{
    struct engine *e = engine_new();
    start(e, "--experts=50", "--system=pruned", NULL);
    wait_filled(e);
    uint64_t misses = engine_counter(e, "compute", "misses"),
             evictions = engine_counter(e, "cache", "evictions");
    generate(e, 0);
    CHECK(engine_counter(e, "compute", "misses") == misses, "routed to what is not there");
    CHECK(engine_counter(e, "cache", "evictions") == evictions, "the set changed");
    engine_stop(e);
}

static void exchanges(void)
{
    struct engine *e = engine_new();
    start(e, "--experts=50", "--system=swapmoe", "--knobs=interval=8");
    wait_filled(e);
    uint64_t misses = engine_counter(e, "compute", "misses"),
             late = engine_counter(e, "compute", "late"),
             swaps = engine_counter(e, "cache", "swaps"),
             resident = engine_counter(e, "cache", "resident_entries");
    uint64_t deadline = deadline_in(WAIT_MS);
    do {
        generate(e, 0);
        generate(e, 1);
        CHECK(deadline_tick(deadline), "nothing is exchanged");
    } while (engine_counter(e, "cache", "swaps") == swaps);
    test_note("%" PRIu64 " exchanges, %" PRIu64 " experts resident",
              engine_counter(e, "cache", "swaps"), resident);
    CHECK(engine_counter(e, "compute", "misses") == misses &&
              engine_counter(e, "compute", "late") == late,
          "something was waited for");
    uint64_t after = engine_counter(e, "cache", "resident_entries");
    CHECK(after <= resident + 1 && after + 1 >= resident, "%" PRIu64 " became %" PRIu64, resident,
          after);
    engine_stop(e);
}

int main(int argc, char **argv)
{
#define ROW(name)                                                                                  \
    {                                                                                              \
#name, name                                                                                \
    }
    static const struct test_case cases[] = {ROW(everything), ROW(most_used), ROW(fixed_set),
                                             ROW(exchanges)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
