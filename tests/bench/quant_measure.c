/* SPDX-License-Identifier: Apache-2.0 */
/* quant_measure: quality loss by quantising the experts of a model.
 *   quant_measure FILE.gguf [WINDOWS_PER_TEXT [VARIANT]]
 * Quantises every expert, computes with the kernels of the store types, and scores the held-out
 * texts of tests/golden/data in windows of 512 tokens. One line per variant: relative error of the
 * weights (square root of squared error / squared weights), perplexity, seconds of quantisation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/quant/quant.h"
#include "lib/tensor/tensor_type.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define WINDOW 512

static struct {
    struct image image;
    struct weights_source file;     /* that of the image */
    struct kernel_matrix *replaced; /* [layer * experts + expert][EXPERT__COUNT] */
    double error, size;             /* sums of squares */
    uint32_t *ids[4];
    size_t windows[4];
} m;

static const char *const texts[4] = {"novel", "tales", "drama", "science"};

/* Experts are quantised once per variant and cached; dense weights come from the file. */
static void pin(void *self, const struct expert_step *step, struct expert_item **items,
                uint32_t count)
{
    m.file.pin(self, step, items, count);
    for (uint32_t i = 0; i < count && m.replaced != NULL; i++) {
        size_t at = (size_t)step->layer * m.image.model->hparams.experts + items[i]->expert;
        memcpy(items[i]->matrix, m.replaced + at * EXPERT__COUNT, sizeof items[i]->matrix);
    }
}

static void find_experts(void *self, struct kernel_matrix *out, uint32_t layer, uint32_t expert)
{
    struct expert_item item = {.expert = expert, .state = ITEM_QUEUED}, *items[1] = {&item};
    struct expert_step step = {.layer = layer};
    m.file.pin(self, &step, items, 1);
    memcpy(out, item.matrix, sizeof item.matrix);
}

static void replace(struct kernel_matrix *w, enum tensor_type type, const struct quant_settings *s)
{
    struct kernel_matrix from = *w;
    float *row = malloc(sizeof *row * from.k), *back = malloc(sizeof *back * from.k);
    w->type = type;
    sl_assert(tensor_type_row_bytes((uint32_t)type, w->k, &w->row_bytes));
    uint8_t *to = malloc(w->row_bytes * w->n);
    sl_assert(row && back && to);
    w->data = to;
    for (uint32_t j = 0; j < w->n; j++) {
        quant_dequantise(&from, j, 1, row);
        sl_assert(quant_rows(type, row, w->k, 1, to + j * w->row_bytes, s) == 0);
        quant_dequantise(w, j, 1, back);
        for (uint32_t i = 0; i < w->k; i++) {
            m.error += pow((double)row[i] - (double)back[i], 2);
            m.size += (double)row[i] * (double)row[i];
        }
    }
    free(row);
    free(back);
}

static double window_nll(struct core *core, const uint32_t *ids)
{
    struct core_sequence sequence = image_sequence(&m.image);
    float score[WINDOW];
    struct error error;
    double nll = 0;
    for (uint32_t at = 0, n; at < WINDOW; at += n) {
        n = WINDOW - at < core_chunk(core) ? WINDOW - at : core_chunk(core);
        sl_assert(core_forward(core, &sequence, ids + at, at, n, &error) == 0);
        uint32_t scored = at + n < WINDOW ? n : n - 1;
        if (scored > 0)
            core_score(core, 0, scored, ids + at + 1, score);
        for (uint32_t i = 0; i < scored; i++)
            nll -= (double)score[i];
    }
    return nll;
}

static double perplexity(enum tensor_type type)
{
    struct core_config config = {.model = m.image.model,
                                 .ops = kernel_ops_select(NULL),
                                 .source = m.file,
                                 .threads = 1,
                                 .chunk = 256,
                                 .expert_types = &type,
                                 .expert_type_count = 1,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    struct error error;
    config.source.pin = pin;
    struct core *core = core_create(&config, &error);
    if (core == NULL)
        log_fatal(1, "%s", error.text);
    double nll = 0;
    size_t windows = 0;
    for (size_t t = 0; t < ARRAY_LEN(texts); t++) {
        for (size_t w = 0; w < m.windows[t]; w++, windows++)
            nll += window_nll(core, m.ids[t] + w * WINDOW);
    }
    core_destroy(core);
    return exp(nll / (double)(windows * (WINDOW - 1)));
}

static void measure(const char *name, enum tensor_type type, const struct quant_settings *s)
{
    const struct model_hparams *hp = &m.image.model->hparams;
    size_t experts = (size_t)hp->layers * hp->experts;
    struct kernel_matrix *own = calloc(experts * EXPERT__COUNT, sizeof *own);
    sl_assert(own != NULL);
    m.error = m.size = 0;
    uint64_t start_ns = clock_now_ns();
    for (size_t e = 0; e < experts; e++) {
        struct kernel_matrix *w = own + e * EXPERT__COUNT;
        find_experts(m.file.self, w, (uint32_t)(e / hp->experts), (uint32_t)(e % hp->experts));
        for (int i = 0; i < EXPERT__COUNT; i++)
            replace(w + i, type, s);
    }
    double seconds = (double)(clock_now_ns() - start_ns) / 1e9;
    m.replaced = own;
    printf("%-14s %-3s error %.5f  perplexity %.4f  quantised in %.1f s\n", name,
           tensor_type_info((uint32_t)type)->name, sqrt(m.error / m.size), perplexity(type),
           seconds);
    fflush(stdout);
    m.replaced = NULL;
    for (size_t i = 0; i < experts * EXPERT__COUNT; i++)
        free((void *)(uintptr_t)own[i].data);
    free(own);
}

static struct quant_settings variant(enum quant_levels levels, uint32_t channel, float power,
                                     float beta, bool scale)
{
    struct quant_settings s = quant_defaults;
    s.levels = levels;
    s.channel_power = channel;
    s.hqq_power = power;
    s.hqq_beta = beta;
    s.hqq_scale = scale;
    return s;
}

static void measure_all(const char *only)
{
    const struct {
        const char *name;
        enum tensor_type type;
        struct quant_settings s;
    } all[] = {
        {"c8", TENSOR_C8, variant(QUANT_LEVELS_EITHER, 0, 0.7f, 10, true)},
        {"c4-p0", TENSOR_C4, variant(QUANT_LEVELS_EITHER, 0, 0.7f, 10, true)},
        {"c4-p2", TENSOR_C4, variant(QUANT_LEVELS_EITHER, 2, 0.7f, 10, true)},
        {"c4-p3", TENSOR_C4, variant(QUANT_LEVELS_EITHER, 3, 0.7f, 10, true)},
        {"c4-p4", TENSOR_C4, variant(QUANT_LEVELS_EITHER, 4, 0.7f, 10, true)},
        {"c2-zero-p0", TENSOR_C2, variant(QUANT_LEVELS_ZERO, 0, 0.7f, 10, true)},
        {"c2-zero-p2", TENSOR_C2, variant(QUANT_LEVELS_ZERO, 2, 0.7f, 10, true)},
        {"c2-zero-p3", TENSOR_C2, variant(QUANT_LEVELS_ZERO, 3, 0.7f, 10, true)},
        {"c2-zero-p4", TENSOR_C2, variant(QUANT_LEVELS_ZERO, 4, 0.7f, 10, true)},
        {"c2-even-p0", TENSOR_C2, variant(QUANT_LEVELS_EVEN, 0, 0.7f, 10, true)},
        {"c2-even-p2", TENSOR_C2, variant(QUANT_LEVELS_EVEN, 2, 0.7f, 10, true)},
        {"c2-even-p3", TENSOR_C2, variant(QUANT_LEVELS_EVEN, 3, 0.7f, 10, true)},
        {"c2-even-p4", TENSOR_C2, variant(QUANT_LEVELS_EVEN, 4, 0.7f, 10, true)},
        {"c2-either-p2", TENSOR_C2, variant(QUANT_LEVELS_EITHER, 2, 0.7f, 10, true)},
        {"c2-either-p3", TENSOR_C2, variant(QUANT_LEVELS_EITHER, 3, 0.7f, 10, true)},
        {"c2-either-p4", TENSOR_C2, variant(QUANT_LEVELS_EITHER, 4, 0.7f, 10, true)},
        {"g4-p0.7", TENSOR_G4, variant(QUANT_LEVELS_EITHER, 8, 0.7f, 10, false)},
        {"g4-p0.7-scale", TENSOR_G4, variant(QUANT_LEVELS_EITHER, 8, 0.7f, 10, true)},
        {"g4-p2-scale", TENSOR_G4, variant(QUANT_LEVELS_EITHER, 8, 2.0f, 1e-9f, true)},
        {"g2-p0.7", TENSOR_G2, variant(QUANT_LEVELS_EITHER, 8, 0.7f, 10, false)},
        {"g2-p0.7-scale", TENSOR_G2, variant(QUANT_LEVELS_EITHER, 8, 0.7f, 10, true)},
        {"g2-p1-scale", TENSOR_G2, variant(QUANT_LEVELS_EITHER, 8, 1.0f, 10, true)},
        {"g2-p2-scale", TENSOR_G2, variant(QUANT_LEVELS_EITHER, 8, 2.0f, 1e-9f, true)},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (only == NULL || strstr(all[i].name, only) == all[i].name)
            measure(all[i].name, all[i].type, &all[i].s);
}

int main(int argc, char **argv)
{
    log_init("quant_measure", LOG_LEVEL_INFO);
    if (argc < 2)
        log_fatal(2, "usage: quant_measure FILE.gguf [WINDOWS_PER_TEXT [VARIANT]]");
    size_t max = argc > 2 ? strtoul(argv[2], NULL, 10) : 6;
    struct error error;
    image_open(&m.image, argv[1], WINDOW);
    m.file = image_source(&m.image);
    struct tokenizer *tokenizer =
        tokenizer_open((const char *)m.image.model + m.image.model->tokenizer_offset,
                       m.image.model->tokenizer_bytes, &error);
    if (tokenizer == NULL)
        log_fatal(1, "%s", error.text);
    for (size_t t = 0; t < ARRAY_LEN(texts); t++) {
        char file[64];
        size_t bytes, count;
        snprintf(file, sizeof file, "heldout/%s.txt", texts[t]);
        char *text = golden_text(file, &bytes);
        if (tokenizer_encode(tokenizer, text, bytes, NULL, &m.ids[t], &count, &error) != 0)
            log_fatal(1, "%s", error.text);
        m.windows[t] = count / WINDOW < max ? count / WINDOW : max;
        free(text);
    }
    printf("%-14s     error %.5f  perplexity %.4f\n", "native", 0.0, perplexity(TENSOR_C8));
    measure_all(argc > 3 ? argv[3] : NULL);
    for (size_t t = 0; t < ARRAY_LEN(texts); t++)
        free(m.ids[t]);
    tokenizer_close(tokenizer);
    image_close(&m.image);
    return 0;
}
