/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of expressions: arrays that grow up to their limits. */
#include "lib/grammar/expr.h"

#include <stdlib.h>
#include <string.h>

/* Makes room for `more` elements; false when the limit or the memory ends. */
static bool grow(struct expr_pool *p, void *array, uint32_t *room, uint32_t count, size_t more,
                 size_t element, size_t limit)
{
    void **at = array;
    if (p->failed != ERR_NONE)
        return false;
    if (more > limit || count > limit - more) {
        p->failed = ERR_BAD_INPUT;
        return false;
    }
    if (count + more <= *room)
        return true;
    size_t want = *room < 64 ? 64 : (size_t)*room * 2;
    while (want < count + more)
        want *= 2;
    void *bigger = realloc(*at, want * element);
    if (!bigger) {
        p->failed = ERR_NO_MEMORY;
        return false;
    }
    *at = bigger;
    *room = (uint32_t)want;
    return true;
}

static expr_id add(struct expr_pool *p, struct expr e)
{
    if (!grow(p, &p->exprs, &p->exprs_room, p->exprs_count, 1, sizeof(e), p->limits->expressions))
        return EXPR_NEVER;
    p->exprs[p->exprs_count] = e;
    return p->exprs_count++;
}

void expr_pool_init(struct expr_pool *p, const struct grammar_limits *limits)
{
    *p = (struct expr_pool){.limits = limits};
    add(p, (struct expr){.kind = EXPR_KIND_NEVER});
    add(p, (struct expr){.kind = EXPR_KIND_EMPTY});
}

void expr_pool_free(struct expr_pool *p)
{
    free(p->exprs);
    free(p->text);
    free(p->ranges);
    free(p->words);
    free(p->rules);
    *p = (struct expr_pool){0};
}

int expr_pool_check(const struct expr_pool *p, struct error *error)
{
    if (p->failed == ERR_NO_MEMORY)
        return error_set(error, ERR_NO_MEMORY, "grammar: no memory for its expressions");
    if (p->failed != ERR_NONE)
        return error_set(error, ERR_BAD_INPUT,
                         "grammar: more than %u expressions; simplify or divide it",
                         p->limits->expressions);
    return 0;
}

static uint32_t add_text(struct expr_pool *p, const char *text, size_t bytes)
{
    uint32_t at = p->text_count;
    size_t limit = p->limits->text_bytes * 8;
    if (!grow(p, &p->text, &p->text_room, at, bytes, 1, limit < UINT32_MAX ? limit : UINT32_MAX))
        return 0;
    if (bytes)
        memcpy(p->text + at, text, bytes);
    p->text_count += (uint32_t)bytes;
    return at;
}

expr_id expr_text(struct expr_pool *p, const char *text, size_t bytes)
{
    if (bytes == 0)
        return EXPR_EMPTY;
    uint32_t at = add_text(p, text, bytes);
    return add(p, (struct expr){.kind = EXPR_KIND_TEXT, .a = at, .b = (uint32_t)bytes});
}

expr_id expr_string(struct expr_pool *p, const char *text)
{
    return expr_text(p, text, strlen(text));
}

static int by_first(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

static void add_range(struct expr_pool *p, uint32_t first, uint32_t last)
{
    const uint32_t low = 0xD800, high = 0xDFFF; /* surrogates are no characters */
    if (first < low && last >= low) {
        add_range(p, first, low - 1);
        first = low;
    }
    if (first <= high && first >= low)
        first = high + 1;
    if (first > last || first > CODEPOINT_MAX)
        return;
    if (!grow(p, &p->ranges, &p->ranges_room, p->ranges_count, 1, sizeof(*p->ranges),
              (size_t)p->limits->expressions * 4))
        return;
    p->ranges[p->ranges_count++] = (struct char_range){first, last};
}

expr_id expr_class(struct expr_pool *p, const struct char_range *ranges, size_t count, bool negated)
{
    struct char_range *sorted = malloc((count + 1) * sizeof(*sorted));
    uint32_t at = p->ranges_count, from = 0;
    if (!sorted) {
        p->failed = ERR_NO_MEMORY;
        return EXPR_NEVER;
    }
    if (count)
        memcpy(sorted, ranges, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), by_first);
    for (size_t i = 0; i < count;) { /* from: what is behind the last merged range */
        uint32_t first = sorted[i].first, last = sorted[i].last;
        for (i++; i < count && sorted[i].first <= last + 1; i++)
            last = sorted[i].last > last ? sorted[i].last : last;
        if (!negated)
            add_range(p, first, last);
        else if (first > from)
            add_range(p, from, first - 1);
        from = last + 1;
    }
    if (negated && from <= CODEPOINT_MAX)
        add_range(p, from, CODEPOINT_MAX);
    free(sorted);
    if (p->ranges_count == at)
        return EXPR_NEVER;
    return add(p, (struct expr){.kind = EXPR_KIND_CLASS, .a = at, .b = p->ranges_count - at});
}

expr_id expr_sequence(struct expr_pool *p, expr_id a, expr_id b)
{
    if (a == EXPR_NEVER || b == EXPR_NEVER)
        return EXPR_NEVER;
    if (a == EXPR_EMPTY || b == EXPR_EMPTY)
        return a == EXPR_EMPTY ? b : a;
    return add(p, (struct expr){.kind = EXPR_KIND_SEQUENCE, .a = a, .b = b});
}

expr_id expr_choice(struct expr_pool *p, expr_id a, expr_id b)
{
    if (a == EXPR_NEVER || a == b)
        return b;
    if (b == EXPR_NEVER)
        return a;
    return add(p, (struct expr){.kind = EXPR_KIND_CHOICE, .a = a, .b = b});
}

expr_id expr_repeat(struct expr_pool *p, expr_id a, uint32_t min, uint32_t max)
{
    if (min > max || (min > 0 && a == EXPR_NEVER))
        return EXPR_NEVER;
    if (max == 0 || a == EXPR_EMPTY || a == EXPR_NEVER)
        return EXPR_EMPTY;
    if (min == 1 && max == 1)
        return a;
    return add(p, (struct expr){.kind = EXPR_KIND_REPEAT, .a = a, .min = min, .max = max});
}

expr_id expr_optional(struct expr_pool *p, expr_id a)
{
    return expr_repeat(p, a, 0, 1);
}

expr_id expr_char(struct expr_pool *p)
{
    return add(p, (struct expr){.kind = EXPR_KIND_CHAR});
}

void expr_add_word(struct expr_pool *p, const char *text, size_t bytes)
{
    uint32_t at = add_text(p, text, bytes);
    if (grow(p, &p->words, &p->words_room, p->words_count, 1, sizeof(*p->words),
             p->limits->expressions))
        p->words[p->words_count++] = (struct word){at, (uint32_t)bytes};
}

static int by_bytes(const void *a, const void *b, void *text)
{
    const struct word *x = a, *y = b;
    uint32_t common = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp((char *)text + x->offset, (char *)text + y->offset, common);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static bool sort_words(struct expr_pool *p, uint32_t first, uint32_t count)
{
    if (p->failed != ERR_NONE)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (p->words[first + i].bytes > EXPR_WORD_BYTES_MAX) { /* emit.c recurses over the bytes */
            p->failed = ERR_BAD_INPUT;
            return false;
        }
    if (count)
        qsort_r(p->words + first, count, sizeof(*p->words), by_bytes, p->text);
    return true;
}

expr_id expr_words(struct expr_pool *p, uint32_t first, uint32_t count)
{
    if (!sort_words(p, first, count) || count == 0)
        return EXPR_NEVER;
    return add(p, (struct expr){.kind = EXPR_KIND_WORDS, .a = first, .b = count});
}

expr_id expr_other_key(struct expr_pool *p, uint32_t first, uint32_t count)
{
    if (!sort_words(p, first, count))
        return EXPR_NEVER;
    return add(p, (struct expr){.kind = EXPR_KIND_OTHER_KEY, .a = first, .b = count});
}

uint32_t expr_new_rule(struct expr_pool *p)
{
    if (!grow(p, &p->rules, &p->rules_room, p->rules_count, 1, sizeof(*p->rules),
              p->limits->expressions))
        return 0;
    p->rules[p->rules_count] = EXPR_NEVER;
    return p->rules_count++;
}

void expr_define(struct expr_pool *p, uint32_t rule, expr_id e)
{
    if (p->failed == ERR_NONE)
        p->rules[rule] = e;
}

expr_id expr_rule(struct expr_pool *p, uint32_t rule)
{
    return add(p, (struct expr){.kind = EXPR_KIND_RULE, .a = rule});
}
