/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled grammars, found by their source. */
#include "procs/engine/compute/constraints/grammars.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

/* The language is bounded to what real tools need, because the whole engine has one budget: about
 * 12 MiB while it is compiled. */
static const struct grammar_limits limits = {.text_bytes = GRAMMAR_TEXT_BYTES_MAX,
                                             .expressions = 200000,
                                             .nodes = 200000,
                                             .tables = 2048,
                                             .repeat = 65536,
                                             .depth = 200};

struct kept_grammar {
    struct kept_grammar *older;
    struct grammar *grammar;
    struct grammar_source source; /* its texts follow this struct */
    size_t bytes;
    uint32_t rows; /* that have it */
};

void grammars_init(struct grammars *g, const struct tokenizer *tokenizer)
{
    *g = (struct grammars){.tokenizer = tokenizer};
}

/* ---- the vocabulary ---- */

/* Control tokens get their names between two bytes that no text has. Those that end an answer have
 * no text: they are allowed where the grammar ends. */
static bool has_name(const struct tokenizer *t, uint32_t id, const char **name, size_t *bytes)
{
    *name = tokenizer_control_name(t, id, bytes);
    return *bytes > 0 && !tokenizer_is_end(t, id);
}

static size_t names_bytes(const struct tokenizer *t)
{
    const char *name;
    size_t sum = 1, bytes;
    for (uint32_t id = 0; id < tokenizer_vocab(t); id++)
        sum += has_name(t, id, &name, &bytes) ? bytes + 2 : 0;
    return sum;
}

static void fill_texts(const struct tokenizer *t, struct token_text *texts, char *names)
{
    for (uint32_t id = 0; id < tokenizer_vocab(t); id++) {
        const char *name;
        size_t bytes;
        if (has_name(t, id, &name, &bytes)) {
            texts[id] = (struct token_text){names, (uint32_t)bytes + 2};
            *names++ = (char)GRAMMAR_CONTROL_BYTE;
            memcpy(names, name, bytes);
            names += bytes;
            *names++ = (char)GRAMMAR_CONTROL_BYTE;
        } else {
            texts[id].at = tokenizer_piece(t, id, &bytes);
            texts[id].bytes = (uint32_t)bytes;
        }
    }
}

static int need_vocab(struct grammars *g, struct error *error)
{
    if (g->vocab)
        return 0;
    uint32_t count = tokenizer_vocab(g->tokenizer);
    struct token_text *texts = calloc(count, sizeof *texts);
    char *names = malloc(names_bytes(g->tokenizer));
    if (texts && names) {
        fill_texts(g->tokenizer, texts, names);
        g->vocab = vocab_new(texts, count);
    }
    free(texts);
    g->names = names;
    if (g->vocab)
        return 0;
    free(names);
    g->names = NULL;
    return error_set(error, ERR_NO_MEMORY, "out of memory (vocabulary for grammars)");
}

/* ---- kept grammars ---- */

static bool same_mark(const char *a, const char *b)
{
    return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

static bool same(const struct grammar_source *a, const struct grammar_source *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && same_mark(a->open, b->open) &&
           same_mark(a->close, b->close) && same_mark(a->trigger, b->trigger) &&
           memcmp(a->text, b->text, a->bytes) == 0;
}

static const char *copy_mark(char **at, const char *mark)
{
    if (!mark)
        return NULL;
    char *copy = *at;
    size_t bytes = strlen(mark) + 1;
    memcpy(copy, mark, bytes);
    *at += bytes;
    return copy;
}

static size_t mark_bytes(const char *mark)
{
    return mark ? strlen(mark) + 1 : 0;
}

static struct kept_grammar *new_kept(const struct grammar_source *s, struct error *error)
{
    size_t texts = s->bytes + mark_bytes(s->open) + mark_bytes(s->close) + mark_bytes(s->trigger);
    struct kept_grammar *k = malloc(sizeof *k + texts);
    if (!k) {
        error_set(error, ERR_NO_MEMORY, "out of memory (grammar)");
        return NULL;
    }
    char *at = (char *)(k + 1);
    *k = (struct kept_grammar){.source = {.kind = s->kind, .text = at, .bytes = s->bytes}};
    memcpy(at, s->text, s->bytes);
    at += s->bytes;
    k->source.open = copy_mark(&at, s->open);
    k->source.close = copy_mark(&at, s->close);
    k->source.trigger = copy_mark(&at, s->trigger);
    k->bytes = sizeof *k + texts;
    if (grammar_compile(&k->source, &limits, &k->grammar, error) != 0) {
        free(k);
        return NULL;
    }
    k->bytes += grammar_memory_bytes(k->grammar);
    return k;
}

static struct kept_grammar *find(struct grammars *g, const struct grammar_source *source)
{
    for (struct kept_grammar **at = &g->newest; *at; at = &(*at)->older) {
        struct kept_grammar *k = *at;
        if (!same(&k->source, source))
            continue;
        *at = k->older;
        k->older = g->newest;
        g->newest = k;
        return k;
    }
    return NULL;
}

/* Gives up what no row has until at most `most` bytes are left, those used longest ago first. */
static void give_up(struct grammars *g, size_t most)
{
    while (g->bytes > most) {
        struct kept_grammar **oldest = NULL;
        for (struct kept_grammar **at = &g->newest; *at; at = &(*at)->older)
            if ((*at)->rows == 0)
                oldest = at;
        if (!oldest)
            return;
        struct kept_grammar *k = *oldest;
        *oldest = k->older;
        g->bytes -= k->bytes;
        grammar_free(k->grammar);
        free(k);
    }
}

static int make(struct grammars *g, const struct grammar_source *source, struct error *error)
{
    give_up(g, GRAMMARS_KEPT_BYTES);
    struct kept_grammar *k = new_kept(source, error);
    if (!k)
        return -1;
    k->older = g->newest;
    g->newest = k;
    g->bytes += k->bytes;
    if (g->bytes <= GRAMMARS_BYTES_MAX)
        return 0;
    give_up(g, GRAMMARS_KEPT_BYTES);
    return error_set(error, ERR_BUSY,
                     "the grammars of other requests have all memory for grammars; retry later");
}

int grammars_take(struct grammars *g, const struct grammar_source *source, uint32_t row,
                  struct error *error)
{
    sl_assert(row < KV_REQUESTS_MAX && !g->of_row[row]);
    if (need_vocab(g, error) != 0 || (!find(g, source) && make(g, source, error) != 0))
        return -1;
    g->newest->rows++;
    g->of_row[row] = g->newest->grammar;
    return 0;
}

void grammars_drop(struct grammars *g, uint32_t row)
{
    for (struct kept_grammar *k = g->newest; k && g->of_row[row]; k = k->older)
        if (k->grammar == g->of_row[row]) {
            k->rows--;
            g->of_row[row] = NULL;
        }
    give_up(g, GRAMMARS_KEPT_BYTES);
}

void grammars_close(struct grammars *g)
{
    for (uint32_t row = 0; row < KV_REQUESTS_MAX; row++)
        grammars_drop(g, row);
    give_up(g, 0);
    vocab_free(g->vocab);
    free(g->names);
}

static const char *mark_of(const char *mark)
{
    return mark[0] ? mark : NULL;
}

struct grammar_source grammars_source(const struct kv *kv, uint32_t row)
{
    const struct kv_request *q = &kv->head->request[row];
    if (q->grammar == GRAMMAR_NONE)
        return (struct grammar_source){.kind = GRAMMAR_NONE};
    const struct kv_extra *x = kv_extra(kv, row);
    return (struct grammar_source){.kind = (enum grammar_kind)q->grammar,
                                   .text = x->text,
                                   .bytes = q->grammar_bytes,
                                   .open = mark_of(x->open),
                                   .close = mark_of(x->close),
                                   .trigger = mark_of(x->trigger)};
}
