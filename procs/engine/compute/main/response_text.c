/* SPDX-License-Identifier: Apache-2.0 */
/* The pure part of a response: which tokens can be sent, and their text. */
#include <string.h>

#include "procs/engine/compute/main/compute.h"

#include "lib/text/utf8.h"

static bool occurs_in(const struct engine_marks *marks, const char *text, size_t bytes)
{
    for (uint32_t i = 0; i < marks->count; i++)
        if (memmem(marks->text[i], strlen(marks->text[i]), text, bytes))
            return true;
    return false;
}

/* The text of a token: none of a control token or an end (Gemma's <|tool_response> is user-defined,
 * and so has a piece), unless its name occurs in a mark. */
static const char *text_of(const struct tokenizer *tokenizer, uint32_t id,
                           const struct engine_marks *marks, bool ends, size_t *bytes)
{
    const char *piece = tokenizer_piece(tokenizer, id, bytes);
    if (*bytes > 0 && (ends || !tokenizer_is_end(tokenizer, id)))
        return piece;
    if (*bytes == 0)
        piece = tokenizer_control_name(tokenizer, id, bytes);
    if (*bytes > 0 && !occurs_in(marks, piece, *bytes))
        *bytes = 0;
    return piece;
}

static uint32_t id_of(const _Atomic uint32_t *token)
{
    return atomic_load_explicit(token, memory_order_relaxed);
}

/* Of a token of the client's text; `begins`: it is the first one. */
static const char *text_of_client(const struct tokenizer *tokenizer, const _Atomic uint32_t *token,
                                  bool begins, size_t *bytes)
{
    const char *piece = tokenizer_piece(tokenizer, id_of(token), bytes);
    if (*bytes == 0)
        return tokenizer_control_name(tokenizer, id_of(token), bytes);
    bool added = tokenizer_adds_blank(tokenizer) && piece[0] == ' ' &&
                 (begins || tokenizer_is_control(tokenizer, id_of(token - 1)));
    *bytes -= added;
    return piece + added;
}

size_t response_gather(struct response *a, const struct tokenizer *tokenizer,
                       const _Atomic uint32_t *log, uint32_t count, bool ended, struct stop_cut cut,
                       const struct engine_marks *marks, const struct client_text *prompt,
                       size_t *text_bytes)
{
    size_t sendable = 0, whole = 0, bytes = 0, n = 0;
    while (n < count && n < ENGINE_NEXT_IDS_MAX) {
        size_t piece_bytes, at = prompt->at + n;
        const char *piece =
            at >= prompt->first && at < prompt->end
                ? text_of_client(tokenizer, &log[n], at == prompt->first, &piece_bytes)
                : text_of(tokenizer, id_of(&log[n]), marks, prompt->ends, &piece_bytes);
        if (n >= cut.token)
            piece_bytes = n > cut.token ? 0 : cut.bytes;
        if (bytes + piece_bytes > sizeof a->text)
            break;
        memcpy(a->text + bytes, piece, piece_bytes);
        bytes += piece_bytes;
        a->piece_bytes[n] = (uint32_t)piece_bytes;
        a->ids[n] = id_of(&log[n]);
        n++;
        if (utf8_complete_prefix(a->text + whole, bytes - whole) == bytes - whole) {
            sendable = n;
            whole = bytes;
        }
    }
    if (ended && n == count) {
        sendable = n;
        whole = bytes;
    }
    *text_bytes = whole;
    return sendable;
}
