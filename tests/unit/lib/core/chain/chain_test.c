/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of cores: every architecture has the bits of one core, in logits and in all that the
 * source of weights gets, wherever its layers are divided. On two checked devices each part is
 * given only its own weights, keys and states, and no device is used while the thread has entered
 * another one. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "tests/golden/reference.h"
#include "tests/unit/lib/device/run.h"

static uint32_t models, splits;

static uint64_t hash_of(struct image *image, const struct chain_part *parts, uint32_t count,
                        bool masked)
{
    struct run run = {.image = image,
                      .device = parts[0].device,
                      .parts = parts,
                      .part_count = count,
                      .masked = masked,
                      .chunk = 5,
                      .single = 2};
    return run_hash(&run);
}

static void check_split(struct image *image, const struct chain_part *parts, uint32_t count,
                        uint64_t want, const char *name)
{
    uint64_t have = hash_of(image, parts, count, models % 2 == 0);
    splits++;
    ck_assert_msg(want == have, "%s: other results with %u parts, the first of %u layers", name,
                  count, parts[0].layers);
}

static void check_devices(struct image *image, uint64_t want, const char *name)
{
    uint32_t layers = image->model->hparams.layers, first = 1 + models % (layers - 1);
    struct chain_part parts[2] = {{.layers = first}, {.layers = layers - first}};
    for (int i = 0; i < 2; i++)
        parts[i].device = checked_device(kernel_ops_select("auto"), 2);
    check_split(image, parts, 2, want, name);
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(checked_faults(parts[i].device) == 0, "%s, part %d: %u faults, first: %s",
                      name, i, checked_faults(parts[i].device), checked_fault(parts[i].device));
        bool embeds = checked_count(parts[i].device, DEVICE_OP_embed) > 0;
        bool table = image->model->hparams.ngram_size > 0; /* whose rows are embedded, too */
        ck_assert_msg((embeds == (i == 0) || table) &&
                          (checked_count(parts[i].device, DEVICE_OP_logits) > 0) == (i == 1),
                      "%s, part %d: what the other one has", name, i);
        parts[i].device->ops->destroy(parts[i].device);
    }
}

static void check_model(const char *path, const char *name)
{
    struct image image;
    if (strcmp(name, "demo") == 0) /* its layers are those of another one */
        return;
    models++;
    image_open(&image, path, RUN_CONTEXT);
    uint32_t layers = image.model->hparams.layers;
    struct chain_part parts[CHAIN_PARTS_MAX] = {{.layers = layers}};
    uint64_t want = hash_of(&image, parts, 1, models % 2 == 0);
    for (uint32_t first = 1; first < layers; first++) {
        parts[0].layers = first;
        parts[1].layers = layers - first;
        check_split(&image, parts, 2, want, name);
    }
    if (layers > 2 && layers <= CHAIN_PARTS_MAX) {
        for (uint32_t i = 0; i < layers; i++)
            parts[i].layers = 1;
        check_split(&image, parts, layers, want, name);
    }
    if (layers > 1)
        check_devices(&image, want, name);
    image_close(&image);
}

START_TEST(every_architecture)
{
    golden_models(check_model);
    check_model(golden_path("converted/qwen4exp-base.gguf"), "qwen4exp");
    check_model(golden_path("converted/qwen4exp-no_table.gguf"), "qwen4exp without a table");
    check_model(golden_path("converted/qwen4exp-few.gguf"), "qwen4exp with few positions");
    check_model(golden_path("converted/glm5-next-base.gguf"), "glm5-next");
    check_model(golden_path("converted/deepseek4-base.gguf"), "deepseek4");
    ck_assert_msg(models > 30 && splits > 2 * models, "%u models, %u splits", models, splits);
}
END_TEST

/* The smallest chunk is that of all. */
START_TEST(smallest_chunk)
{
    struct image image;
    struct error error;
    image_open(&image, golden_path("arch/qwen3moe_a.gguf"), RUN_CONTEXT);
    struct core_config config = {.model = image.model,
                                 .ops = kernel_ops_select("auto"),
                                 .source = image_source(&image),
                                 .threads = 1,
                                 .chunk = 8,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    uint32_t layers = image.model->hparams.layers;
    struct chain_part parts[] = {{.layers = 1}, {.layers = layers - 1, .scratch_limit = 1}};
    struct chain *chain = chain_create(&config, parts, ARRAY_LEN(parts), &error);
    ck_assert_msg(chain != NULL, "%s", error.text);
    ck_assert_uint_eq(chain_rows(chain), 1);
    ck_assert_uint_gt(chain_scratch_bytes(chain), 0);
    chain_destroy(chain);
    image_close(&image);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core_chain");
    TCase *c = tcase_create("core_chain");
    tcase_set_timeout(c, 280);
    tcase_add_test(c, every_architecture);
    tcase_add_test(c, smallest_chunk);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
