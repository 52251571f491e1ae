/* SPDX-License-Identifier: Apache-2.0 */
/* Several sequences that decode in one pass: what the source gets of each row is what it gets of
 * that row alone, an expert is one item for all rows, and all layers of a pass have its number. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model/limits.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define CONTEXT   16
#define SEQUENCES 3

static const uint32_t first_token[SEQUENCES] = {100, 200, 300};

/* What the source got of one row. */
struct got {
    float *inputs, *logits; /* [layers][hidden], [layers][experts] */
    struct route *routes;   /* [layers][top_k] */
};

struct world {
    struct image image[SEQUENCES];
    struct weights_source file;
    struct got *got;       /* of row 0 of the pass */
    uint32_t rows;         /* of the pass */
    uint32_t pass;         /* its number */
    uint32_t pinned, next; /* items of a layer; calls of next_counts */
    struct route *routed;  /* of the current layer */
};

static struct world w;

static const struct model_hparams *hparams(void)
{
    return &w.image[0].model->hparams;
}

static void check_step(const struct expert_step *step)
{
    ck_assert(step->decode && !step->prefill);
    ck_assert_uint_eq(step->rows, w.rows);
    if (w.pass == 0)
        w.pass = step->pass;
    ck_assert_uint_eq(step->pass, w.pass);
}

static void gate_input(void *self, const struct expert_step *step, const float *x, uint32_t n)
{
    (void)self;
    check_step(step);
    for (uint32_t r = 0; r < step->rows; r++)
        memcpy(w.got[r].inputs + (size_t)step->layer * n, x + (size_t)r * n, n * sizeof *x);
}

static void logits(void *self, const struct expert_step *step, const float *x,
                   const struct model_router *rule)
{
    uint32_t experts = rule->experts;
    (void)self;
    for (uint32_t r = 0; r < step->rows; r++)
        memcpy(w.got[r].logits + (size_t)step->layer * experts, x + (size_t)r * experts,
               experts * sizeof *x);
}

static void routed(void *self, const struct expert_step *step, const struct route *routes)
{
    uint32_t k = hparams()->experts_used;
    (void)self;
    ck_assert_ptr_eq(step->routes, routes);
    for (uint32_t r = 0; r < step->rows; r++)
        memcpy(w.got[r].routes + (size_t)step->layer * k, routes + (size_t)r * k,
               k * sizeof *routes);
    memcpy(w.routed, routes, (size_t)step->rows * k * sizeof *routes);
    w.pinned = 0;
}

static void next_counts(void *self, const struct expert_step *step, const float *counts,
                        uint32_t experts)
{
    (void)self, (void)step, (void)counts, (void)experts;
    w.next++;
}

/* Every pair of a row and an expert is in one item, which comes in the order of its best rank. */
static void pin(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count)
{
    uint32_t k = hparams()->experts_used;
    (void)self;
    for (uint32_t i = 0; i < count; i++) {
        const struct expert_item *item = items[i];
        ck_assert(!item->prefill && item->tokens >= 1 && item->tokens <= step->rows);
        ck_assert(i == 0 || items[i - 1]->rank <= item->rank);
        for (uint32_t t = 0; t < item->tokens; t++) {
            uint32_t rank = 0;
            ck_assert(t == 0 || item->row[t - 1] < item->row[t]);
            while (rank < k && w.routed[item->row[t] * k + rank].expert != item->expert)
                rank++;
            ck_assert_uint_lt(rank, k);
        }
        w.pinned += item->tokens;
    }
    ck_assert_uint_le(w.pinned, step->rows * k);
    w.file.pin(w.file.self, step, items, count);
}

static struct core *open_core(void)
{
    struct error error;
    struct core_config config = {.model = w.image[0].model,
                                 .ops = kernel_ops_select("auto"),
                                 .source = w.file,
                                 .threads = 2,
                                 .chunk = SEQUENCES,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_INDEX)};
    config.source.pin = pin;
    config.source.gate_input = gate_input;
    config.source.logits = logits;
    config.source.routed = routed;
    config.source.next_counts = next_counts;
    struct core *core = core_create(&config, &error);
    ck_assert_msg(core != NULL, "%s", error.text);
    return core;
}

static struct got *allocate_got(uint32_t rows)
{
    const struct model_hparams *h = hparams();
    struct got *got = calloc(rows, sizeof *got);
    ck_assert_ptr_nonnull(got);
    for (uint32_t r = 0; r < rows; r++) {
        got[r].inputs = calloc((size_t)h->layers * h->hidden, sizeof(float));
        got[r].logits = calloc((size_t)h->layers * h->experts, sizeof(float));
        got[r].routes = calloc((size_t)h->layers * h->experts_used, sizeof(struct route));
        ck_assert(got[r].inputs && got[r].logits && got[r].routes);
    }
    return got;
}

static void free_got(struct got *got, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++) {
        free(got[r].inputs);
        free(got[r].logits);
        free(got[r].routes);
    }
    free(got);
}

/* The sequences' tokens at a position in one pass, or one of them alone. */
static void decode(struct core *core, uint32_t first, uint32_t rows, uint32_t position,
                   struct got *got)
{
    struct core_sequence sequence[SEQUENCES];
    struct core_row row[SEQUENCES];
    struct error error;
    for (uint32_t r = 0; r < rows; r++) {
        sequence[r] = image_sequence(&w.image[first + r]);
        sequence[r].sequence = 50 + first + r;
        row[r] = (struct core_row){
            .sequence = r, .position = position, .token = first_token[first + r] + position};
    }
    const struct core_pass pass = {
        .sequences = sequence, .sequence_count = rows, .row = row, .rows = rows};
    uint32_t before = w.pass;
    w.rows = rows;
    w.got = got;
    w.pass = 0;
    ck_assert_msg(core_pass(core, &pass, &error) == 0, "%s", error.text);
    ck_assert(w.pass != 0 && w.pass != before && w.pass == core_pass_number(core));
}

START_TEST(rows_that_decode_together)
{
    const struct model_hparams *h;
    struct got *alone, *together;
    for (uint32_t i = 0; i < SEQUENCES; i++)
        image_open(&w.image[i], golden_demo_path(), CONTEXT);
    w.file = image_source(&w.image[0]);
    h = hparams();
    w.routed = calloc((size_t)SEQUENCES * h->experts_used, sizeof *w.routed);
    ck_assert_ptr_nonnull(w.routed);
    struct core *core = open_core();
    alone = allocate_got(SEQUENCES);
    together = allocate_got(SEQUENCES);
    for (uint32_t at = 0; at < 3; at++) {
        for (uint32_t i = 0; i < SEQUENCES; i++) /* writes the same keys as the pass below */
            decode(core, i, 1, at, alone + i);
        decode(core, 0, SEQUENCES, at, together);
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            ck_assert(memcmp(alone[i].inputs, together[i].inputs,
                             (size_t)h->layers * h->hidden * sizeof(float)) == 0);
            ck_assert(memcmp(alone[i].logits, together[i].logits,
                             (size_t)h->layers * h->experts * sizeof(float)) == 0);
            ck_assert(memcmp(alone[i].routes, together[i].routes,
                             (size_t)h->layers * h->experts_used * sizeof(struct route)) == 0);
        }
    }
    ck_assert_uint_eq(w.next, 0);
    core_destroy(core);
    free_got(alone, SEQUENCES);
    free_got(together, SEQUENCES);
    free(w.routed);
    for (uint32_t i = 0; i < SEQUENCES; i++)
        image_close(&w.image[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rows");
    TCase *c = tcase_create("rows");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, rows_that_decode_together);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
