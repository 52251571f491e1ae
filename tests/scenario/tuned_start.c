/* SPDX-License-Identifier: Apache-2.0 */
/* A start that finds a tuning whose preset cannot run with its options is served by another one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "lib/plan/plan.h"
#include "lib/tunings/tunings.h"
#include "tests/scenario/fixtures.h"
#include "tests/scenario/tuned.h"

/* A tuning of the demo model for a budget that holds most of its experts: the preset drop, whose
 * loss was measured with nearly all of them. */
static void record_a_tuning(void)
{
    static struct tuning t;
    uint8_t hash[TUNINGS_HASH_BYTES];
    char directory[PATH_MAX];
    struct error error;
    plan_make(t.plan, "drop.plan", 0);
    struct plan *plan = plan_read(t.plan, &error);
    CHECK(plan, "%s", error.text);
    plan->scalar[PLAN_drop_loss_high] = 0.02;
    plan->scalar[PLAN_drop_t2] = 0.5;
    plan->scalar[PLAN_drop_share] = 0.9;
    CHECK(plan_write(plan, t.plan, &error) == 0, "%s", error.text);
    free(plan);
    store_pack(t.store, "demo.gguf.tuned-0123456789abcdef", "native,int2");
    CHECK(realpath(test_model(), t.model), "%s", test_model());
    t.model_bytes = t.store_bytes = 1;
    t.max_loss = t.loss_high = 2;
    t.budget = 53 * MIB;
    snprintf(t.preset, sizeof t.preset, "drop");
    CHECK(tunings_hash(t.model, hash, &error) == 0 &&
              tunings_directory(hash, directory, &error) == 0 &&
              tunings_write(directory, &t, &error) == 0,
          "%s", error.text);
}

static void starts_as(const char *budget, const char *preset)
{
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--max-loss=2", budget, NULL});
    json_t *status = engine_control(e, "status", NULL);
    CHECK(strcmp(lookup_text(status, "preset"), preset) == 0, "%s: preset %s", budget,
          lookup_text(status, "preset"));
    json_decref(status);
    engine_stop(e);
}

static void a_smaller_budget(void)
{
    struct command c;
    record_a_tuning();
    starts_as("--budget=70MiB", "drop");
    starts_as("--budget=40MiB", "auto");
    command_run(&c, NULL, END_MS,
                (const char *const[]){"generate", "-m", test_model(), "--max-loss=2",
                                      "--budget=40MiB", "-p", "a", "-n", "1", NULL});
    CHECK(c.status == 0 && strstr(c.err, "tuning: preset drop"), "status %d: %.900s", c.status,
          c.err);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(a_smaller_budget)};
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
