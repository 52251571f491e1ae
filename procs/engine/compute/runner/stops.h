/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that end a response. A function of the generated tokens only, so that after a restart of
 * compute the response ends at the same position.
 *
 * A match can start in the middle of a token: the text of the response is then cut there. Text that
 * may become part of a match is held back until that is decided. */
#ifndef SLUICE_ENGINE_COMPUTE_RUNNER_STOPS_H
#define SLUICE_ENGINE_COMPUTE_RUNNER_STOPS_H

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
 * *cut is the start of the first match. Called after every token. */
bool stops_match(const struct stop_texts *stops, const struct tokenizer *tokenizer,
                 const _Atomic uint32_t *log, uint32_t count, struct stop_cut *cut);

/* Which text of `stops` begins at the cut that stops_match found; the shortest, which ended
 * first. */
uint32_t stops_which(const struct stop_texts *stops, const struct tokenizer *tokenizer,
                     const _Atomic uint32_t *log, uint32_t count, struct stop_cut cut);

/* How many of these tokens can be sent while the response is running. */
uint32_t stops_settled(const struct stop_texts *stops, const struct tokenizer *tokenizer,
                       const _Atomic uint32_t *log, uint32_t count);

#endif
