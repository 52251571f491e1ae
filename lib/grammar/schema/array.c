/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: schemas for the first elements, one for all others, and the number of elements. */
#include "lib/grammar/schema/compiler.h"

struct elements {
    const json_t *first, *others; /* others may be NULL: any */
    uint32_t count, min, max;     /* of `first`; of all */
};

static expr_id element(struct compiler *c, const json_t *schema, const char *key, size_t i)
{
    size_t outer = schema_enter(c, key, 0);
    if (key[0] == 'p')
        schema_enter(c, NULL, i);
    expr_id e = schema ? schema_compile(c, schema) : schema_any(c);
    schema_leave(c, outer);
    return e;
}

static uint32_t less(uint32_t a, uint32_t b)
{
    return a == EXPR_UNBOUNDED ? a : a > b ? a - b : 0;
}

/* Elements from the i-th on, each behind a comma but the very first. */
static expr_id elements_from(struct compiler *c, const struct elements *e)
{
    expr_id rest = EXPR_EMPTY, comma = schema_comma(c);
    if (e->max > e->count) {
        expr_id one = element(c, e->others, "items", 0);
        expr_id more = expr_sequence(&c->pool, comma, one);
        uint32_t behind = e->count ? e->count : 1;
        rest = expr_repeat(&c->pool, more, less(e->min, behind), less(e->max, behind));
        if (e->count == 0) {
            rest = expr_sequence(&c->pool, one, rest);
            return e->min ? rest : expr_optional(&c->pool, rest);
        }
    } else if (e->min > e->count) {
        return EXPR_NEVER;
    }
    for (uint32_t i = e->count; i-- > 0 && !c->failed;) {
        if (i >= e->max)
            continue;
        expr_id one = element(c, json_array_get(e->first, i), "prefixItems", i);
        if (i > 0)
            one = expr_sequence(&c->pool, comma, one);
        rest = expr_sequence(&c->pool, one, rest);
        uint32_t rule = expr_new_rule(&c->pool);
        expr_define(&c->pool, rule, i < e->min ? rest : expr_optional(&c->pool, rest));
        rest = expr_rule(&c->pool, rule);
    }
    return rest;
}

expr_id schema_array(struct compiler *c, const json_t *schema)
{
    struct elements e = {.first = json_object_get(schema, "prefixItems"),
                         .others = json_object_get(schema, "items"),
                         .min = schema_count(c, schema, "minItems", 0),
                         .max = schema_count(c, schema, "maxItems", EXPR_UNBOUNDED)};
    if (json_is_array(e.others)) { /* as it was before prefixItems */
        if (e.first)
            return schema_fail(c, "items", "an array beside prefixItems is not supported");
        e.first = e.others;
        e.others = json_object_get(schema, "additionalItems");
    }
    if (e.first && !json_is_array(e.first))
        return schema_fail(c, "prefixItems", "it is no array");
    e.count = (uint32_t)json_array_size(e.first);
    if (json_is_false(e.others) && e.max > e.count)
        e.max = e.count;
    if (e.min > e.max)
        return schema_fail(c, "minItems", "more elements than are allowed");
    expr_id in = e.max == 0 ? EXPR_EMPTY : elements_from(c, &e);
    in = expr_sequence(&c->pool, expr_string(&c->pool, "["), in);
    return expr_sequence(&c->pool, in, expr_string(&c->pool, "]"));
}
