/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as windows of tokens, the input of losses and statistics. */
#ifndef SLUICE_OFFLINE_TEXT_H
#define SLUICE_OFFLINE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/index/model_index.h"

/* Every text is tokenised as a whole, without control tokens, and cut into consecutive windows that
 * do not overlap; an incomplete last window of a text is dropped. The windows of all texts are
 * consecutive in ids. */
struct offline_text {
    uint32_t *ids; /* [windows][window] */
    uint32_t windows, window;
    uint16_t *path; /* [windows] the text of each: an index of paths; NULL: not loaded from files */
    uint64_t hash;  /* XXH3-64 over the ids, seeded with the window */
    uint64_t tokens_in_files;
};

/* tokens_max: maximum tokens kept, as windows spread evenly over all texts; 0: all.
 * ERR_BAD_INPUT when a file cannot be read, there is no whole window, or one has more tokens than
 * the engine computes of the model. Free it with offline_text_free. */
int offline_text_load(const struct model_index *model, const char *const *paths, size_t count,
                      uint32_t window, uint64_t tokens_max, struct offline_text *text,
                      struct error *error);
void offline_text_free(struct offline_text *text);

/* Space for `windows` windows of ids, at least one, for the caller to fill with synthetic tokens;
 * offline_text_rehash must follow. ERR_BAD_INPUT as above; fatal when memory is short. */
int offline_text_alloc(const struct model_index *model, uint32_t windows, uint32_t window,
                       struct offline_text *text, struct error *error);
void offline_text_rehash(struct offline_text *text);

/* Every n-th window of `from`, starting with window `first`, as a text that borrows nothing. Fatal
 * when memory is short. */
struct offline_text offline_text_some(const struct offline_text *from, uint32_t first, uint32_t n);

/* The windows whose role[windows] is `role`, in the same way. At least one. */
struct offline_text offline_text_chosen(const struct offline_text *from, const uint8_t *roles,
                                        uint8_t role);

static inline const uint32_t *offline_window(const struct offline_text *t, uint32_t window)
{
    return t->ids + (size_t)window * t->window;
}

#endif
