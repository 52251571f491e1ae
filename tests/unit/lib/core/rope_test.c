/* SPDX-License-Identifier: Apache-2.0 */
/* Divisors of the rotary angles come from the file: only those above 0 are accepted, infinity among
 * them. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define WHICH 3 /* the divisor that is changed */

struct world {
    struct image image;
    struct weights_source file;
    uint32_t entry;
    float *divisors; /* instead of those of the file */
};

static const void *dense(void *self, uint32_t entry)
{
    struct world *w = self;
    return entry == w->entry ? w->divisors : w->file.dense(w->file.self, entry);
}

/* Whether a core is created with this divisor. */
static bool accepted(struct world *w, float divisor, struct error *error)
{
    struct core_config config = {.model = w->image.model,
                                 .ops = kernel_ops_select("auto"),
                                 .source = w->file,
                                 .threads = 1,
                                 .chunk = 4,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_INDEX)};
    config.source.self = w;
    config.source.dense = dense;
    w->divisors[WHICH] = divisor;
    *error = (struct error){0};
    struct core *core = core_create(&config, error);
    core_destroy(core);
    return core != NULL;
}

START_TEST(divisors)
{
    static struct world w;
    struct error error;
    image_open(&w.image, golden_path("arch/gemma4_a.gguf"), 4);
    w.file = image_source(&w.image);
    w.entry = model_entry_dense(w.image.model, w.image.model->hparams.layers, DENSE_ROPE_FREQS);
    ck_assert_uint_ne(w.entry, ENTRY_NONE);
    const struct model_entry *e = &model_index_entries(w.image.model)[w.entry];
    const struct model_tensor *t = &model_index_tensors(w.image.model)[e->extent[0].tensor];
    ck_assert_uint_gt(t->ne[0], WHICH);
    w.divisors = malloc(t->bytes);
    ck_assert_ptr_nonnull(w.divisors);
    memcpy(w.divisors, w.file.dense(w.file.self, w.entry), t->bytes);
    static const float right[] = {1, 1e-30f, 1e30f, INFINITY};
    static const float wrong[] = {0, -0.0f, -1, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++)
        ck_assert_msg(accepted(&w, right[i], &error), "%g: %s", (double)right[i], error.text);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(!accepted(&w, wrong[i], &error), "%g", (double)wrong[i]);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_msg(strstr(error.text, "divisor 3 of the rotary angles (rope_freqs.weight) is"),
                      "%s", error.text);
    }
    free(w.divisors);
    image_close(&w.image);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rope");
    TCase *c = tcase_create("rope");
    tcase_add_test(c, divisors);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
