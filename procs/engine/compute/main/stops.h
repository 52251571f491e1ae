/* Texts that end an answer. A function of the generated tokens alone, so that a successor of a dead
 * compute ends the answer where its predecessor would have.
 *
 * A match may begin in the middle of a token: the answer's text is then cut there, and what might
 * become a match is told to nobody before it is decided. */
#ifndef SLUICE_ENGINE_COMPUTE_MAIN_STOPS_H
#define SLUICE_ENGINE_COMPUTE_MAIN_STOPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ipc/engine/engine_client.h"
#include "lib/model/tokenizer/tokenizer.h"

/* Where the text ends: at `bytes` bytes of generated token `token`; UINT32_MAX: nowhere. */
struct stop_cut {
    uint32_t token, bytes;
};
#define STOP_CUT_NONE ((struct stop_cut){UINT32_MAX, 0})

/* log: the generated tokens, `count` of them. Whether a text of `stops` ends in the newest token;
 * *cut is where the first of them begins. To be asked after every token. */
bool stops_match(const struct stop_texts *stops, const struct tokenizer *tokenizer,
                 const _Atomic uint32_t *log, uint32_t count, struct stop_cut *cut);

/* How many of these tokens may be told while more are to come. */
uint32_t stops_settled(const struct stop_texts *stops, const struct tokenizer *tokenizer,
                       const _Atomic uint32_t *log, uint32_t count);

#endif
