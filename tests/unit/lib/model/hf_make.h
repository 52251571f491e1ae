/* Makes a Hugging Face directory of a GGUF file, for tests: config.json, tokenizer.json and
 * safetensors. Written without regard to lib/model/hf*, from what these files look like. */
#ifndef SLUICE_TESTS_UNIT_LIB_MODEL_HF_MAKE_H
#define SLUICE_TESTS_UNIT_LIB_MODEL_HF_MAKE_H

#include <jansson.h>
#include <stdbool.h>

struct hf_make {
    const char *gguf; /* F16 and F32 tensors */
    const char *dir;  /* is there */
    bool half_norms;  /* F32 tensors are written as F16 (they must be such numbers) */
    bool two_files;   /* with model.safetensors.index.json */
    /* May change what is written; NULL: does not. */
    void (*edit)(json_t *config, json_t *tokenizer);
    /* Name of a tensor to leave out, or NULL. */
    const char *without;
};

/* Ends the program when it cannot. */
void hf_make(const struct hf_make *m);

/* Removes what hf_make wrote, and the directory. */
void hf_unmake(const char *dir);

#endif
