/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the F16 model with an independent fp32 implementation: routing, logits and greedy
 * continuations on every instruction set of this machine. */
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/assert.h"
#include "tests/golden/compare.h"

#define CONTEXT 512

static void check_logits(struct image *image, struct core *core, const json_t *item,
                         unsigned prompt)
{
    struct golden_ids ids = golden_ids_of(json_object_get(item, "ids"));
    size_t rows, columns;
    float *reference =
        golden_npy(json_string_value(json_object_get(item, "file")), &rows, &columns);
    sl_assert(rows == ids.count && columns == golden_columns(image->model->hparams.vocab));
    char name[32];
    snprintf(name, sizeof name, "routing_%u.json", prompt);
    json_t *routing = golden_json(name);
    snprintf(name, sizeof name, "prompt %u", prompt);
    golden_compare(image, core,
                   &(struct golden_expected){.name = name,
                                             .ids = ids.id,
                                             .positions = (uint32_t)rows,
                                             .logits = reference,
                                             .layers = json_object_get(routing, "layers"),
                                             .gap_key = "gap_4th_5th_logit"});
    json_decref(routing);
    free(reference);
    golden_ids_free(&ids);
}

/* Positions [0, end) include a near-tie, after which the tokens may differ. */
static bool ties_before(const json_t *gaps, size_t end)
{
    for (size_t i = 0; i < end && i < json_array_size(gaps); i++)
        if (json_number_value(json_array_get(gaps, i)) < GOLDEN_GAP)
            return true;
    return false;
}

static void check_greedy(struct image *image, struct core *core, const json_t *item,
                         unsigned prompt)
{
    struct golden_ids ids = golden_ids_of(json_object_get(item, "prompt_ids"));
    struct golden_ids wanted = golden_ids_of(json_object_get(item, "continuation_ids"));
    const json_t *margins = json_object_get(item, "top1_minus_top2_logit");
    struct core_sequence sequence = image_sequence(image);
    struct error error;
    uint32_t at = 0, chunk = core_chunk(core), count = (uint32_t)ids.count;
    for (uint32_t n; at < count; at += n) {
        n = count - at < chunk ? count - at : chunk;
        sl_assert(core_forward(core, &sequence, ids.id + at, at, n, &error) == 0);
        chunk = n; /* rows of the last pass */
    }
    float *logits = core_output(core, chunk - 1, 1);
    size_t same = 0;
    for (;; same++, at++) {
        size_t best;
        float margin;
        golden_top_two(logits, image->model->hparams.vocab, &best, &margin);
        if (same == wanted.count || best != wanted.id[same])
            break;
        uint32_t token = (uint32_t)best;
        sl_assert(core_forward(core, &sequence, &token, at, 1, &error) == 0);
        logits = core_output(core, 0, 1);
    }
    double margin = json_number_value(json_array_get(margins, same));
    golden_check(same == wanted.count || margin < GOLDEN_MARGIN ||
                     ties_before(json_object_get(item, "router_gap"), ids.count + same),
                 "greedy %u differs at token %zu, margin %g", prompt, same, margin);
    printf("  greedy %u: %zu of %zu tokens the same\n", prompt, same, wanted.count);
    golden_ids_free(&ids);
    golden_ids_free(&wanted);
}

static void check_isa(struct image *image, const struct kernel_ops *ops, const json_t *logits,
                      const json_t *greedy)
{
    printf("%s\n", ops->name);
    struct core *core = image_core(image, ops, 2, 16);
    size_t i;
    json_t *item;
    json_array_foreach(logits, i, item)
    {
        check_logits(image, core, item, (unsigned)i);
    }
    json_array_foreach(greedy, i, item)
    {
        check_greedy(image, core, item, (unsigned)i);
    }
    core_destroy(core);
}

int main(void)
{
    log_init("golden", LOG_LEVEL_INFO);
    struct image image;
    image_open(&image, SLUICE_F16_MODEL, CONTEXT);
    json_t *logits = golden_json("logits.json"), *greedy = golden_json("greedy.json");
    for (int isa = 0; isa < ISA__COUNT; isa++)
        if (kernel_ops_of((enum kernel_isa)isa))
            check_isa(&image, kernel_ops_of((enum kernel_isa)isa), logits,
                      json_object_get(greedy, "prompts"));
    json_decref(logits);
    json_decref(greedy);
    image_close(&image);
    return golden_result("golden logits");
}
