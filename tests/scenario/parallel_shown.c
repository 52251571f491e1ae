/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what programs show of several sequences: the number that `run` advises for its budget, and
 * the passes that `bench` counts. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/harness/harness.h"

#define END_MS 300000

/* ---- advice ---- */

/* What `run` prints: so many sequences of so many tokens, beside so many % of the experts. */
struct advice {
    unsigned parallel, sequences, tokens, percent;
};

static bool read_advice(struct engine *e, struct advice *a)
{
    char *log = engine_log(e), ending[2];
    const char *line = strstr(log, "--parallel ");
    bool found = line && sscanf(line,
                                "--parallel %u: keys and values of up to %u sequence%1[s ] of %u "
                                "tokens fit into the budget beside %u %%",
                                &a->parallel, &a->sequences, ending, &a->tokens, &a->percent) >= 4;
    free(log);
    return found;
}

static struct advice advice_of(uint64_t budget, unsigned tokens)
{
    char context_option[32], budget_option[48];
    struct advice a = {.percent = 0};
    struct engine *e = engine_new();
    snprintf(context_option, sizeof context_option, "--ctx-size=%u", tokens);
    snprintf(budget_option, sizeof budget_option, "--budget=%" PRIu64, budget);
    engine_start(e, (const char *const[]){context_option, budget_option, "--cgroup=off",
                                          "--prefill-chunk=32", NULL});
    uint64_t deadline = deadline_in(END_MS);
    while (!read_advice(e, &a))
        CHECK(deadline_tick(deadline), "the log has no advice");
    engine_stop(e);
    return a;
}

#define TOKENS     256
#define CONTEXTS   8 /* of TOKENS: the model's context */
#define BUDGETS    8
#define BUDGET_MIB 2
/* The measured memory of two engines differs by that of one or two contexts. */
#define LESS 1u
#define MORE 3u

/* A pool for about the number that the budget is said to hold leaves all experts in it, and a
 * larger one does not. The budget is one that holds some: measured processes need less than
 * estimated ones. */
static void advice(void)
{
    struct advice a = {.sequences = 0};
    json_t *doc =
        command_json(END_MS, (const char *const[]){"run", "--print-memory", "-m", test_model(),
                                                   "--ctx-size=256", "--prefill-chunk=32", NULL});
    CHECK(doc, "no estimate");
    uint64_t budget = lookup_u64(doc, "budgets.100") - BUDGETS * BUDGET_MIB * MIB;
    json_decref(doc);
    for (unsigned i = 0; i < 2 * BUDGETS && (a.percent < 100 || a.sequences < 3); i++) {
        budget += BUDGET_MIB * MIB;
        a = advice_of(budget, TOKENS);
        CHECK(a.parallel == 4 && a.tokens == TOKENS, "parallel %u, %u tokens", a.parallel,
              a.tokens);
    }
    test_note("%u sequences of %u tokens beside %u %% of the experts", a.sequences, a.tokens,
              a.percent);
    CHECK(a.sequences > 2 && a.sequences + MORE <= CONTEXTS, "%u sequences", a.sequences);
    CHECK(advice_of(budget, (a.sequences - LESS) * TOKENS).percent == 100, "%u fewer do not fit",
          LESS);
    CHECK(advice_of(budget, (a.sequences + MORE) * TOKENS).percent < 100, "%u more would fit",
          MORE);
}

/* ---- bench ---- */

/* `sluice bench` of sequences that decode together: every access is counted, and they share
 * passes. */
static void check_bench(const json_t *doc, size_t variant, uint64_t sequences)
{
    const json_t *tests =
        json_object_get(json_array_get(json_object_get(doc, "variants"), variant), "tests");
    const json_t *sample = json_array_get(json_object_get(json_array_get(tests, 0), "samples"), 0);
    uint64_t passes = lookup_u64(sample, "counters.compute.passes"),
             rows = lookup_u64(sample, "counters.compute.pass_rows");
    CHECK(lookup_u64(sample, "counters.compute.accesses") == 8 * 4 * 41 * sequences,
          "accesses are lost");
    CHECK(json_number_value(json_object_get(sample, "tokens")) == 41.0 * (double)sequences,
          "%g tokens", json_number_value(json_object_get(sample, "tokens")));
    CHECK(rows == 41 * sequences, "%" PRIu64 " rows", rows);
    CHECK(sequences == 1 ? passes == 41 : passes < rows, "%" PRIu64 " passes", passes);
}

static void bench(void)
{
    struct command c;
    command_run(&c, NULL, END_MS,
                (const char *const[]){"bench", "-m", test_model(), "-p", "0", "-n", "40", "-r", "1",
                                      "--parallel", "1,3", "-o", "json", NULL});
    CHECK(c.status == 0, "bench: status %d: %s", c.status, c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", c.out);
    check_bench(doc, 0, 1);
    check_bench(doc, 1, 3);
    json_decref(doc);
    command_free(&c);
    command_run(&c, NULL, END_MS,
                (const char *const[]){"bench", "-m", test_model(), "--parallel", "2",
                                      "--deterministic=on", NULL});
    CHECK(c.status == 2, "deterministic: status %d", c.status);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(advice),
        ROW(bench),
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
