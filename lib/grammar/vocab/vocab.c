/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of a vocabulary's texts: nodes in depth-first order, each with the end of its branch. */
#include "lib/grammar/vocab/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "lib/grammar/vocab/tree.h"
#include "lib/text/utf8.h"

static int by_text(const void *a, const void *b, void *context)
{
    const struct token_text *tokens = context;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const struct token_text *x = &tokens[i], *y = &tokens[j];
    uint32_t common = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = common ? memcmp(x->at, y->at, common) : 0;
    if (order)
        return order;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes) : (i > j) - (i < j);
}

static uint32_t common_bytes(struct token_text x, struct token_text y)
{
    uint32_t n = 0;
    while (n < x.bytes && n < y.bytes && x.at[n] == y.at[n])
        n++;
    return n;
}

/* A token for a byte of the border of control tokens would be taken for it: texts have no such
 * byte. */
static bool is_usable(struct token_text t)
{
    if (t.bytes == 0 || t.bytes > VOCAB_TOKEN_BYTES_MAX)
        return false;
    const char *border = memchr(t.at, GRAMMAR_CONTROL_BYTE, t.bytes);
    return !border || (border == t.at && t.bytes > 2 &&
                       memchr(t.at + 1, GRAMMAR_CONTROL_BYTE, t.bytes - 1) == t.at + t.bytes - 1);
}

/* The tokens with a text, in the order of their texts. */
static uint32_t sorted_tokens(const struct token_text *tokens, uint32_t count, uint32_t *ids)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        if (is_usable(tokens[i]))
            ids[n++] = i;
    qsort_r(ids, n, sizeof(*ids), by_text, (void *)tokens);
    return n;
}

static size_t bytes_in_all(const struct token_text *tokens, const uint32_t *ids, uint32_t n)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += tokens[ids[i]].bytes;
    return sum;
}

/* Its characters, if all are plain; else 0. */
static uint16_t plain_characters(struct token_text t)
{
    uint16_t characters = 0;
    for (uint32_t i = 0; i < t.bytes; i++) {
        uint8_t byte = (uint8_t)t.at[i];
        if (byte < 0x80 && !tree_plain(byte))
            return 0;
        characters += byte < 0x80 || byte >= 0xC0;
    }
    return utf8_valid(t.at, t.bytes) ? characters : 0;
}

/* path[d]: the node of depth d + 1 above the last token. */
static void add_token(struct vocab *v, struct tree *tree, struct token_text text, uint32_t id,
                      uint32_t shared, uint32_t *path)
{
    for (uint32_t d = shared; d < text.bytes; d++) {
        path[d] = tree->nodes_count;
        tree->nodes[tree->nodes_count++] = (struct tree_node){
            .token = TREE_NO_TOKEN, .depth = (uint16_t)(d + 1), .byte = (uint8_t)text.at[d]};
    }
    struct tree_node *n = &tree->nodes[path[text.bytes - 1]];
    v->same[id] = n->token;
    n->token = id;
    if (text.bytes > v->deepest)
        v->deepest = text.bytes;
}

static void set_ends(struct tree *tree)
{
    uint32_t open[VOCAB_TOKEN_BYTES_MAX + 1], depth = 0;
    for (uint32_t i = 0; i < tree->nodes_count; i++) {
        for (; depth >= tree->nodes[i].depth; depth--)
            tree->nodes[open[depth]].end = i;
        open[++depth] = i;
    }
    for (; depth > 0; depth--)
        tree->nodes[open[depth]].end = tree->nodes_count;
}

/* Of n sorted tokens. */
static bool tree_make(struct vocab *v, struct tree *tree, const struct token_text *tokens,
                      const uint32_t *ids, uint32_t n)
{
    uint32_t path[VOCAB_TOKEN_BYTES_MAX];
    tree->nodes = calloc(bytes_in_all(tokens, ids, n) + 1, sizeof(*tree->nodes));
    if (!tree->nodes)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shared = i ? common_bytes(tokens[ids[i - 1]], tokens[ids[i]]) : 0;
        add_token(v, tree, tokens[ids[i]], ids[i], shared, path);
    }
    set_ends(tree);
    /* Most texts begin like others: the room for all bytes was too much. */
    void *less = realloc(tree->nodes, (tree->nodes_count + 1) * sizeof(*tree->nodes));
    tree->nodes = less ? less : tree->nodes;
    return true;
}

static bool fill(struct vocab *v, const struct token_text *tokens, uint32_t *ids)
{
    uint32_t n = sorted_tokens(tokens, v->tokens, ids), rest = 0;
    v->same = malloc(((size_t)v->tokens + 1) * sizeof(*v->same));
    v->characters = calloc((size_t)v->tokens + 1, sizeof(*v->characters));
    v->first = calloc((size_t)v->tokens + 1, sizeof(*v->first));
    if (!v->same || !v->characters || !v->first || !tree_make(v, &v->all, tokens, ids, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        v->first[ids[i]] = (uint8_t)tokens[ids[i]].at[0];
        if ((v->characters[ids[i]] = plain_characters(tokens[ids[i]])) == 0)
            ids[rest++] = ids[i];
    }
    return tree_make(v, &v->rest, tokens, ids, rest);
}

struct vocab *vocab_new(const struct token_text *tokens, uint32_t count)
{
    struct vocab *v = calloc(1, sizeof(*v));
    uint32_t *ids = malloc(((size_t)count + 1) * sizeof(*ids));
    if (v)
        v->tokens = count;
    if (!v || !ids || !fill(v, tokens, ids)) {
        vocab_free(v);
        v = NULL;
    }
    free(ids);
    return v;
}

void vocab_free(struct vocab *v)
{
    if (!v)
        return;
    free(v->all.nodes);
    free(v->rest.nodes);
    free(v->characters);
    free(v->first);
    free(v->same);
    free(v);
}

uint32_t vocab_tokens(const struct vocab *v)
{
    return v->tokens;
}

size_t vocab_mask_words(const struct vocab *v)
{
    return (v->tokens + 63) / 64;
}
