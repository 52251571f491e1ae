/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the source of a pack, a GGUF file or a Hugging Face directory. Input: the records of
 * fuzz_dir.h. Opening it succeeds or fails with an error. Of an accepted one, every matrix of an
 * expert is inside its file, and every dense tensor can be read, in whole rows of the type that the
 * header names. The last bit of the input decides what FP8 becomes. */
#include "lib/tensor/tensor_type.h"
#include "procs/tools/pack/source.h"
#include "tests/fuzz/fuzz_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EXPERTS_MAX 64 /* of those of an input */
#define ROWS_MAX    64

static int count(void *arg, const void *data, uint64_t bytes, struct error *error)
{
    (void)error;
    volatile uint8_t last =
        ((const uint8_t *)data)[bytes - 1]; /* a sanitizer sees a short buffer */
    (void)last;
    *(uint64_t *)arg += bytes;
    return 0;
}

static void check_error(const struct error *error)
{
    sl_assert(error->code != ERR_NONE && error->text[0] && !strchr(error->text, '\n'));
}

static void read_expert(const struct source *s, struct hf_extent from)
{
    struct error error = {0};
    struct bulk file;
    const void *data;
    sl_assert(from.file < s->file_count);
    const struct source_file *f = &s->files[from.file];
    sl_assert(from.bytes > 0 && from.offset <= f->bytes && from.bytes <= f->bytes - from.offset);
    void *buf = bulk_buffer(from.bytes + 2 * PAGE_BYTES);
    sl_assert(buf && bulk_open(&file, f->path, O_RDONLY, &error) == 0);
    sl_assert(source_read(&file, buf, from.offset, from.bytes, &data, &error) == 0);
    sl_assert(source_read(&file, buf, f->bytes, 1, &data, &error) == -1 && error.code == ERR_GONE);
    bulk_close(&file);
    free(buf);
}

/* Rows that are converted, the first and the last ones, have the size of those in the index. */
static void check_converted(const struct source *s, uint32_t layer, uint32_t expert,
                            enum expert_matrix m)
{
    struct error error = {0};
    struct source_reader r;
    struct bulk file;
    uint32_t tensor = source_converted(s, layer, expert, m);
    const struct model_matrix *matrix =
        &model_index_entries(s->index)[model_entry_expert(s->index, layer, expert)].matrix[m];
    if (tensor == SOURCE_SAME)
        return;
    const struct hf_tensor *t = &s->hf.tensors[tensor];
    sl_assert(t->rows == matrix->n && t->made_row_bytes == matrix->row_bytes);
    uint64_t n = t->rows < ROWS_MAX ? t->rows : ROWS_MAX;
    uint8_t *made = malloc(n * t->made_row_bytes);
    uint32_t from = source_expert(s, layer, expert, m).file;
    sl_assert(made && bulk_open(&file, s->files[from].path, O_RDONLY, &error) == 0);
    reader_open(&r, s);
    sl_assert(reader_plane(&r, tensor, expert, &error) == 0);
    if (reader_rows(&r, &file, 0, n, made, &error) ||
        reader_rows(&r, &file, t->rows - n, n, made, &error))
        check_error(&error);
    reader_close(&r);
    bulk_close(&file);
    free(made);
}

static void check_experts(const struct source *s)
{
    const struct model_hparams *h = &s->index->hparams;
    uint32_t left = EXPERTS_MAX;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        for (uint32_t expert = 0; expert < h->experts && left > 0; expert++, left--)
            for (int m = 0; m < EXPERT__COUNT && model_layer_has_experts(s->index, layer); m++) {
                read_expert(s, source_expert(s, layer, expert, (enum expert_matrix)m));
                check_converted(s, layer, expert, (enum expert_matrix)m);
            }
}

static void check_dense(const struct source *s)
{
    for (uint32_t t = 0; t < s->gguf.tensor_count; t++) {
        struct error error = {0};
        uint64_t bytes = 0;
        if (!source_is_dense(s, t))
            continue;
        if (source_dense(s, t, count, &bytes, &error))
            check_error(&error);
        else
            sl_assert(bytes == s->gguf.tensors[t].bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[PATH_MAX];
    struct source s;
    struct error error = {0};
    bool gguf;
    const char *dir = fuzz_dir_make(data, size, &gguf);
    snprintf(path, sizeof path, "%s%s%s", dir, gguf ? "/" : "", gguf ? fuzz_names[FUZZ_GGUF] : "");
    if (source_open(&s, path, size > 0 && data[size - 1] & 1 ? TENSOR_Q8_0 : TENSOR_BF16, &error)) {
        check_error(&error);
        return 0;
    }
    check_experts(&s);
    check_dense(&s);
    sl_assert(source_unchanged(&s, &error) == 0);
    fuzz_write(gguf ? fuzz_names[FUZZ_GGUF] : fuzz_names[4], false, data, 1, 0);
    if (source_unchanged(&s, &error))
        sl_assert(error.code == ERR_GONE);
    source_close(&s);
    return 0;
}
