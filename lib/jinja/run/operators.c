/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic, and + and * of strings and lists. */
#include <math.h>

#include "lib/jinja/run/run.h"

static _Noreturn void overflows(struct jrun *r)
{
    jheap_fail(r->h, "an integer is too large");
}

static _Noreturn void mismatch(struct jrun *r, const struct jvalue *a, const struct jvalue *b)
{
    if (a->kind == JUNDEFINED || b->kind == JUNDEFINED)
        jheap_fail(r->h, "%s", a->kind == JUNDEFINED ? a->missing : b->missing);
    jheap_fail(r->h, "an operator does not take '%s' and '%s'", jtype_name(a), jtype_name(b));
}

static struct jvalue power_of_integers(struct jrun *r, int64_t a, int64_t b)
{
    if (b < 0)
        return jfloat(pow((double)a, (double)b));
    int64_t result = 1;
    for (; b > 0; b >>= 1) {
        jheap_step(r->h);
        if ((b & 1) && __builtin_mul_overflow(result, a, &result))
            overflows(r);
        if (b > 1 && __builtin_mul_overflow(a, a, &a))
            overflows(r);
    }
    return jint(result);
}

/* Python rounds quotients down. */
static struct jvalue divide_integers(struct jrun *r, enum jop op, int64_t a, int64_t b)
{
    if (b == 0)
        jheap_fail(r->h, "division by zero");
    if (op == JOP_DIV)
        return jfloat((double)a / (double)b);
    if (b == -1) { /* INT64_MIN / -1 traps */
        if (a == INT64_MIN && op == JOP_FLOORDIV)
            overflows(r);
        return jint(op == JOP_FLOORDIV ? -a : 0);
    }
    int64_t quotient = a / b, rest = a % b;
    bool down = rest != 0 && (rest < 0) != (b < 0);
    return jint(op == JOP_FLOORDIV ? quotient - down : rest + (down ? b : 0));
}

static struct jvalue of_integers(struct jrun *r, enum jop op, int64_t a, int64_t b)
{
    int64_t result;
    bool over;
    switch (op) {
    case JOP_ADD: over = __builtin_add_overflow(a, b, &result); break;
    case JOP_SUB: over = __builtin_sub_overflow(a, b, &result); break;
    case JOP_MUL: over = __builtin_mul_overflow(a, b, &result); break;
    case JOP_POW: return power_of_integers(r, a, b);
    default: return divide_integers(r, op, a, b);
    }
    if (over)
        overflows(r);
    return jint(result);
}

static struct jvalue of_reals(struct jrun *r, enum jop op, double a, double b)
{
    if (b == 0 && (op == JOP_DIV || op == JOP_FLOORDIV || op == JOP_MOD))
        jheap_fail(r->h, "division by zero");
    switch (op) {
    case JOP_ADD: return jfloat(a + b);
    case JOP_SUB: return jfloat(a - b);
    case JOP_MUL: return jfloat(a * b);
    case JOP_DIV: return jfloat(a / b);
    case JOP_POW: return jfloat(pow(a, b));
    default: break;
    }
    double rest = fmod(a, b);
    if (rest != 0 && (rest < 0) != (b < 0))
        rest += b;
    return jfloat(op == JOP_MOD ? rest : floor((a - rest) / b + 0.5));
}

static struct jvalue join_lists(struct jrun *r, const struct jlist *a, const struct jlist *b)
{
    struct jvalue v = jlist_new(r->h, (enum jlist_form)a->form, a->count + b->count);
    for (size_t i = 0; i < a->count + b->count; i++)
        jlist_add(r->h, v.list, i < a->count ? a->at[i] : b->at[i - a->count]);
    v.list->origin = a->origin | b->origin;
    return v;
}

static struct jvalue repeat(struct jrun *r, const struct jvalue *v, int64_t times)
{
    if (v->kind == JLIST) {
        struct jvalue l = jlist_new(r->h, (enum jlist_form)v->list->form, 0);
        if (v->list->count == 0)
            times = 0;
        for (; times > 0; times--)
            for (size_t i = 0; i < v->list->count; i++)
                jlist_add(r->h, l.list, v->list->at[i]);
        return l;
    }
    struct jbuffer b = {0};
    if (v->string->bytes == 0)
        times = 0;
    for (; times > 0; times--)
        jbuffer_string(r->h, &b, v->string);
    return jstring_value(jbuffer_take(r->h, &b));
}

static bool is_sequence(const struct jvalue *v)
{
    return v->kind == JSTRING || (v->kind == JLIST && v->list->form <= JFORM_TUPLE);
}

struct jvalue jbinary(struct jrun *r, enum jop op, const struct jvalue *a, const struct jvalue *b)
{
    if (jis_number(a) && jis_number(b)) {
        if (a->kind == JFLOAT || b->kind == JFLOAT)
            return of_reals(r, op, jreal(a), jreal(b));
        return of_integers(r, op, jint_argument(r, a, 0), jint_argument(r, b, 0));
    }
    if (op == JOP_ADD && a->kind == JSTRING && b->kind == JSTRING)
        return jstring_value(jstring_join(r->h, a->string, b->string));
    if (op == JOP_ADD && is_sequence(a) && is_sequence(b) && a->kind == b->kind &&
        a->list->form == b->list->form)
        return join_lists(r, a->list, b->list);
    if (op == JOP_MUL && is_sequence(a) && (b->kind == JINT || b->kind == JBOOL))
        return repeat(r, a, jint_argument(r, b, 0));
    if (op == JOP_MUL && is_sequence(b) && (a->kind == JINT || a->kind == JBOOL))
        return repeat(r, b, jint_argument(r, a, 0));
    if (op == JOP_MOD && a->kind == JSTRING)
        return jformat_percent(r, a->string, b);
    mismatch(r, a, b);
}
