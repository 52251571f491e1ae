/* SPDX-License-Identifier: Apache-2.0 */
/* A table of n-grams on storage: with rows that the source copies the logits have the bits of those
 * with the table in memory, in any chunks; the source is asked for all rows before the first layer;
 * a row that cannot be read ends the pass. A table of experts: what it chooses is not replaced, and
 * is known before the first layer. */
#include <check.h>
#include <string.h>

#include "tests/golden/image.h"
#include "tests/golden/reference.h"

#define TOKENS  90
#define CONTEXT 128

static struct {
    struct image image;
    const uint8_t *rows; /* of the table */
    uint64_t row_bytes;
    uint32_t asked, read; /* rows, in this pass */
    uint32_t first_row;   /* of the last question */
    bool layer_started, fails;
} w;

static void ask(void *self, const uint32_t *row, uint32_t rows)
{
    (void)self;
    if (w.asked == 0)
        ck_assert(!w.layer_started);
    w.first_row = row[0];
    w.asked += rows;
}

static int copy(void *self, const uint32_t *row, uint32_t rows, uint8_t *to, struct error *error)
{
    (void)self;
    w.read += rows;
    ck_assert_uint_ge(w.asked, w.read);
    if (w.fails)
        return error_set(error, ERR_IO, "a row cannot be read");
    for (uint32_t i = 0; i < rows; i++)
        memcpy(to + i * w.row_bytes, w.rows + row[i] * w.row_bytes, w.row_bytes);
    return 0;
}

static const void *dense_but_the_table(void *self, uint32_t entry)
{
    struct image *image = self;
    ck_assert_uint_ne(entry, model_table_entry(image->model));
    return offline_dense(image->file, entry);
}

static void layer_starts(void *self, const struct expert_step *step)
{
    (void)self, (void)step;
    w.layer_started = true;
}

static struct core *open_core(uint32_t chunk, bool on_storage)
{
    struct error error;
    struct core_config config = {.model = w.image.model,
                                 .ops = kernel_ops_select("auto"),
                                 .source = image_source(&w.image),
                                 .threads = 2,
                                 .chunk = chunk,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    if (on_storage) {
        config.source.dense = dense_but_the_table;
        config.source.table_ask = ask;
        config.source.table_read = copy;
        config.source.layer_starts = layer_starts;
    }
    struct core *core = core_create(&config, &error);
    ck_assert_msg(core != NULL, "%s", error.text);
    return core;
}

/* The logits of the last of TOKENS tokens. */
static void compute(uint32_t chunk, bool on_storage, float *logits)
{
    struct core_sequence s = image_sequence(&w.image);
    struct core *core = open_core(chunk, on_storage);
    struct error error;
    uint32_t tokens[TOKENS], vocab = w.image.model->hparams.vocab;
    uint32_t of_a_token = model_ngram_rows(&w.image.model->hparams);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (i * 37 + i / 7) % vocab;
    for (uint32_t at = 0, rows = 0; at < TOKENS; at += rows) {
        rows = TOKENS - at < chunk ? TOKENS - at : chunk;
        w.asked = w.read = 0;
        w.layer_started = false;
        ck_assert_msg(core_forward(core, &s, tokens + at, at, rows, &error) == 0, "%s", error.text);
        ck_assert_uint_eq(w.asked, on_storage ? rows * of_a_token : 0);
        ck_assert_uint_eq(w.read, w.asked);
        if (at + rows == TOKENS)
            memcpy(logits, core_output(core, rows - 1, 1), vocab * sizeof *logits);
    }
    core_destroy(core);
}

static void open_image(void)
{
    image_open(&w.image, golden_path("converted/qwen4exp-base.gguf"), CONTEXT);
    const struct model_index *m = w.image.model;
    uint32_t entry = model_table_entry(m);
    ck_assert_uint_ne(entry, ENTRY_NONE);
    w.rows = offline_dense(w.image.file, entry);
    w.row_bytes = model_index_tensors(m)[model_index_entries(m)[entry].extent[0].tensor].row_bytes;
}

START_TEST(the_bits_of_a_table_in_memory)
{
    static const uint32_t chunks[] = {1, 7, 64, TOKENS};
    static float want[4096], have[4096];
    open_image();
    uint32_t vocab = w.image.model->hparams.vocab;
    ck_assert_uint_le(vocab, ARRAY_LEN(want));
    compute(16, false, want);
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        compute(chunks[i], true, have);
        ck_assert_msg(memcmp(want, have, vocab * sizeof *want) == 0, "chunks of %u", chunks[i]);
    }
    image_close(&w.image);
}
END_TEST

START_TEST(a_row_that_cannot_be_read)
{
    struct error error = {0};
    uint32_t token = 3;
    open_image();
    struct core_sequence s = image_sequence(&w.image);
    struct core *core = open_core(4, true);
    w.fails = true;
    ck_assert_int_eq(core_forward(core, &s, &token, 0, 1, &error), -1);
    ck_assert_int_eq(error.code, ERR_IO);
    core_destroy(core);
    image_close(&w.image);
}
END_TEST

/* ---- a table of experts ---- */

#define LAYERS 16

static uint32_t rerouted[LAYERS], routed[LAYERS];

static bool reroutes(void *self)
{
    (void)self;
    return true;
}

static void reroute(void *self, const struct expert_step *step, const float *logits,
                    const struct model_router *rule, struct route *routes)
{
    (void)self, (void)logits, (void)rule, (void)routes;
    rerouted[step->layer]++;
}

static void note_routed(void *self, const struct expert_step *step, const struct route *routes)
{
    (void)self, (void)routes;
    routed[step->layer]++;
}

/* Experts of the source's choice are not for layers whose table says which ones a token uses. */
START_TEST(what_a_table_chooses_stays)
{
    uint32_t with_table = 0, without = 0;
    struct error error;
    image_open(&w.image, golden_path("converted/deepseek4-base.gguf"), CONTEXT);
    const struct model_index *m = w.image.model;
    struct core_sequence s = image_sequence(&w.image);
    struct core_config config = {.model = m,
                                 .ops = kernel_ops_select("auto"),
                                 .source = image_source(&w.image),
                                 .threads = 2,
                                 .chunk = 4,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    config.source.reroutes = reroutes;
    config.source.reroute = reroute;
    config.source.routed = note_routed;
    struct core *core = core_create(&config, &error);
    ck_assert_msg(core != NULL, "%s", error.text);
    for (uint32_t token = 1; token <= 3; token++)
        ck_assert_int_eq(core_forward(core, &s, &token, token - 1, 1, &error), 0);
    ck_assert_uint_le(m->hparams.layers, LAYERS);
    for (uint32_t l = 0; l < m->hparams.layers; l++) {
        bool table = model_entry_dense(m, l, DENSE_EXPERT_TABLE) != ENTRY_NONE;
        with_table += table;
        without += !table;
        ck_assert_uint_eq(routed[l], 3);
        ck_assert_uint_eq(rerouted[l], table ? 0 : 3);
    }
    ck_assert(with_table > 0 && without > 0);
    core_destroy(core);
    image_close(&w.image);
}
END_TEST

#define SEQUENCES 2
#define EXPERTS   64

static struct {
    uint32_t known[LAYERS][SEQUENCES][EXPERTS], used[LAYERS][SEQUENCES][EXPERTS];
    uint32_t calls;
    bool layer_started;
} noted;

static void note_known(void *self, const struct expert_step *step, uint32_t layer, uint32_t row,
                       const uint32_t *tokens)
{
    const struct image *image = self;
    ck_assert(!noted.layer_started);
    for (uint32_t e = 0; e < image->model->hparams.experts; e++)
        noted.known[layer][step->row[row].member][e] += tokens[e];
    noted.calls++;
}

static void note_used(void *self, const struct expert_step *step, const struct route *routes)
{
    const struct image *image = self;
    uint32_t k = image->model->hparams.experts_used;
    for (uint32_t i = 0; i < step->rows * k; i++)
        noted.used[step->layer][step->row[i / k].member][routes[i].expert]++;
}

static void note_layer(void *self, const struct expert_step *step)
{
    (void)self, (void)step;
    noted.layer_started = true;
}

/* What the rows of each sequence use in layers with a table. */
static void check_known(const struct model_index *m, uint32_t sequences)
{
    uint32_t tables = m->hparams.table_layers;
    ck_assert(tables > 0 && m->hparams.experts <= EXPERTS && m->hparams.layers <= LAYERS);
    ck_assert_uint_eq(noted.calls, tables * sequences);
    for (uint32_t l = 0; l < tables; l++)
        for (uint32_t s = 0; s < SEQUENCES; s++)
            ck_assert_mem_eq(noted.known[l][s], noted.used[l][s], sizeof noted.known[l][s]);
}

START_TEST(what_a_table_names_is_known_before)
{
    struct image other;
    struct error error;
    image_open(&w.image, golden_path("converted/deepseek4-base.gguf"), CONTEXT);
    image_open(&other, golden_path("converted/deepseek4-base.gguf"), CONTEXT);
    const struct model_index *m = w.image.model;
    struct core_config config = {.model = m,
                                 .ops = kernel_ops_select("auto"),
                                 .source = image_source(&w.image),
                                 .threads = 2,
                                 .chunk = 8,
                                 .prefill_order = prefill_order_of(PREFILL_ORDER_POPULARITY)};
    config.source.known = note_known;
    config.source.routed = note_used;
    config.source.layer_starts = note_layer;
    struct core *core = core_create(&config, &error);
    ck_assert_msg(core != NULL, "%s", error.text);
    const struct core_sequence s[] = {image_sequence(&w.image), image_sequence(&other)};
    const uint32_t tokens[] = {5, 9, 5, 40, 41, 7, 3};
    memset(&noted, 0, sizeof noted);
    ck_assert_int_eq(core_forward(core, s, tokens, 0, 7, &error), 0);
    check_known(m, 1);
    const struct core_row rows[] = {{.position = 7, .token = 11},
                                    {.sequence = 1, .token = 12, .prefill = true},
                                    {.sequence = 1, .position = 1, .token = 11, .prefill = true}};
    memset(&noted, 0, sizeof noted);
    ck_assert_int_eq(
        core_pass(core,
                  &(struct core_pass){.sequences = s, .sequence_count = 2, .row = rows, .rows = 3},
                  &error),
        0);
    check_known(m, 2);
    core_destroy(core);
    image_close(&other);
    image_close(&w.image);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core_table");
    TCase *t = tcase_create("core_table");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_bits_of_a_table_in_memory);
    tcase_add_test(t, a_row_that_cannot_be_read);
    tcase_add_test(t, what_a_table_chooses_stays);
    tcase_add_test(t, what_a_table_names_is_known_before);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
