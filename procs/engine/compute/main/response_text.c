/* SPDX-License-Identifier: Apache-2.0 */
/* The pure part of a response: which tokens can be sent, and their text. */
#include <string.h>

#include "procs/engine/compute/main/compute.h"

#include "lib/text/utf8.h"

/* The text of a token: none of a control token, unless its name occurs in a mark. */
static const char *text_of(const struct tokenizer *tokenizer, uint32_t id,
                           const struct engine_marks *marks, size_t *bytes)
{
    const char *piece = tokenizer_piece(tokenizer, id, bytes);
    if (*bytes > 0 || marks->count == 0)
        return piece;
    const char *name = tokenizer_control_name(tokenizer, id, bytes);
    for (uint32_t i = 0; *bytes > 0 && i < marks->count; i++)
        if (memmem(marks->text[i], strlen(marks->text[i]), name, *bytes))
            return name;
    *bytes = 0;
    return piece;
}

size_t response_gather(struct response *a, const struct tokenizer *tokenizer,
                       const _Atomic uint32_t *log, uint32_t count, bool ended, struct stop_cut cut,
                       const struct engine_marks *marks, size_t *text_bytes)
{
    size_t sendable = 0, whole = 0, bytes = 0, n = 0;
    while (n < count && n < ENGINE_NEXT_IDS_MAX) {
        uint32_t id = atomic_load_explicit(&log[n], memory_order_relaxed);
        size_t piece_bytes;
        const char *piece = text_of(tokenizer, id, marks, &piece_bytes);
        if (n >= cut.token)
            piece_bytes = n > cut.token ? 0 : cut.bytes;
        if (bytes + piece_bytes > sizeof a->text)
            break;
        memcpy(a->text + bytes, piece, piece_bytes);
        bytes += piece_bytes;
        a->piece_bytes[n] = (uint32_t)piece_bytes;
        a->ids[n++] = id;
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
