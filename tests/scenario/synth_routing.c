/* SPDX-License-Identifier: Apache-2.0 */
/* A file of `synth`, run by `bench`, uses its experts again as often as recordings of real models
 * with as many experts (tests/traces): hits of LRU where a quarter of the experts fits. */
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "tests/harness/internal.h"

#define END_MS 120000

static json_t *json_of(const struct command *c)
{
    CHECK(c->status == 0, "status %d: %.400s", c->status, c->err);
    json_t *doc = json_loads(c->out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "not JSON: %.200s", c->out);
    return doc;
}

static void reuse_as_recorded(void)
{
    /* Hits of LRU, in percent, in the recording of a model, of accesses after the first quarter of
     * its tokens (bench warms up on others, so that nothing is used for the first time). */
    static const struct {
        const char *experts, *used;
        double hits; /* as tests/unit/lib/trace/import/recorded_test.c has them */
    } models[] = {
        {"experts=64", "experts_used=8", 58.2},  /* OLMoE */
        {"experts=128", "experts_used=6", 84.1}, /* Qwen3-30B */
        {"experts=256", "experts_used=8", 73.5}, /* Kimi */
    };
    unsigned met = 0;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        struct command c;
        if (!test_sample(EVERY_synth_routings, &met))
            continue;
        char path[PATH_MAX];
        path_in_dir(path, "routing.gguf");
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"synth", "-q", "-o", path, "tiny", "arch=qwen3moe",
                                          "hidden=256", "layers=6", "expert_inner=32",
                                          "vocab=50304", models[i].experts, models[i].used, NULL});
        CHECK(c.status == 0, "status %d: %.400s", c.status, c.err);
        command_free(&c);
        command_run(&c, NULL, END_MS,
                    (const char *const[]){"bench", "-m", path, "-p", "0", "-n", "150", "-r", "1",
                                          "--preset", "lod", "--resident-experts", "25", "-o",
                                          "json", NULL});
        json_t *doc = json_of(&c);
        const json_t *variant = json_array_get(json_object_get(doc, "variants"), 0);
        const json_t *test = json_array_get(json_object_get(variant, "tests"), 0);
        double hits = json_number_value(json_object_get(test, "hit_percent"));
        double ratio = (100 - hits) / (100 - models[i].hits);
        CHECK(ratio > 1 / 1.25 && ratio < 1.25, "%s: %.1f %% hits instead of %.1f",
              models[i].experts, hits, models[i].hits);
        json_decref(doc);
        command_free(&c);
        CHECK(unlink(path) == 0, "cannot remove %s", path);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {{"reuse_as_recorded", reuse_as_recorded}};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
