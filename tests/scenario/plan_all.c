/* SPDX-License-Identifier: Apache-2.0 */
/* sluice plan of all presets: one whose budget is too small does not end the others; memory that is
 * too small for the program itself does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/plan/plan.h"
#include "tests/harness/internal.h"

#define END_MS 240000
#define TEXT   SLUICE_SOURCE_DIR "/launch/demo/calib.txt"

static char model[PATH_MAX], profiled[PATH_MAX], out[PATH_MAX];

static void run_ok(struct command *c, const char *const *args)
{
    command_run(c, NULL, END_MS, args);
    CHECK(c->status == 0, "%s: status %d: %.600s", args[0], c->status, c->err);
}

static void make_profile(void)
{
    struct command c;
    path_in_dir(model, "all.gguf");
    path_in_dir(profiled, "all.profile");
    path_in_dir(out, "all.plan");
    run_ok(&c, (const char *const[]){"synth", "-q", "-o", model, "tiny", "layers=3", "experts=16",
                                     "--type", "Q8_0", NULL});
    command_free(&c);
    run_ok(&c, (const char *const[]){"profile", "-m", model, "--text", TEXT, "-o", profiled,
                                     "--ctx-size", "32", "--tokens", "128", "--pair-mib", "1",
                                     "--importance-tokens", "32", NULL});
    command_free(&c);
}

#define PLAN                                                                                       \
    "plan", "-m", model, "--profile", profiled, "--text", TEXT, "--max-loss", "40%", "--tokens",   \
        "256", "--ctx-size", "32", "-o", out

/* An eighth of the experts are those of one token: masked routing needs one more. */
static void a_budget_for_some(void)
{
    struct command c;
    struct error error;
    make_profile();
    run_ok(&c, (const char *const[]){PLAN, "--resident-experts", "12.5%", NULL});
    CHECK(strstr(c.out, "swapmoe: not planned: 6 experts fit"), "%.2000s", c.out);
    command_free(&c);
    struct plan *plan = plan_read(out, &error);
    CHECK(plan, "%s", error.text);
    CHECK(plan_knows(plan, PLAN_edgemoe_loss_high) && plan_has(plan, PLAN_ARRAY_auto_ns) &&
              !plan_has(plan, PLAN_ARRAY_virtual_experts),
          "another plan");
    free(plan);
    command_run(
        &c, NULL, END_MS,
        (const char *const[]){PLAN, "--preset", "swapmoe", "--resident-experts", "12.5%", NULL});
    CHECK(c.status == 2 && strstr(c.err, "6 experts fit"), "status %d: %.600s", c.status, c.err);
    command_free(&c);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(a_budget_for_some)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
