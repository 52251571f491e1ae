/* SPDX-License-Identifier: Apache-2.0 */
/* Matches stop texts against the generated tokens. */
#include "procs/engine/compute/runner/stops.h"

#include "lib/base/assert.h"

struct position { /* a byte of the generated text */
    uint32_t token;
    size_t byte;
};

struct response_log {
    const struct tokenizer *tokenizer;
    const _Atomic uint32_t *log;
    uint32_t count;
};

enum match_result { ABSENT, PARTIAL, PRESENT };

static const char *piece_at(const struct response_log *a, uint32_t token, size_t *bytes)
{
    return tokenizer_piece(a->tokenizer, atomic_load_explicit(&a->log[token], memory_order_relaxed),
                           bytes);
}

/* How a stop text matches the generated text from a position on. */
static enum match_result match_at(const struct response_log *a, struct position from,
                                  const char *stop, size_t stop_bytes)
{
    size_t bytes, matched = 0;
    for (; from.token < a->count; from = (struct position){from.token + 1, 0}) {
        const char *piece = piece_at(a, from.token, &bytes);
        for (; from.byte < bytes; from.byte++) {
            if (piece[from.byte] != stop[matched])
                return ABSENT;
            if (++matched == stop_bytes)
                return PRESENT;
        }
    }
    return PARTIAL;
}

static enum match_result match_any(const struct response_log *a, const struct stop_texts *stops,
                                   struct position from)
{
    enum match_result best = ABSENT;
    for (uint32_t i = 0; i < stops->count; i++) {
        enum match_result m = match_at(a, from, stops->text[i], stops->bytes[i]);
        best = m > best ? m : best;
    }
    return best;
}

/* The earliest token in which a stop text that ends in the newest token can start. */
static uint32_t first_token(const struct response_log *a)
{
    uint32_t token = a->count - 1;
    for (size_t bytes = 0, before = 0; token > 0 && before + 1 < STOP_TEXT_BYTES_MAX;
         before += bytes)
        piece_at(a, --token, &bytes);
    return token;
}

/* The first position where a stop text matches, or, with `partial`, can still match. */
static bool find(const struct response_log *a, const struct stop_texts *stops, bool partial,
                 struct position *found)
{
    for (uint32_t token = first_token(a); token < a->count; token++) {
        size_t bytes;
        piece_at(a, token, &bytes);
        for (size_t byte = 0; byte < bytes; byte++) {
            struct position from = {token, byte};
            enum match_result m = match_any(a, stops, from);
            if (m == PRESENT || (partial && m == PARTIAL)) {
                *found = from;
                return true;
            }
        }
    }
    return false;
}

bool stops_match(const struct stop_texts *stops, const struct tokenizer *tokenizer,
                 const _Atomic uint32_t *log, uint32_t count, struct stop_cut *cut)
{
    const struct response_log a = {tokenizer, log, count};
    struct position found;
    sl_assert(stops->count <= STOP_TEXTS_MAX);
    if (stops->count == 0 || count == 0 || !find(&a, stops, false, &found))
        return false;
    *cut = (struct stop_cut){found.token, (uint32_t)found.byte};
    return true;
}

uint32_t stops_which(const struct stop_texts *stops, const struct tokenizer *tokenizer,
                     const _Atomic uint32_t *log, uint32_t count, struct stop_cut cut)
{
    const struct response_log a = {tokenizer, log, count};
    uint32_t best = stops->count;
    for (uint32_t i = 0; i < stops->count; i++)
        if (match_at(&a, (struct position){cut.token, cut.bytes}, stops->text[i],
                     stops->bytes[i]) == PRESENT &&
            (best == stops->count || stops->bytes[i] < stops->bytes[best]))
            best = i;
    return best;
}

uint32_t stops_settled(const struct stop_texts *stops, const struct tokenizer *tokenizer,
                       const _Atomic uint32_t *log, uint32_t count)
{
    const struct response_log a = {tokenizer, log, count};
    struct position found;
    sl_assert(stops->count <= STOP_TEXTS_MAX);
    if (stops->count == 0 || count == 0 || !find(&a, stops, true, &found))
        return count;
    return found.token;
}
