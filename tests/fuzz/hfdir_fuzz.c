/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: a Hugging Face directory of one or more safetensors files, with or without their index. Input: the
 * records of fuzz_dir.h. Opening it succeeds or fails with an error; every tensor of an accepted model is inside the
 * file that it names and has the bytes that the GGUF header promises. */
#include "lib/model/hf/hf.h"
#include "lib/model/index/model_index.h"
#include "tests/fuzz/fuzz_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_source(const struct hf_model *hf, const struct safetensor *t)
{
    sl_assert(t->file < hf->files.file_count);
    uint64_t bytes = hf->files.files[t->file].bytes;
    sl_assert(t->offset >= 8 && t->offset <= bytes && t->bytes <= bytes - t->offset);
}

static void check_model(const struct hf_model *hf)
{
    sl_assert(hf->tensor_count > 0 && hf->files.file_count > 0);
    for (uint32_t t = 0; t < hf->tensor_count; t++) {
        uint32_t experts = hf->tensors[t].experts ? hf->tensors[t].experts : 1;
        for (uint32_t e = 0; e < experts; e++)
            check_source(hf, hf_source(hf, t, e));
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
