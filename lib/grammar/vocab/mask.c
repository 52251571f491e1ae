/* SPDX-License-Identifier: Apache-2.0 */
/* Makes masks by a walk through the vocabulary's tree with the automaton beside it, and stores
 * them. */
#include <stdlib.h>
#include <string.h>

#include "lib/grammar/state.h"
#include "lib/grammar/vocab/tree.h"

#define CHARACTER_BYTES 4    /* of one in UTF-8 */
#define KEY_WORDS_MAX   4096 /* of larger states no mask is kept */

struct kept_mask {
    uint64_t grammar;    /* its id; 0: free */
    uint64_t used, hash; /* used: the time of its last use */
    uint32_t *key, key_words;
    uint64_t *bits;
};

struct masks {
    const struct vocab *v;
    struct kept_mask *kept;
    uint32_t kept_count;
    uint64_t time;
    struct masks_counts counts;
    struct items *levels; /* after each byte of the token that is tried */
    uint32_t *frames;     /* of the state before that byte */
    uint64_t *bits;       /* of a mask that is not kept */
    uint64_t steps;       /* of the mask that is made */
    uint32_t key[KEY_WORDS_MAX], key_words;
    bool key_full;
};

/* Rooms behind the levels of tokens, for steps that are only tried. */
enum {
    TRY_CHARACTER,
    TRY_OTHER = CHARACTER_BYTES,
    TRY_ONE,
    TRY_NEXT,
    TRY_FREE,
    TRY_BOUND,
    TRY_WALK,
    TRY__COUNT = TRY_WALK + 2
};

struct masks *masks_new(const struct vocab *v, uint32_t kept)
{
    struct masks *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->v = v;
    m->counts.nodes = v->all.nodes_count;
    m->kept_count = kept;
    m->kept = calloc(kept + 1u, sizeof(*m->kept));
    m->levels = malloc((v->deepest + TRY__COUNT + 1u) * sizeof(*m->levels));
    m->frames = malloc((v->deepest + 1u) * sizeof(*m->frames));
    m->bits = calloc(vocab_mask_words(v) + 1, sizeof(*m->bits));
    if (!m->kept || !m->levels || !m->frames || !m->bits) {
        masks_free(m);
        return NULL;
    }
    return m;
}

static void drop(struct kept_mask *k)
{
    free(k->key);
    free(k->bits);
    *k = (struct kept_mask){0};
}

void masks_free(struct masks *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; m->kept && i < m->kept_count; i++)
        drop(&m->kept[i]);
    free(m->kept);
    free(m->levels);
    free(m->frames);
    free(m->bits);
    free(m);
}

/* ---- the walk ---- */

static void allow(const struct masks *m, uint64_t *bits, uint32_t token)
{
    for (; token != TREE_NO_TOKEN; token = m->v->same[token])
        bits[token / 64] |= (uint64_t)1 << (token % 64);
}

/* Tokens whose first byte is in `only`. Nodes come in depth-first order: what a node of depth d
 * needs is the level d - 1. */
static void walk(struct masks *m, struct grammar_state *s, const struct tree *tree,
                 const uint64_t only[4], uint64_t *bits)
{
    const uint32_t frames = s->frames_count;
    uint64_t first[4], most = (uint64_t)m->v->all.nodes_count * MASK_STEPS_PER_NODE;
    most = most > MASK_STEPS_MIN ? most : MASK_STEPS_MIN;
    items_bytes(s, &s->now, first);
    for (unsigned i = 0; i < 4; i++)
        first[i] &= only[i];
    m->frames[0] = frames;
    for (uint32_t i = 0; i < tree->nodes_count;) {
        const struct tree_node *n = &tree->nodes[i];
        const struct items *from = n->depth == 1 ? &s->now : &m->levels[n->depth - 1];
        state_take_back(s, m->frames[n->depth - 1]);
        if (m->steps + from->count > most)
            break;
        m->steps += from->count;
        if ((n->depth == 1 && !set_has(first, n->byte)) ||
            !state_step(s, from, n->byte, &m->levels[n->depth])) {
            i = n->end;
            continue;
        }
        m->frames[n->depth] = s->frames_count;
        allow(m, bits, n->token);
        i++;
    }
    if (m->steps > m->counts.steps_most)
        m->counts.steps_most = m->steps;
    state_take_back(s, frames);
}

/* ---- states that plain characters do not change ---- */

static uint32_t at_most(uint32_t value, uint32_t limit)
{
    return value < limit ? value : limit;
}

static struct items *room(struct masks *m, uint32_t number)
{
    return &m->levels[m->v->deepest + 1 + number];
}

static bool items_equal(const struct items *a, const struct items *b)
{
    return a->count == b->count && a->end == b->end &&
           memcmp(a->at, b->at, a->count * sizeof(a->at[0])) == 0;
}

/* The item that `x` is behind one more character of its loop: itself where the loop is not counted.
 * NULL: it is not there. */
static const struct item *next_of(const struct grammar_state *s, const struct items *items,
                                  struct item x)
{
    const struct frame *f = &s->frames[x.frame];
    for (uint32_t i = 0; i < items->count; i++) {
        const struct item *y = &items->at[i];
        const struct frame *h = &s->frames[y->frame];
        if (y->node == x.node &&
            (y->frame == x.frame || (x.frame && y->frame && h->node == f->node &&
                                     h->parent == f->parent && h->count == f->count + 1)))
            return y;
    }
    return NULL;
}

/* From `from`, every byte of [low, high] leads to one state, *to. */
static bool all_lead(struct masks *m, struct grammar_state *s, const struct items *from,
                     uint8_t low, uint8_t high, struct items *to)
{
    struct items *other = room(m, TRY_OTHER);
    if (!state_step(s, from, low, to))
        return false;
    for (unsigned c = low + 1u; c <= high; c++)
        if (!state_step(s, from, (uint8_t)c, other) || !items_equal(to, other))
            return false;
    return true;
}

/* Characters of UTF-8: their first byte, their second one, and how many follow. */
static const struct {
    uint8_t low, high, second_low, second_high, more;
} characters[] = {{0xC2, 0xDF, 0x80, 0xBF, 0}, {0xE0, 0xE0, 0xA0, 0xBF, 1},
                  {0xE1, 0xEC, 0x80, 0xBF, 1}, {0xED, 0xED, 0x80, 0x9F, 1},
                  {0xEE, 0xEF, 0x80, 0xBF, 1}, {0xF0, 0xF0, 0x90, 0xBF, 2},
                  {0xF1, 0xF3, 0x80, 0xBF, 2}, {0xF4, 0xF4, 0x80, 0x8F, 2}};

/* Every plain character leads from the item to itself, but for a count. */
static bool takes_plain(struct masks *m, struct grammar_state *s, struct item x)
{
    struct items *one = room(m, TRY_ONE), *level = room(m, TRY_CHARACTER);
    one->count = 1;
    one->end = false;
    one->at[0] = x;
    for (unsigned c = 0; c < 0x80; c++)
        if (tree_plain((uint8_t)c) &&
            (!state_step(s, one, (uint8_t)c, &level[0]) || !next_of(s, &level[0], x)))
            return false;
    for (size_t i = 0; i < sizeof(characters) / sizeof(*characters); i++) {
        uint32_t at = 1;
        if (!all_lead(m, s, one, characters[i].low, characters[i].high, &level[0]) ||
            !all_lead(m, s, &level[0], characters[i].second_low, characters[i].second_high,
                      &level[1]))
            return false;
        for (; at <= characters[i].more; at++)
            if (!all_lead(m, s, &level[at], 0x80, 0xBF, &level[at + 1]))
                return false;
        if (!next_of(s, &level[at], x))
            return false;
    }
    return true;
}

/* Whether no item but `x` (NULL: none at all) takes the first byte of a plain character. */
static bool alone(struct masks *m, const struct grammar_state *s, const struct items *items,
                  const struct item *x)
{
    struct items *others = room(m, TRY_OTHER);
    uint64_t bytes[4];
    others->count = 0;
    for (uint32_t i = 0; i < items->count; i++)
        if (&items->at[i] != x)
            others->at[others->count++] = items->at[i];
    items_bytes(s, others, bytes);
    for (unsigned c = 0; c < 256; c++)
        if (set_has(bytes, (uint8_t)c) && (c >= 0x80 || tree_plain((uint8_t)c)))
            return false;
    return true;
}

/* How many plain characters fit, each of them any: then a token that consists of them needs no
 * walk. UINT32_MAX: as many as a token has; 0: not known. Inside strings and free text there is one
 * item that takes them, and they only count; it is followed here for as long as a token can be. */
static uint32_t plain_room(struct masks *m, struct grammar_state *s, const struct items *at)
{
    const struct item *x = NULL;
    for (uint32_t i = 0; i < at->count && !x; i++)
        if (program_step(s->g, at->at[i].node, 'a') != NODE_NEVER)
            x = &at->at[i];
    if (!x || !alone(m, s, at, x) || !takes_plain(m, s, *x))
        return 0;
    for (uint32_t n = 1; n <= m->v->deepest; n++) {
        struct items *to = room(m, TRY_WALK + n % 2);
        struct item before = *x;
        if (!state_step(s, at, 'a', to))
            return 0;
        x = next_of(s, to, before);
        if (!alone(m, s, to, x))
            return 0;
        if (!x)
            return n;
        if (x->frame == before.frame)
            return UINT32_MAX;
        at = to;
    }
    return UINT32_MAX;
}

/* Plain tokens of at most so many characters. */
static void allow_plain(const struct vocab *v, uint32_t most, uint64_t *bits)
{
    for (uint32_t t = 0; t < v->tokens; t++)
        if (v->characters[t] > 0 && v->characters[t] <= most)
            bits[t / 64] |= (uint64_t)1 << (t % 64);
}

static void items_copy(struct items *to, const struct items *from)
{
    to->count = from->count;
    to->end = from->end;
    memcpy(to->at, from->at, from->count * sizeof(from->at[0]));
}

/* Where one character leads from the state, in every case of its class. NULL: not to one state. */
static const struct items *behind_class(struct masks *m, struct grammar_state *s, size_t class)
{
    struct items *level = room(m, TRY_CHARACTER);
    uint32_t at = 1;
    if (!all_lead(m, s, &s->now, characters[class].low, characters[class].high, &level[0]) ||
        !all_lead(m, s, &level[0], characters[class].second_low, characters[class].second_high,
                  &level[1]))
        return NULL;
    for (; at <= characters[class].more; at++)
        if (!all_lead(m, s, &level[at], 0x80, 0xBF, &level[at + 1]))
            return NULL;
    return &level[at];
}

/* The first bytes of plain characters behind which plain characters change nothing: those that lead
 * out of the middle of a mark, back to free text. Most of them lead to the same state. */
static void leads_to_free(struct masks *m, struct grammar_state *s, uint64_t set[4])
{
    struct items *next = room(m, TRY_NEXT), *open = room(m, TRY_FREE), *bound = room(m, TRY_BOUND);
    bool found = false;
    memset(set, 0, 4 * sizeof(set[0]));
    bound->count = 0;
    bound->end = false;
    for (unsigned c = 0; c < 0x80; c++) {
        if (!tree_plain((uint8_t)c) || !state_step(s, &s->now, (uint8_t)c, next) ||
            items_equal(next, bound))
            continue;
        if (!found || !items_equal(next, open)) {
            bool is_free = plain_room(m, s, next) == UINT32_MAX;
            items_copy(is_free ? open : bound, next);
            found |= is_free;
            if (!is_free)
                continue;
        }
        set_add(set, (uint8_t)c);
    }
    for (size_t i = 0; found && i < sizeof(characters) / sizeof(*characters); i++) {
        const struct items *to = behind_class(m, s, i);
        for (unsigned c = characters[i].low; to && items_equal(to, open) && c <= characters[i].high;
             c++)
            set_add(set, (uint8_t)c);
    }
}

static void allow_plain_from(const struct vocab *v, const uint64_t first[4], uint64_t *bits)
{
    for (uint32_t t = 0; t < v->tokens; t++)
        if (v->characters[t] > 0 && set_has(first, v->first[t]))
            bits[t / 64] |= (uint64_t)1 << (t % 64);
}

static void make(struct masks *m, struct grammar_state *s, uint64_t *bits)
{
    const uint32_t frames = s->frames_count;
    uint64_t open[4] = {0}, others[4];
    uint32_t plain = plain_room(m, s, &s->now);
    if (plain == 0)
        leads_to_free(m, s, open);
    state_take_back(s, frames);
    m->steps = 0;
    if (plain > 0) {
        memset(open, 0xFF, sizeof open);
        allow_plain(m->v, plain, bits);
    } else {
        allow_plain_from(m->v, open, bits);
    }
    for (unsigned i = 0; i < 4; i++)
        others[i] = ~open[i];
    walk(m, s, &m->v->rest, open, bits);
    walk(m, s, &m->v->all, others, bits);
}

/* ---- what a mask depends on ---- */

static void key_add(struct masks *m, uint32_t value)
{
    if (m->key_words == KEY_WORDS_MAX)
        m->key_full = true;
    else
        m->key[m->key_words++] = value;
}

/* A token has at most `deepest` bytes, so a count further than that from its limits is like any
 * other. Of depth, only its distance from the limit matters, but it is constant on a stack. */
static void key_stack(struct masks *m, const struct grammar_state *s, uint32_t frame)
{
    uint32_t far = m->v->deepest + 2;
    key_add(m, at_most(s->g->depth - s->frames[frame].depth, UINT16_MAX));
    for (; frame && !m->key_full; frame = s->frames[frame].parent) {
        const struct frame *f = &s->frames[frame];
        const struct node *n = &s->g->nodes[f->node];
        key_add(m, f->node);
        if (n->op == OP_LOOP) {
            key_add(m, at_most(f->count < n->min ? n->min - f->count : 0, far));
            key_add(m, at_most(n->max - f->count, far));
        }
    }
    key_add(m, 0);
}

static uint64_t make_key(struct masks *m, const struct grammar_state *s)
{
    uint64_t hash = s->g->id;
    m->key_words = 0;
    m->key_full = false;
    for (uint32_t i = 0; i < s->now.count && !m->key_full; i++) {
        key_add(m, s->now.at[i].node);
        key_stack(m, s, s->now.at[i].frame);
    }
    for (uint32_t i = 0; i < m->key_words; i++)
        hash = (hash ^ m->key[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
    return hash;
}

static struct kept_mask *find(struct masks *m, const struct grammar *g, uint64_t hash)
{
    for (uint32_t i = 0; i < m->kept_count; i++) {
        struct kept_mask *k = &m->kept[i];
        if (k->grammar == g->id && k->hash == hash && k->key_words == m->key_words &&
            memcmp(k->key, m->key, m->key_words * sizeof(*m->key)) == 0)
            return k;
    }
    return NULL;
}

/* Takes the place that was not used for longest. NULL: no memory, or none are kept. */
static struct kept_mask *keep(struct masks *m, const struct grammar *g, uint64_t hash)
{
    struct kept_mask *k = NULL;
    for (uint32_t i = 0; i < m->kept_count; i++)
        if (!k || m->kept[i].used < k->used)
            k = &m->kept[i];
    if (!k || m->key_full)
        return NULL;
    drop(k);
    k->key = malloc((m->key_words + 1u) * sizeof(*k->key));
    k->bits = calloc(vocab_mask_words(m->v) + 1, sizeof(*k->bits));
    if (!k->key || !k->bits) {
        drop(k);
        return NULL;
    }
    memcpy(k->key, m->key, m->key_words * sizeof(*k->key));
    k->key_words = m->key_words;
    k->hash = hash;
    k->grammar = g->id;
    return k;
}

const uint64_t *grammar_mask(struct masks *m, struct grammar_state *s)
{
    if (s->frames_count > STATE_FRAMES / 2)
        state_compact(s);
    uint64_t hash = make_key(m, s);
    struct kept_mask *k = m->key_full ? NULL : find(m, s->g, hash);
    if (k) {
        m->counts.found++;
    } else {
        k = keep(m, s->g, hash);
        m->counts.made++;
        if (!k)
            memset(m->bits, 0, vocab_mask_words(m->v) * sizeof(*m->bits));
        make(m, s, k ? k->bits : m->bits);
    }
    if (k)
        k->used = ++m->time;
    return k ? k->bits : m->bits;
}

struct masks_counts masks_counts(const struct masks *m)
{
    return m->counts;
}
