/* SPDX-License-Identifier: Apache-2.0 */
/* Row invariance: on each instruction set and for each KV type, every KV row and logit is
 * bit-identical for any number of threads, any chunk size and any other rows of the pass. This
 * makes text independent of budget, threads, chunking and restarts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"
#include "tests/harness/sample.h"

/* Another program of this file compares a model that needs more tokens (CMakeLists.txt). */
#ifndef TOKENS
#define CONTEXT 128 /* of the image; a ring is not longer */
#define TOKENS  75  /* crosses an attention tile, not a multiple of any chunk below */
#endif
#ifndef ONLY_MODEL
#define ONLY_MODEL "" /* all */
#endif

static const bool only_model = sizeof ONLY_MODEL > 1;

struct result {
    float *logits; /* [TOKENS][vocab] */
    uint8_t *kv;   /* keys and values of all layers, in whole tiles, then the recurrent state */
    size_t kv_bytes;
};

static void run(struct image *image, const struct kernel_ops *ops, uint32_t threads, uint32_t chunk,
                const uint32_t *tokens, struct result *out)
{
    const struct model_hparams *hp = &image->model->hparams;
    struct core *core = image_core(image, ops, threads, chunk);
    struct core_sequence sequence = image_sequence(image);
    struct error error;
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = TOKENS - at < chunk ? TOKENS - at : chunk;
        sl_assert(core_forward(core, &sequence, tokens + at, at, n, &error) == 0);
        uint32_t max = core_output_rows(core);
        for (uint32_t r = 0, rows; r < n; r += rows) {
            rows = n - r < max ? n - r : max;
            memcpy(out->logits + (size_t)(at + r) * hp->vocab, core_output(core, r, rows),
                   (size_t)rows * hp->vocab * sizeof(float));
        }
    }
    size_t at = 0;
    for (uint32_t l = 0; l < hp->layers; l++) {
        size_t keys = (size_t)model_kv_bytes(hp, l, KV_SIDE_KEYS, image->kv_type, TOKENS);
        size_t values = (size_t)model_kv_bytes(hp, l, KV_SIDE_VALUES, image->kv_type, TOKENS);
        size_t index = (size_t)model_kv_bytes(hp, l, KV_SIDE_INDEX, image->kv_type, TOKENS);
        memcpy(out->kv + at, image->keys[l], keys);
        memcpy(out->kv + at + keys, image->values[l], values);
        memcpy(out->kv + at + keys + values, image->index[l], index);
        at += keys + values + index;
    }
    memcpy(out->kv + at, image->state, (size_t)model_state_bytes(hp));
    core_destroy(core);
}

static struct result result_new(const struct model_hparams *hp, enum kv_type type)
{
    struct result r = {.kv_bytes = (size_t)model_state_bytes(hp)};
    for (uint32_t l = 0; l < hp->layers; l++)
        r.kv_bytes += (size_t)model_layer_kv_bytes(hp, l, type, TOKENS);
    r.logits = calloc((size_t)TOKENS * hp->vocab, sizeof *r.logits);
    r.kv = calloc(1, r.kv_bytes);
    sl_assert(r.logits && r.kv);
    return r;
}

/* Two sequences in each pass, their rows mixed, one of them as a prompt, the other decoded:
 * bit-identical to each of them alone. */
static void check_two(struct image *image, const char *path, const struct kernel_ops *ops,
                      const uint32_t *tokens, const struct result *alone)
{
    uint32_t vocab = image->model->hparams.vocab, backwards[TOKENS];
    const uint32_t *text[2] = {tokens, backwards};
    size_t bytes = vocab * sizeof(float);
    struct result reverse = result_new(&image->model->hparams, image->kv_type);
    struct image second;
    for (uint32_t i = 0; i < TOKENS; i++)
        backwards[i] = tokens[TOKENS - 1 - i];
    run(image, ops, 1, 1, backwards, &reverse);
    image_open(&second, path, CONTEXT);
    second.kv_type = image->kv_type;
    struct core *core = image_core(image, ops, 2, 9);
    struct core_sequence sequences[2] = {image_sequence(image), image_sequence(&second)};
    const float *want[2] = {alone->logits, reverse.logits};
    uint32_t at[2] = {0, 0}, wrong = 0;
    struct error error;
    while (at[0] < TOKENS) {
        struct core_row row[9];
        uint32_t n = 0; /* of the first sequence two rows, then of the other one, and so on */
        for (uint32_t i = 0; i < 9; i++) {
            uint32_t s = i % 3 == 2;
            if (at[s] < TOKENS)
                row[n++] = (struct core_row){s, at[s], text[s][at[s]], s == 0}, at[s]++;
        }
        struct core_pass pass = {
            .sequences = sequences, .sequence_count = 2, .row = row, .rows = n};
        sl_assert(core_pass(core, &pass, &error) == 0);
        for (uint32_t r = 0; r < n; r++)
            wrong += memcmp(core_output(core, r, 1),
                            want[row[r].sequence] + (size_t)row[r].position * vocab, bytes) != 0;
    }
    golden_check(wrong == 0 && at[1] > TOKENS / 3, "%s %s: %u rows of two sequences differ", path,
                 ops->name, wrong);
    core_destroy(core);
    image_close(&second);
    free(reverse.logits);
    free(reverse.kv);
}

/* ---- a pass that fails half-way ---- */

static struct {
    struct weights_source source; /* of the image */
    uint32_t layer;               /* whose experts do not come; UINT32_MAX: none */
} failing;

static void failing_pin(void *self, const struct expert_step *step, struct expert_item **items,
                        uint32_t count)
{
    failing.source.pin(self, step, items, count);
    if (step->layer == failing.layer)
        items[count - 1]->state = ITEM_WAITED;
}

static int failing_wait(void *self, const struct expert_step *step, struct expert_item **items,
                        uint32_t count, struct error *error)
{
    for (uint32_t i = 0; i < count; i++)
        if (items[i]->state == ITEM_WAITED)
            items[i]->state = ITEM_READY; /* as the image expects it when it is unpinned */
    (void)self, (void)step;
    return error_set(error, ERR_IO, "as the test wants it");
}

/* Before it each chunk is tried once with a failure in its last layer: the state that it read is
 * untouched, and the logits of the chunk are those without. */
static void check_failure(struct image *image, const char *path, const uint32_t *tokens,
                          const struct result *want)
{
    const struct model_hparams *hp = &image->model->hparams;
    size_t bytes = (size_t)model_state_bytes(hp);
    void *next = calloc(1, bytes), *before = calloc(1, bytes);
    failing.source = image_source(image);
    struct core_config config = {.model = image->model,
                                 .ops = kernel_ops_select(NULL),
                                 .source = failing.source,
                                 .threads = 2,
                                 .chunk = 10,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    config.source.pin = failing_pin;
    config.source.wait = failing_wait;
    struct error error;
    struct core *core = core_create(&config, &error);
    sl_assert(next && before && core);
    struct core_sequence s = image_sequence(image);
    uint32_t wrong = 0, failed = 0;
    for (uint32_t at = 0; at + 10 <= TOKENS; at += 10) {
        s.next_state = next;
        memcpy(before, s.state, bytes);
        failing.layer = hp->layers - 1;
        failed += core_forward(core, &s, tokens + at, at, 10, &error) != 0;
        wrong += memcmp(before, s.state, bytes) != 0;
        failing.layer = UINT32_MAX;
        sl_assert(core_forward(core, &s, tokens + at, at, 10, &error) == 0);
        wrong += memcmp(before, s.state, bytes) != 0;
        wrong += memcmp(core_output(core, 9, 1), want->logits + (size_t)(at + 9) * hp->vocab,
                        hp->vocab * sizeof(float)) != 0;
        memcpy(image->state, next, bytes);
    }
    golden_check(wrong == 0 && failed > 2, "%s: %u differences after %u passes that failed", path,
                 wrong, failed);
    core_destroy(core);
    free(next);
    free(before);
}

static uint32_t rings; /* that were shorter than the text */

/* Layers with a window in the smallest ring that the chunk allows, where it is shorter than the
 * text. */
static void check_ring(struct image *image, const char *path, const struct kernel_ops *ops,
                       const uint32_t *tokens, const struct result *want)
{
    const struct model_hparams *hp = &image->model->hparams;
    static const uint32_t chunks[] = {1, 7, 32};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks && hp->window > 0; i++) {
        uint32_t ring = (uint32_t)model_ring_positions(hp, chunks[i]), wrong = 0;
        struct core *core = image_core(image, ops, 2, chunks[i]);
        struct core_sequence s = image_sequence(image);
        struct error error;
        s.ring = ring;
        for (uint32_t at = 0, n; at < TOKENS; at += n) {
            n = TOKENS - at < chunks[i] ? TOKENS - at : chunks[i];
            sl_assert(core_forward(core, &s, tokens + at, at, n, &error) == 0);
            wrong +=
                memcmp(core_output(core, n - 1, 1), want->logits + (size_t)(at + n - 1) * hp->vocab,
                       hp->vocab * sizeof(float)) != 0;
        }
        golden_check(wrong == 0, "%s %s: %u passes with a ring of %u differ", path, ops->name,
                     wrong, ring);
        rings += ring < TOKENS;
        core_destroy(core);
    }
}

/* Sequences that are not longer than an indexer chooses: full attention, without the indexer. */
static void check_short(struct image *image, const char *path, const struct kernel_ops *ops,
                        const uint32_t *tokens, const struct result *want)
{
    const struct model_hparams *hp = &image->model->hparams;
    const uint32_t all = model_chosen_tokens(hp), context = image->context;
    struct error error;
    uint32_t wrong = 0;
    if (!model_chooses(hp, TOKENS))
        return;
    image->context = all;
    struct core *core = image_core(image, ops, 2, 7);
    struct core_sequence s = image_sequence(image);
    for (uint32_t at = 0, n; at < all; at += n) {
        n = all - at < 7 ? all - at : 7;
        sl_assert(core_forward(core, &s, tokens + at, at, n, &error) == 0);
        wrong +=
            memcmp(core_output(core, n - 1, 1), want->logits + (size_t)(at + n - 1) * hp->vocab,
                   hp->vocab * sizeof(float)) != 0;
    }
    golden_check(wrong == 0, "%s %s: %u passes without the indexer differ", path, ops->name, wrong);
    core_destroy(core);
    image->context = context;
}

static bool same(const struct model_hparams *hp, const struct result *a, const struct result *b)
{
    return memcmp(a->logits, b->logits, (size_t)TOKENS * hp->vocab * sizeof(float)) == 0 &&
           memcmp(a->kv, b->kv, a->kv_bytes) == 0;
}

static unsigned cases_met; /* in the short form, other cases of each file and set */

static void check_type(const char *path, enum kv_type type, const uint32_t *tokens)
{
    static const uint32_t cases[][2] = {/* threads, chunk */
                                        {1, 7},      {1, 64}, {1, TOKENS}, {2, 1}, {2, 7}, {2, 64},
                                        {2, TOKENS}, {3, 1},  {3, TOKENS}, {5, 7}, {5, 64}};
    struct image image;
    image_open(&image, path, CONTEXT);
    image.kv_type = type;
    const struct model_hparams *hp = &image.model->hparams;
    struct result first = result_new(hp, type), other = result_new(hp, type);
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (!ops)
            continue;
        if (isa > 0) /* the generic kernels ran before */
            run(&image, ops, 1, 1, tokens, &other);
        golden_check(isa == 0 || same(hp, &first, &other), "%s: %s differs from the set before it",
                     path, ops->name);
        run(&image, ops, 1, 1, tokens, &first);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            if (!test_sample(EVERY_row_cases, &cases_met))
                continue;
            uint32_t threads = cases[i][0], chunk = cases[i][1];
            run(&image, ops, threads, chunk, tokens, &other);
            golden_check(
                memcmp(first.logits, other.logits, (size_t)TOKENS * hp->vocab * sizeof(float)) == 0,
                "%s %s %s: logits with %u threads, chunk %u", path,
                kv_type_info((uint32_t)type)->name, ops->name, threads, chunk);
            golden_check(memcmp(first.kv, other.kv, first.kv_bytes) == 0,
                         "%s %s %s: KV rows with %u threads, chunk %u", path,
                         kv_type_info((uint32_t)type)->name, ops->name, threads, chunk);
        }
        check_two(&image, path, ops, tokens, &first);
        check_ring(&image, path, ops, tokens, &first);
        check_short(&image, path, ops, tokens, &first);
    }
    if (model_state_bytes(hp) > 0 && type == KV_TYPE_F16)
        check_failure(&image, path, tokens, &first);
    free(first.logits);
    free(first.kv);
    free(other.logits);
    free(other.kv);
    image_close(&image);
}

static void check_file(const char *path, const uint32_t *tokens)
{
    check_type(path, KV_TYPE_F16, tokens);
}

/* The demo model, Q8_0 and F16, on its own text. */
static void check_demo(void)
{
    json_t *greedy = golden_json("greedy.json");
    json_t *item = json_array_get(json_object_get(greedy, "prompts"), 0);
    struct golden_ids prompt = golden_ids_of(json_object_get(item, "prompt_ids"));
    struct golden_ids more = golden_ids_of(json_object_get(item, "continuation_ids"));
    sl_assert(prompt.count + more.count >= TOKENS);
    uint32_t tokens[TOKENS];
    for (size_t i = 0; i < TOKENS; i++)
        tokens[i] = i < prompt.count ? prompt.id[i] : more.id[i - prompt.count];
    check_file(SLUICE_F16_MODEL, tokens);
    for (uint32_t type = 0; type < KV_TYPE__COUNT; type++)
        check_type(golden_demo_path(), (enum kv_type)type, tokens);
    golden_ids_free(&prompt);
    golden_ids_free(&more);
    json_decref(greedy);
}

/* The small models of the other architectures, on their random tokens repeated. */
static void check_architectures(const char *list)
{
    json_t *models = golden_json(list), *item;
    size_t i;
    json_array_foreach(models, i, item)
    {
        struct golden_ids ids = golden_ids_of(json_object_get(item, "ids"));
        const char *name = json_string_value(json_object_get(item, "name"));
        uint32_t tokens[TOKENS];
        char file[128];
        for (size_t t = 0; t < TOKENS; t++)
            tokens[t] = ids.id[t % ids.count];
        snprintf(file, sizeof file, "arch/%s.gguf", name);
        check_file(golden_path(file), tokens);
        snprintf(file, sizeof file, "arch/%s_q8.gguf", name);
        if (json_is_true(json_object_get(item, "q8")))
            check_file(golden_path(file), tokens);
        golden_ids_free(&ids);
    }
    sl_assert(i > 0);
    json_decref(models);
}

/* After other tokens from a position on, within a pool, the sequence is cut back to it with the
 * state that it had there: it continues as if these had not been. */
static void check_cut(const char *path, const uint32_t *tokens)
{
    enum { CUT = TOKENS - 34, OTHERS = TOKENS - 15 };
    uint32_t other[TOKENS];
    struct image image;
    struct error error;
    image_open(&image, path, CONTEXT);
    const struct model_hparams *hp = &image.model->hparams;
    struct result want = result_new(hp, image.kv_type), got = result_new(hp, image.kv_type);
    size_t bytes = (size_t)model_state_bytes(hp);
    void *state = calloc(1, bytes + 1);
    sl_assert(state);
    run(&image, kernel_ops_select(NULL), 1, 1, tokens, &want);
    for (uint32_t i = 0; i < TOKENS; i++)
        other[i] = tokens[i < CUT ? i : TOKENS - 1 - i];
    struct core *core = image_core(&image, kernel_ops_select(NULL), 1, TOKENS);
    struct core_sequence s = image_sequence(&image);
    sl_assert(core_forward(core, &s, tokens, 0, CUT, &error) == 0);
    memcpy(state, image.state, bytes);
    sl_assert(core_forward(core, &s, other + CUT, CUT, OTHERS - CUT, &error) == 0);
    memcpy(image.state, state, bytes);
    for (uint32_t at = CUT; at < TOKENS; at++) {
        sl_assert(core_forward(core, &s, tokens + at, at, 1, &error) == 0);
        memcpy(got.logits + (size_t)at * hp->vocab, core_output(core, 0, 1),
               hp->vocab * sizeof(float));
    }
    size_t first = (size_t)CUT * hp->vocab, floats = (size_t)TOKENS * hp->vocab - first;
    golden_check(memcmp(want.logits + first, got.logits + first, floats * sizeof(float)) == 0,
                 "%s: rows differ after the sequence was cut back", path);
    core_destroy(core);
    free(state);
    free(want.logits);
    free(want.kv);
    free(got.logits);
    free(got.kv);
    image_close(&image);
}

/* Models whose indexer chooses fewer positions than there are tokens, and one with streams that are
 * mixed. */
static bool is_checked(const char *name)
{
    if (only_model)
        return strcmp(name, ONLY_MODEL) == 0;
    return strstr(name, "-few") || strcmp(name, "glm5-next-base") == 0;
}

static void check_converted(void)
{
    json_t *models = golden_json("converted/converted.json"), *item;
    unsigned found = 0;
    size_t i;
    json_array_foreach(models, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (!is_checked(name))
            continue;
        struct golden_ids ids = golden_ids_of(json_object_get(item, "ids"));
        char file[128];
        sl_assert(ids.count >= TOKENS);
        snprintf(file, sizeof file, "converted/%s.gguf", name);
        check_type(golden_path(file), KV_TYPE_F16, ids.id);
        check_type(golden_path(file), KV_TYPE_Q4_0, ids.id);
        check_type(golden_path(file), KV_TYPE_F32, ids.id);
        check_cut(golden_path(file), ids.id);
        golden_ids_free(&ids);
        found++;
    }
    sl_assert(found == (only_model ? 1u : 8u));
    json_decref(models);
}

static void check_others(void)
{
    check_demo();
    check_architectures("arch/arch.json");
    check_architectures("arch/router.json");
    check_architectures("arch/minimax_m2.json");
    check_architectures("arch/recurrent.json");
    check_architectures("arch/oss.json");
    check_architectures("arch/gemma4.json");
}

int main(void)
{
    log_init("golden", LOG_LEVEL_INFO);
    check_converted();
    if (!only_model)
        check_others();
    golden_check(rings > 0, "no ring was shorter than the text");
    return golden_result("golden rows");
}
