/* SPDX-License-Identifier: Apache-2.0 */
/* Follows the tokens of one answer with its grammar. */
#include "procs/engine/compute/constraints/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define MASKS_KEPT 192

int constraints_open(struct constraints *all, const struct grammars *grammars, uint32_t vocab,
                     struct error *error)
{
    const struct tokenizer *t = grammars->tokenizer;
    uint32_t tokens = tokenizer_vocab(t) > vocab ? tokenizer_vocab(t) : vocab;
    *all = (struct constraints){.grammars = grammars, .mask_words = tokens / 64 + 1};
    all->mask = calloc(all->mask_words, sizeof *all->mask);
    for (uint32_t id = 0; id < tokenizer_vocab(t) && all->ends_count < CONSTRAINT_ENDS_MAX; id++)
        if (tokenizer_is_end(t, id))
            all->ends[all->ends_count++] = id;
    return all->mask ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (mask)");
}

void constraints_close(struct constraints *all)
{
    masks_free(all->masks);
    free(all->mask);
}

/* ---- tokens ---- */

/* A control token's name stands between two bytes that no text has, as in the vocabulary of the
 * masks. */
static bool accept_token(struct constraint *c, uint32_t token)
{
    const struct tokenizer *t = c->all->grammars->tokenizer;
    size_t bytes;
    const char *text = tokenizer_piece(t, token, &bytes);
    if (bytes > 0)
        return grammar_accept_text(c->state, text, bytes) == bytes;
    text = tokenizer_control_name(t, token, &bytes);
    return bytes > 0 && grammar_accept(c->state, GRAMMAR_CONTROL_BYTE) &&
           grammar_accept_text(c->state, text, bytes) == bytes &&
           grammar_accept(c->state, GRAMMAR_CONTROL_BYTE);
}

/* How many of the ids spell the first bytes of the text; *used: these bytes. */
static size_t spelled(const struct tokenizer *t, const uint32_t *ids, size_t count,
                      const char *text, size_t bytes, size_t *used)
{
    size_t i = 0, n;
    for (*used = 0; i < count; i++, *used += n) {
        const char *piece = tokenizer_piece(t, ids[i], &n);
        if (n == 0 || n > bytes - *used || memcmp(piece, text + *used, n) != 0)
            break;
    }
    return i;
}

/* Tokenizers that put a blank before a text do so before the line feed, too. */
#define LEAD "\n"

/* The tokens of a text, where they spell it exactly; else none. A tokenizer may normalise a text,
 * or begin it with a blank: then it is encoded behind a line feed. */
static int encode(const struct tokenizer *t, const char *text, size_t bytes, uint32_t **ids,
                  size_t *first, size_t *count, struct error *error)
{
    char led[sizeof LEAD + CONSTRAINT_FORCED_MAX] = LEAD;
    size_t used;
    if (tokenizer_encode(t, text, bytes, NULL, ids, count, error) != 0)
        return -1;
    *first = 0;
    if (spelled(t, *ids, *count, text, bytes, &used) == *count && used == bytes)
        return 0;
    free(*ids);
    memcpy(led + strlen(LEAD), text, bytes);
    if (tokenizer_encode(t, led, strlen(LEAD) + bytes, NULL, ids, count, error) != 0)
        return -1;
    for (*first = 1; *first < *count; ++*first)
        if (spelled(t, *ids + *first, *count - *first, text, bytes, &used) == *count - *first &&
            used == bytes)
            break;
    *count -= *first;
    return 0;
}

/* Finds the tokens of the only continuation. */
static int find_forced(struct constraint *c, struct error *error)
{
    char text[CONSTRAINT_FORCED_MAX];
    uint32_t *ids = NULL;
    size_t first, count;
    bool whole;
    c->forced_at = c->forced_count = 0;
    size_t bytes = grammar_forced(c->state, text, sizeof text, &whole);
    if (bytes == 0 || (bytes == 1 && !whole))
        return 0;
    if (encode(c->all->grammars->tokenizer, text, bytes, &ids, &first, &count, error) != 0)
        return -1;
    if (count > 0 && !whole)
        count--;
    sl_assert(count <= CONSTRAINT_FORCED_MAX);
    memcpy(c->forced, ids + first, count * sizeof *ids);
    c->forced_count = (uint32_t)count;
    free(ids);
    return 0;
}

int constraint_take(struct constraint *c, uint32_t token, struct error *error)
{
    if (tokenizer_is_end(c->all->grammars->tokenizer, token))
        return 0; /* the answer ends with it */
    if (!accept_token(c, token))
        return error_set(error, ERR_FAILED, "token %u does not fit the grammar of its answer",
                         token);
    if (c->forced_at < c->forced_count && c->forced[c->forced_at] == token &&
        ++c->forced_at < c->forced_count)
        return 0;
    return find_forced(c, error);
}

int constraint_begin(struct constraint *c, struct constraints *all, const struct grammar *grammar,
                     const _Atomic uint32_t *log, uint32_t count, struct error *error)
{
    *c = (struct constraint){.all = all};
    if (!all->masks)
        all->masks = masks_new(all->grammars->vocab, MASKS_KEPT);
    c->state = grammar_start(grammar);
    if (!all->masks || !c->state)
        return error_set(error, ERR_NO_MEMORY, "out of memory (state of a grammar)");
    if (find_forced(c, error) != 0)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        if (constraint_take(c, atomic_load_explicit(&log[i], memory_order_relaxed), error) != 0)
            return -1;
    return 0;
}

void constraint_end(struct constraint *c)
{
    grammar_stop(c->state);
    c->state = NULL;
}

bool constraint_is_complete(const struct constraint *c)
{
    return grammar_is_end(c->state) && !grammar_continues(c->state);
}

uint32_t constraint_forced(const struct constraint *c)
{
    return c->forced_at < c->forced_count ? c->forced[c->forced_at] : TOKEN_NONE;
}

const uint64_t *constraint_mask(struct constraint *c, bool ends)
{
    struct constraints *all = c->all;
    size_t words = vocab_mask_words(all->grammars->vocab);
    uint64_t any = 0;
    memcpy(all->mask, grammar_mask(all->masks, c->state), words * sizeof *all->mask);
    for (uint32_t i = 0; ends && grammar_is_end(c->state) && i < all->ends_count; i++)
        all->mask[all->ends[i] / 64] |= (uint64_t)1 << (all->ends[i] % 64);
    for (size_t i = 0; i < words; i++)
        any |= all->mask[i];
    return any ? all->mask : NULL;
}
