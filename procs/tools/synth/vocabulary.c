/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the keys of a synthetic tokenizer. */
#include "procs/tools/synth/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/arch/arch.h"
#include "lib/model/limits.h"
#include "lib/model/tokenizer/tokenizer.h"

#define WORD_BYTES 16
#define SYLLABLES  128u /* per position: three give more words than MODEL_VOCAB_MAX */

enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3 }; /* of tokenizer.ggml.token_type */

_Static_assert(SYLLABLES *SYLLABLES *SYLLABLES >= MODEL_VOCAB_MAX, "words for every token");

static const char *const merges[VOCABULARY_MERGES] = {"t h", "h e", "i n", "e r", "a n", "r e"};

/* U+0120 (the space of the byte alphabet) and three syllables: longer than any byte or merge. */
static void filler_word(uint32_t n, char word[WORD_BYTES])
{
    static const char consonants[] = "bcdfghjklmnprstvwxyzBCDFGHKLMNPR", vowels[] = "aeio";
    _Static_assert((sizeof consonants - 1) * (sizeof vowels - 1) == SYLLABLES, "syllables");
    char *at = word;
    memcpy(at, "\xc4\xa0", 2);
    at += 2;
    for (int digit = 0; digit < 3; digit++, n /= SYLLABLES) {
        *at++ = consonants[n % SYLLABLES / 4];
        *at++ = vowels[n % 4];
    }
    *at = 0;
}

static void name_token(uint32_t id, const uint16_t code_of_byte[256], char word[WORD_BYTES])
{
    if (id < 256) {
        uint16_t code = code_of_byte[id];
        if (code < 0x80) {
            word[0] = (char)code;
            word[1] = 0;
        } else {
            word[0] = (char)(0xc0 | code >> 6);
            word[1] = (char)(0x80 | (code & 0x3f));
            word[2] = 0;
        }
    } else if (id < 256 + VOCABULARY_MERGES) {
        word[0] = merges[id - 256][0];
        word[1] = merges[id - 256][2];
        word[2] = 0;
    } else if (id == 256 + VOCABULARY_MERGES) {
        strcpy(word, "<|end|>");
    } else {
        filler_word(id, word);
    }
}

int vocabulary_put_keys(struct gguf_writer *w, uint32_t vocab, struct error *error)
{
    const uint32_t end = 256 + VOCABULARY_MERGES;
    sl_assert(vocab >= VOCABULARY_MIN);
    char(*words)[WORD_BYTES] = malloc(vocab * sizeof *words);
    const char **texts = malloc(vocab * sizeof *texts);
    int32_t *types = malloc(vocab * sizeof *types);
    uint16_t code_of_byte[256];
    int rc = 0;
    if (words && texts && types) {
        tokenizer_byte_alphabet(code_of_byte);
        for (uint32_t i = 0; i < vocab; i++) {
            name_token(i, code_of_byte, words[i]);
            texts[i] = words[i];
            types[i] = i == end ? TYPE_CONTROL : TYPE_NORMAL;
        }
        gguf_put_text(w, "tokenizer.ggml.model", "gpt2");
        gguf_put_text(w, "tokenizer.ggml.pre", "gpt-2");
        gguf_put_strings(w, "tokenizer.ggml.tokens", texts, NULL, vocab);
        gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, vocab);
        gguf_put_strings(w, "tokenizer.ggml.merges", merges, NULL, VOCABULARY_MERGES);
        gguf_put_u32(w, "tokenizer.ggml.eos_token_id", end);
        gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    } else {
        rc = error_set(error, ERR_NO_MEMORY, "out of memory (vocabulary of %u tokens)", vocab);
    }
    free(words);
    free(texts);
    free(types);
    return rc;
}
