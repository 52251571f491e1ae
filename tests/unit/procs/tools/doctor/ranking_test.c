/* SPDX-License-Identifier: Apache-2.0 */
/* Section "auto" of doctor: the ranking from a plan and from the supervisor's list of
 * candidates. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/plan/plan.h"
#include "lib/policy/presets/auto.h"
#include "lib/policy/presets/presets.h"
#include "procs/tools/doctor/doctor.h"

static uint32_t candidate(const char *name)
{
    uint32_t c = 0;
    while (strcmp(preset_at(auto_preset(c))->name, name) != 0)
        ck_assert_uint_lt(++c, auto_candidates());
    return c;
}

static void predict(struct plan *plan, const char *name, double ns)
{
    for (uint32_t s = 0; s < PLAN_AUTO_SHARES; s++)
        for (uint32_t d = 0; d < PLAN_AUTO_BANDWIDTHS; d++)
            plan_auto_ns(plan)[plan_auto_at(s, d, candidate(name))] = (float)ns;
}

/* hobbit takes 1 ms and loses up to 2 %, lod 5, auto-noprefetch 6. */
static void plan_file(char path[64])
{
    static const uint8_t hash[PLAN_HASH_BYTES] = {1};
    struct error error;
    struct plan *plan = plan_create(2, 4, 2, hash, plan_array_bit(PLAN_ARRAY_auto_ns), 0, &error);
    ck_assert_ptr_nonnull(plan);
    predict(plan, "hobbit", 1e6);
    predict(plan, "lod", 5e6);
    predict(plan, "auto-noprefetch", 6e6);
    plan->scalar[PLAN_hobbit_loss_high] = 0.02;
    snprintf(path, 64, "/tmp/sluice-ranking.XXXXXX");
    close(mkstemp(path));
    ck_assert_int_eq(plan_write(plan, path, &error), 0);
    free(plan);
}

static const struct candidates {
    const char *names[4];
    const char *hobbit_why; /* NULL: it can run */
    double max_loss;        /* per cent */
    const char *ranking;
    const char *chosen, *rejected; /* why hobbit is rejected; "": it is not */
} cases[] = {
    {{"auto-noprefetch", "lod", "hobbit"}, NULL, 2, "hobbit lod auto-noprefetch ", "hobbit", ""},
    {{"hobbit", "lod", "auto-noprefetch"}, NULL, 2, "hobbit lod auto-noprefetch ", "hobbit", ""},
    {{"lod", "hobbit", "auto-noprefetch"},
     "needs two precisions",
     2,
     "lod auto-noprefetch ",
     "lod",
     "needs two precisions"},
    {{"hobbit", "auto-noprefetch", "lod"},
     NULL,
     1.9,
     "lod auto-noprefetch ",
     "lod",
     "above --max-loss"},
    {{"auto-noprefetch", "hobbit", "a newer one"},
     NULL,
     0,
     "auto-noprefetch ",
     "auto-noprefetch",
     "above --max-loss"},
    {{"lod", "auto-noprefetch"}, NULL, 2, "lod auto-noprefetch ", "lod", "does not know"},
};

static json_t *estimate_of(const struct candidates *c)
{
    json_t *all = json_array();
    for (size_t i = 0; i < ARRAY_LEN(c->names) && c->names[i]; i++) {
        json_t *one = json_pack("{s:s}", "preset", c->names[i]);
        if (c->hobbit_why && strcmp(c->names[i], "hobbit") == 0)
            json_object_set_new(one, "why", json_string(c->hobbit_why));
        json_array_append_new(all, one);
    }
    return json_pack("{s:I, s:{s:f, s:o}}", "budget", (json_int_t)GIB, "auto", "share", 0.25,
                     "candidates", all);
}

/* The supervisor's list is looked up by name, in any order, with more or fewer candidates. */
START_TEST(candidates_by_name)
{
    const struct candidates *c = &cases[_i];
    struct params params = {.max_loss = c->max_loss};
    struct host_facts a = {.chunk_bytes = MIB, .read_bytes_per_s = {1e9, 1e9, 1e9, 1e9, 1e9}};
    struct model_facts m = {.experts_used = 2, .expert_count = 8, .expert_bytes = 8 * MIB};
    struct findings f;
    char path[64], names[200] = "";
    size_t i;
    const json_t *row;
    const char *why = "";
    plan_file(path);
    snprintf(params.plan, sizeof params.plan, "%s", path);
    json_t *memory = estimate_of(c);
    findings_open(&f);
    ranking_report(&f, &m, &a, &params, memory);
    const json_t *section = json_object_get(f.root, "auto");
    json_array_foreach(json_object_get(section, "ranking"), i, row)
    {
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s ",
                 json_string_value(json_object_get(row, "preset")));
    }
    json_array_foreach(json_object_get(section, "rejected"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "preset")), "hobbit") == 0)
            why = json_string_value(json_object_get(row, "why"));
    }
    ck_assert_str_eq(names, c->ranking);
    ck_assert_str_eq(json_string_value(json_object_get(section, "chosen")), c->chosen);
    ck_assert_msg(*c->rejected ? strstr(why, c->rejected) != NULL : !*why, "%s", why);
    findings_close(&f);
    json_decref(memory);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranking");
    TCase *t = tcase_create("ranking");
    tcase_add_loop_test(t, candidates_by_name, 0, (int)ARRAY_LEN(cases));
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
