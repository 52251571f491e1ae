/* SPDX-License-Identifier: Apache-2.0 */
/* Masked routing in the core: an expert is evicted between routing and its pin. The token is routed
 * again, and the result is bit-identical to a run in which the expert was never in the mask. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model/limits.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define CONTEXT    16
#define TOKEN      100
#define TAKEN_FROM 3 /* the layer that loses an expert */
#define TAKEN_RANK 1

struct world {
    struct image image;
    struct weights_source file;
    bool gone[MODEL_EXPERTS_MAX]; /* of layer TAKEN_FROM */
    bool take;                    /* evict one at the next pin */
    uint32_t taken;               /* the evicted expert */
    uint32_t pins, unpins, lost;
};

static bool mask(void *self, const struct expert_step *step, bool *allowed)
{
    const struct world *w = self;
    for (uint32_t i = 0; i < w->image.model->hparams.experts; i++)
        allowed[i] = step->layer != TAKEN_FROM || !w->gone[i];
    return true;
}

static void pin(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count)
{
    struct world *w = self;
    for (uint32_t i = 0; i < count; i++) {
        if (w->take && step->layer == TAKEN_FROM && items[i]->rank == TAKEN_RANK) {
            w->take = false;
            w->taken = items[i]->expert;
            w->gone[w->taken] = true;
            items[i]->state = ITEM_LOST;
            w->lost++;
            continue;
        }
        w->file.pin(w->file.self, step, &items[i], 1);
        w->pins++;
    }
}

static void unpin(void *self, const struct expert_step *step, struct expert_item *item)
{
    struct world *w = self;
    w->file.unpin(w->file.self, step, item);
    w->unpins++;
}

static const void *dense(void *self, uint32_t entry)
{
    struct world *w = self;
    return w->file.dense(w->file.self, entry);
}

static uint64_t pin_limit(void *self)
{
    struct world *w = self;
    return w->file.pin_limit(w->file.self);
}

static bool resident(void *self, uint32_t layer, uint32_t expert)
{
    struct world *w = self;
    return w->file.resident(w->file.self, layer, expert);
}

static int wait(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count, struct error *error)
{
    struct world *w = self;
    return w->file.wait(w->file.self, step, items, count, error);
}

/* Logits of one token at position 0; caller frees. */
static float *forward(struct world *w)
{
    struct error error;
    uint32_t token = TOKEN, vocab = w->image.model->hparams.vocab;
    struct core_config config = {.model = w->image.model,
                                 .ops = kernel_ops_select("auto"),
                                 .source = {.self = w,
                                            .dense = dense,
                                            .pin_limit = pin_limit,
                                            .resident = resident,
                                            .pin = pin,
                                            .wait = wait,
                                            .unpin = unpin,
                                            .mask = mask},
                                 .threads = 2,
                                 .chunk = 4,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_INDEX)};
    struct core *core = core_create(&config, &error);
    ck_assert_msg(core != NULL, "%s", error.text);
    struct core_sequence sequence = image_sequence(&w->image);
    ck_assert_int_eq(core_forward(core, &sequence, &token, 0, 1, &error), 0);
    float *logits = malloc(vocab * sizeof *logits);
    ck_assert_ptr_nonnull(logits);
    memcpy(logits, core_output(core, 0, 1), vocab * sizeof *logits);
    core_destroy(core);
    return logits;
}

START_TEST(routed_again)
{
    static struct world w;
    image_open(&w.image, golden_demo_path(), CONTEXT);
    w.file = image_source(&w.image);
    size_t bytes = w.image.model->hparams.vocab * sizeof(float);
    float *whole = forward(&w);
    w.take = true;
    float *lost = forward(&w);
    ck_assert_uint_eq(w.lost, 1);
    ck_assert_uint_eq(w.pins, w.unpins); /* the pins of the first routing were released */
    float *never = forward(&w);          /* still evicted */
    ck_assert_uint_eq(w.lost, 1);
    ck_assert_msg(memcmp(lost, never, bytes) == 0, "routing again is not routing without it");
    ck_assert_msg(memcmp(lost, whole, bytes) != 0, "the expert that was taken away did not matter");
    free(whole);
    free(lost);
    free(never);
    image_close(&w.image);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lost");
    TCase *c = tcase_create("lost");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, routed_again);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
