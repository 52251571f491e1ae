/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a Hugging Face directory of one or more safetensors files, with or without their
 * index. Input: the records of fuzz_dir.h. Opening it succeeds or fails with an error; every tensor
 * of an accepted model is inside the file that it names and has the bytes that the GGUF header
 * promises. */
#include "lib/model/hf/hf.h"
#include "lib/model/index/model_index.h"
#include "tests/fuzz/fuzz_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_extent(const struct hf_model *hf, struct hf_extent at)
{
    sl_assert(at.file < hf->files.file_count);
    uint64_t bytes = hf->files.files[at.file].bytes;
    sl_assert(at.offset >= 8 && at.offset <= bytes && at.bytes <= bytes - at.offset);
}

/* Makes rows of zeros: every index of the source is inside the part. */
static void check_rows(const struct hf_model *hf, uint32_t t, uint32_t plane, uint64_t row,
                       uint64_t rows)
{
    const struct hf_tensor *h = &hf->tensors[t];
    struct error error = {0};
    struct hf_part part = {0};
    if (h->form != HF_MADE) {
        part = hf_part_of(hf, t, plane, row, rows);
        check_extent(hf, part.at);
    }
    struct hf_extent at = hf_scales_of(hf, t, plane);
    if (at.bytes > 0)
        check_extent(hf, at);
    void *src = calloc(1, part.at.bytes + 1), *scales = calloc(1, at.bytes + 1);
    void *made = malloc(rows * h->made_row_bytes);
    sl_assert(src && scales && made);
    if (hf_make_rows(hf, t, plane, &part, src, scales, row, rows, made, &error))
        sl_assert(error.code == ERR_BAD_INPUT);
    free(made);
    free(scales);
    free(src);
}

static void check_model(const struct hf_model *hf)
{
    sl_assert(hf->tensor_count > 0 && hf->files.file_count > 0);
    for (uint32_t t = 0; t < hf->tensor_count; t++) {
        const struct hf_tensor *h = &hf->tensors[t];
        uint64_t n = h->rows < 3 ? h->rows : 3;
        for (uint32_t plane = 0; plane < h->planes; plane++) {
            check_rows(hf, t, plane, 0, n);
            check_rows(hf, t, plane, h->rows - n, n);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_model hf;
    struct error error = {0};
    bool gguf;
    if (hf_open(&hf, fuzz_dir_make(data, size, &gguf), &error)) {
        sl_assert(error.code != ERR_NONE && error.text[0] && !strchr(error.text, '\n'));
        return 0;
    }
    check_model(&hf);
    hf_close(&hf);
    return 0;
}
