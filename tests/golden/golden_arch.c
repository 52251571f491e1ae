/* SPDX-License-Identifier: Apache-2.0 */
/* Compares small random models of every architecture (arch_vectors.py, router_vectors.py) with the
 * Python package transformers: routing and logits, on every instruction set of this machine. Those
 * that llama.cpp's converter wrote (converter_vectors.py): the losses of tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/assert.h"
#include "tests/golden/compare.h"

/* Minimum compared: near-ties must not exclude most positions of a model. */
#define POSITIONS_MIN 30
#define F32_DELTA     2e-3 /* of logits, with F32 weights */
#define LOSS_DELTA    2e-3 /* of a token's loss */
#define LOSS_MEAN     5e-3 /* of their mean, where keys are rounded */

/* The greedy continuation of the ids, token by token. */
static void check_greedy(struct image *image, struct core *core, const char *name,
                         const struct golden_ids *ids, const json_t *item)
{
    json_t *want = json_object_get(item, "greedy");
    double margin = json_number_value(json_object_get(item, "greedy_margin"));
    struct core_sequence sequence = image_sequence(image);
    struct error error;
    uint32_t chunk = core_chunk(core), last = 0;
    if (!want)
        return;
    if (margin < GOLDEN_MARGIN / 2) {
        printf("  %s: greedy tokens not compared (margin %g)\n", name, margin);
        return;
    }
    for (uint32_t at = 0; at < ids->count; at += chunk) {
        last = (uint32_t)ids->count - at < chunk ? (uint32_t)ids->count - at : chunk;
        sl_assert(core_forward(core, &sequence, ids->id + at, at, last, &error) == 0);
    }
    for (size_t i = 0; i < json_array_size(want); i++) {
        size_t best;
        float unused;
        golden_top_two(core_output(core, last - 1, 1), image->model->hparams.vocab, &best, &unused);
        golden_check((json_int_t)best == json_integer_value(json_array_get(want, i)),
                     "%s: greedy token %zu is %zu", name, i, best);
        uint32_t token = (uint32_t)json_integer_value(json_array_get(want, i));
        uint32_t position = (uint32_t)(ids->count + i);
        sl_assert(core_forward(core, &sequence, &token, position, 1, &error) == 0);
        last = 1;
    }
}

static void check_model(const json_t *item)
{
    char file[128];
    const char *name = json_string_value(json_object_get(item, "name"));
    bool f32 = json_is_true(json_object_get(item, "f32"));
    struct golden_ids ids = golden_ids_of(json_object_get(item, "ids"));
    size_t rows, columns;
    struct image image;
    snprintf(file, sizeof file, "arch/%s.npy", name);
    float *logits = golden_npy(file, &rows, &columns);
    snprintf(file, sizeof file, "arch/%s.gguf", name);
    image_open(&image, golden_path(file),
               (uint32_t)(rows + json_array_size(json_object_get(item, "greedy"))));
    sl_assert(rows == ids.count && columns == golden_columns(image.model->hparams.vocab));
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (!ops)
            continue;
        printf("%s %s\n", name, ops->name);
        struct core *core = image_core(&image, ops, 2, 16);
        uint32_t compared =
            golden_compare(&image, core,
                           &(struct golden_expected){.name = name,
                                                     .ids = ids.id,
                                                     .positions = (uint32_t)rows,
                                                     .logits = logits,
                                                     .layers = json_object_get(item, "layers"),
                                                     .gap_key = "gap",
                                                     .logit_delta = f32 ? F32_DELTA : 0});
        golden_check(compared >= POSITIONS_MIN, "%s: only %u positions", name, compared);
        check_greedy(&image, core, name, &ids, item);
        core_destroy(core);
    }
    image_close(&image);
    free(logits);
    golden_ids_free(&ids);
}

/* The loss of a token by the logits of those before it. */
static double loss_of(const float *logits, size_t vocab, uint32_t token)
{
    double top = logits[0], sum = 0;
    for (size_t i = 1; i < vocab; i++)
        top = fmax(top, (double)logits[i]);
    for (size_t i = 0; i < vocab; i++)
        sum += exp((double)logits[i] - top);
    return top + log(sum) - (double)logits[token];
}

struct gap {
    double most, mean;
};

/* The differences of the losses of the ids from those of the list, which are of the tokens after
 * number `first`. */
static struct gap loss_gap(struct image *image, struct core *core, const struct golden_ids *ids,
                           const json_t *nll, uint32_t first)
{
    struct core_sequence sequence = image_sequence(image);
    struct error error;
    uint32_t chunk = core_chunk(core);
    struct gap gap = {0, 0};
    sl_assert(json_array_size(nll) + first == ids->count - 1);
    for (uint32_t at = 0, n; at < ids->count; at += n) {
        n = (uint32_t)ids->count - at < chunk ? (uint32_t)ids->count - at : chunk;
        sl_assert(core_forward(core, &sequence, ids->id + at, at, n, &error) == 0);
        for (uint32_t r = at < first ? first - at : 0; r < n && at + r + 1 < ids->count; r++) {
            double want = json_number_value(json_array_get(nll, at + r - first));
            double loss =
                loss_of(core_output(core, r, 1), image->model->hparams.vocab, ids->id[at + r + 1]);
            double apart = isfinite(loss) ? fabs(loss - want) : INFINITY;
            gap.most = fmax(gap.most, apart);
            gap.mean += apart / (double)json_array_size(nll);
        }
    }
    return gap;
}

/* On every instruction set, with the keys and values of image->kv_type; nll and first as above.
 * near: rounded keys may change a choice, so that few losses differ by more. */
static void check_losses(struct image *image, const char *name, const struct golden_ids *ids,
                         const json_t *nll, uint32_t first, uint32_t chunk, bool near)
{
    const char *type = kv_type_info((uint32_t)image->kv_type)->name;
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (!ops)
            continue;
        struct core *core = image_core(image, ops, 2, chunk);
        struct gap gap = loss_gap(image, core, ids, nll, first);
        printf("converted %s %s %s, chunks of %u: losses differ by at most %.5f, mean %.6f\n", name,
               type, ops->name, chunk, gap.most, gap.mean);
        golden_check((near || gap.most <= LOSS_DELTA) && gap.mean <= LOSS_MEAN,
                     "converted %s %s, chunks of %u: losses differ by %g, mean %g", name, type,
                     chunk, gap.most, gap.mean);
        core_destroy(core);
    }
}

/* Of an indexer that chooses fewer positions than the text has, keys that are rounded may change a
 * choice. */
static bool is_near(const char *name)
{
    static const char *const names[] = {"deepseek32-few", "glm-dsa-few",   "minimax-m3-few",
                                        "glm5-next-base", "glm5-next-few", "hy_v4-few",
                                        "dots3note-few",  "deepseek4-base"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static void check_converted(const json_t *item)
{
    static const uint32_t chunks[] = {1, 7, 64};
    char file[128];
    const char *name = json_string_value(json_object_get(item, "name"));
    struct golden_ids ids = golden_ids_of(json_object_get(item, "ids"));
    const json_t *nll_f16 = json_object_get(item, "nll_f16");
    struct image image;
    snprintf(file, sizeof file, "converted/%s.gguf", name);
    image_open(&image, golden_path(file), (uint32_t)ids.count);
    bool chooses = model_chooses(&image.model->hparams, image.context);
    const json_t *nll = json_object_get(item, "nll");
    uint32_t first = (uint32_t)json_integer_value(json_object_get(item, "first"));
    if (nll_f16)
        check_losses(&image, name, &ids, nll_f16, 0, 16, false);
    check_losses(&image, name, &ids, nll, first, 16, chooses && is_near(name));
    image.kv_type = KV_TYPE_F32;
    for (size_t i = first > 0 ? 2 : 0; i < ARRAY_LEN(chunks) && chooses; i++)
        check_losses(&image, name, &ids, nll, first, chunks[i], false);
    image_close(&image);
    golden_ids_free(&ids);
}

static void check_list(const char *list, void (*check)(const json_t *item))
{
    json_t *models = golden_json(list), *item;
    size_t i;
    json_array_foreach(models, i, item)
    {
        check(item);
    }
    sl_assert(i > 0);
    json_decref(models);
}

int main(void)
{
    static const char *const lists[] = {
        "arch/arch.json",      "arch/router.json",   "arch/minimax_m2.json", "arch/scaled.json",
        "arch/numpy.json",     "arch/oss.json",      "arch/mla.json",        "arch/gemma4.json",
        "arch/recurrent.json", "arch/converted.json"};
    log_init("golden", LOG_LEVEL_INFO);
    for (size_t list = 0; list < sizeof lists / sizeof *lists; list++)
        check_list(lists[list], check_model);
    check_list("converted/converted.json", check_converted);
    check_list("converted/long.json", check_converted);
    return golden_result("golden arch");
}
