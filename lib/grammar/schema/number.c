/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers: bounds become choices of digits. At most 18 digits stand before the point, 24 behind it,
 * and 2 in an exponent, so that a number ends. Multiples of what divides no power of ten may have
 * more digits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/grammar/schema/compiler.h"

#define DIGITS   18
#define LARGEST  999999999999999999    /* of DIGITS digits */
#define EXACT    ((json_int_t)1 << 53) /* doubles have all integers up to here */
#define FRACTION 24

static expr_id digits(struct compiler *c, unsigned first, unsigned last, uint32_t min, uint32_t max)
{
    struct char_range range = {'0' + first, '0' + last};
    return expr_repeat(&c->pool, expr_class(&c->pool, &range, 1, false), min, max);
}

/* Numbers of exactly `count` digits from `low` to `high`. */
static expr_id of_length(struct compiler *c, uint64_t low, uint64_t high, unsigned count)
{
    uint64_t power = 1;
    if (count == 0)
        return EXPR_EMPTY;
    for (unsigned i = 1; i < count; i++)
        power *= 10;
    unsigned a = (unsigned)(low / power), b = (unsigned)(high / power);
    low %= power;
    high %= power;
    if (low == 0 && high == power - 1)
        return expr_sequence(&c->pool, digits(c, a, b, 1, 1),
                             digits(c, 0, 9, count - 1, count - 1));
    if (a == b)
        return expr_sequence(&c->pool, digits(c, a, a, 1, 1), of_length(c, low, high, count - 1));
    expr_id e =
        expr_sequence(&c->pool, digits(c, a, a, 1, 1), of_length(c, low, power - 1, count - 1));
    if (a + 1 < b)
        e = expr_choice(&c->pool, e,
                        expr_sequence(&c->pool, digits(c, a + 1, b - 1, 1, 1),
                                      digits(c, 0, 9, count - 1, count - 1)));
    return expr_choice(
        &c->pool, e,
        expr_sequence(&c->pool, digits(c, b, b, 1, 1), of_length(c, 0, high, count - 1)));
}

/* Integers from `low` to `high`, neither negative nor with zeros before them. */
static expr_id from_to(struct compiler *c, int64_t low, int64_t high)
{
    expr_id e = EXPR_NEVER;
    int64_t first = 0, next = 10;
    for (unsigned count = 1; count <= DIGITS; count++) {
        int64_t a = low > first ? low : first, b = high < next - 1 ? high : next - 1;
        if (a <= b)
            e = expr_choice(&c->pool, e, of_length(c, (uint64_t)a, (uint64_t)b, count));
        first = next;
        if (count < DIGITS) /* 10^19 is beyond int64_t */
            next *= 10;
    }
    return e;
}

struct bounds {
    double low, high;
    bool above, below; /* low and high themselves are excluded */
    bool any;          /* there is a bound */
};

static double bound(struct compiler *c, const json_t *schema, const char *key, double absent)
{
    const json_t *value = json_object_get(schema, key);
    if (!value)
        return absent;
    json_int_t n = json_integer_value(value); /* 0 of a real */
    if (!json_is_number(value))
        schema_fail(c, key, "it is no number");
    if ((n > EXACT && n < LARGEST) || (n < -EXACT && n > -LARGEST))
        schema_fail(c, key, "integers beyond 2^53 are not supported as bounds");
    return json_number_value(value);
}

/* exclusiveMinimum was a boolean once. */
static struct bounds bounds_of(struct compiler *c, const json_t *schema)
{
    static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum",
                                       "exclusiveMaximum"};
    const json_t *above = json_object_get(schema, keys[2]),
                 *below = json_object_get(schema, keys[3]);
    struct bounds b = {.low = bound(c, schema, keys[0], -INFINITY),
                       .high = bound(c, schema, keys[1], INFINITY),
                       .above = json_is_true(above),
                       .below = json_is_true(below)};
    double low = json_is_boolean(above) ? -INFINITY : bound(c, schema, keys[2], -INFINITY);
    double high = json_is_boolean(below) ? INFINITY : bound(c, schema, keys[3], INFINITY);
    if (low >= b.low && low > -INFINITY) {
        b.low = low;
        b.above = true;
    }
    if (high <= b.high && high < INFINITY) {
        b.high = high;
        b.below = true;
    }
    b.any = b.low > -INFINITY || b.high < INFINITY;
    return b;
}

static int64_t whole(double value)
{
    return value >= (double)LARGEST    ? LARGEST
           : value <= -(double)LARGEST ? -LARGEST
                                       : (int64_t)value;
}

static expr_id negative(struct compiler *c, expr_id e)
{
    return expr_sequence(&c->pool, expr_string(&c->pool, "-"), e);
}

static expr_id negative_or_not(struct compiler *c, expr_id e)
{
    return expr_sequence(&c->pool, expr_optional(&c->pool, expr_string(&c->pool, "-")), e);
}

static expr_id bounded_integer(struct compiler *c, struct bounds b)
{
    double low = ceil(b.low), high = floor(b.high);
    int64_t from = whole(low), to = whole(high);
    from += b.above && low == b.low && from < LARGEST;
    to -= b.below && high == b.high && to > -LARGEST;
    if (low > (double)LARGEST || high < -(double)LARGEST || from > to)
        return schema_fail(c, "minimum", "no number is possible");
    expr_id e = to >= 0 ? from_to(c, from > 0 ? from : 0, to) : EXPR_NEVER;
    if (from < 0)
        e = expr_choice(&c->pool, e, negative(c, from_to(c, to < 0 ? -to : 1, -from)));
    return e;
}

static expr_id fraction(struct compiler *c, expr_id after_point)
{
    return expr_sequence(&c->pool, expr_string(&c->pool, "."), after_point);
}

/* Not all digits are zeros. */
static expr_id more_than_zero(struct compiler *c)
{
    expr_id e = expr_sequence(&c->pool, digits(c, 0, 9, 0, FRACTION), digits(c, 1, 9, 1, 1));
    return fraction(c, expr_sequence(&c->pool, e, digits(c, 0, 9, 0, FRACTION)));
}

/* Reals from `low` to `high`, both not negative. */
static expr_id real_from_to(struct compiler *c, int64_t low, int64_t high, bool above, bool below)
{
    expr_id e = EXPR_NEVER;
    if (low < high && above) {
        e = expr_sequence(&c->pool, from_to(c, low, low), more_than_zero(c));
        low++;
    } else if (low > high || (low == high && above)) {
        return EXPR_NEVER;
    }
    if (low < high) {
        expr_id some = fraction(c, digits(c, 0, 9, 1, FRACTION));
        e = expr_choice(
            &c->pool, e,
            expr_sequence(&c->pool, from_to(c, low, high - 1), expr_optional(&c->pool, some)));
    }
    if (below)
        return e;
    expr_id zeros = expr_optional(&c->pool, fraction(c, digits(c, 0, 0, 1, FRACTION)));
    return expr_choice(&c->pool, e, expr_sequence(&c->pool, from_to(c, high, high), zeros));
}

static expr_id bounded_real(struct compiler *c, struct bounds b)
{
    int64_t from = whole(b.low), to = whole(b.high);
    if ((b.low > -INFINITY && b.low != (double)from) || (b.high < INFINITY && b.high != (double)to))
        return schema_fail(c, b.low > -INFINITY && b.low != (double)from ? "minimum" : "maximum",
                           "a number's bound that is no integer of 18 digits is not supported");
    expr_id e = EXPR_NEVER;
    if (b.high >= 0)
        e = real_from_to(c, from > 0 ? from : 0, to, b.above && b.low >= 0, b.below);
    if (b.low < 0) {
        bool nearest = b.high >= 0 ? true : b.below; /* zero is not written with a sign */
        e = expr_choice(&c->pool, e,
                        negative(c, real_from_to(c, to < 0 ? -to : 0, -from, nearest, b.above)));
    }
    return e == EXPR_NEVER ? schema_fail(c, "minimum", "no number is possible") : e;
}

/* Multiples of k, which divides 10^ends: their last digits decide, so that they can be counted. */
static expr_id multiples_by_end(struct compiler *c, unsigned k, unsigned ends, unsigned power)
{
    char word[16];
    uint32_t first = c->pool.words_count;
    for (unsigned n = 0; n < power; n += k) {
        snprintf(word, sizeof word, "%0*u", (int)ends, n);
        expr_add_word(&c->pool, word, strlen(word));
    }
    expr_id end = expr_words(&c->pool, first, c->pool.words_count - first);
    expr_id e =
        expr_sequence(&c->pool, digits(c, 1, 9, 1, 1), digits(c, 0, 9, 0, DIGITS - 1 - ends));
    e = expr_sequence(&c->pool, e, end);
    first = c->pool.words_count;
    for (unsigned n = k; n < power; n += k) {
        snprintf(word, sizeof word, "%u", n);
        expr_add_word(&c->pool, word, strlen(word));
    }
    if (power > k)
        e = expr_choice(&c->pool, e, expr_words(&c->pool, first, c->pool.words_count - first));
    return expr_choice(&c->pool, negative_or_not(c, e), expr_string(&c->pool, "0"));
}

/* Multiples of k: a rule for each rest of a division, which digits lead to from each other. Where
 * other digits than the last ones decide, too, nothing counts them. */
static expr_id multiples(struct compiler *c, unsigned k)
{
    for (unsigned ends = 1, power = 10; ends <= 3; ends++, power *= 10)
        if (power % k == 0)
            return multiples_by_end(c, k, ends, power);
    uint32_t first = c->pool.rules_count;
    expr_id start = EXPR_NEVER;
    for (unsigned r = 0; r < k; r++)
        expr_new_rule(&c->pool);
    for (unsigned r = 0; r < k; r++) {
        expr_id e = r == 0 ? EXPR_EMPTY : EXPR_NEVER;
        for (unsigned d = 0; d < 10; d++)
            e = expr_choice(&c->pool,
                            expr_sequence(&c->pool, digits(c, d, d, 1, 1),
                                          expr_rule(&c->pool, first + (10 * r + d) % k)),
                            e);
        expr_define(&c->pool, first + r, e);
    }
    for (unsigned d = 1; d < 10; d++)
        start = expr_choice(
            &c->pool, start,
            expr_sequence(&c->pool, digits(c, d, d, 1, 1), expr_rule(&c->pool, first + d % k)));
    return expr_choice(&c->pool, negative_or_not(c, start), expr_string(&c->pool, "0"));
}

static expr_id unbounded(struct compiler *c, bool integer)
{
    expr_id minus = expr_optional(&c->pool, expr_string(&c->pool, "-"));
    expr_id some = expr_sequence(&c->pool, digits(c, 1, 9, 1, 1), digits(c, 0, 9, 0, DIGITS - 1));
    expr_id zero = expr_string(&c->pool, "0");
    if (integer)
        return expr_choice(&c->pool, expr_sequence(&c->pool, minus, some), zero);
    struct char_range e = {'e', 'e'}, sign[2] = {{'+', '+'}, {'-', '-'}};
    expr_id number = expr_sequence(&c->pool, minus, expr_choice(&c->pool, some, zero));
    expr_id part = expr_optional(&c->pool, fraction(c, digits(c, 0, 9, 1, FRACTION)));
    expr_id exponent = expr_sequence(&c->pool, expr_class(&c->pool, &e, 1, false),
                                     expr_optional(&c->pool, expr_class(&c->pool, sign, 2, false)));
    exponent = expr_sequence(&c->pool, exponent, digits(c, 0, 9, 1, 2));
    number = expr_sequence(&c->pool, number, part);
    return expr_sequence(&c->pool, number, expr_optional(&c->pool, exponent));
}

expr_id schema_number(struct compiler *c, const json_t *schema, bool integer)
{
    const json_t *multiple = json_object_get(schema, "multipleOf");
    struct bounds b = bounds_of(c, schema);
    double k = json_number_value(multiple);
    if (c->failed)
        return EXPR_NEVER;
    if (multiple && (k < 1 || k > 1000 || k != floor(k)))
        return schema_fail(c, "multipleOf", "only integers from 1 to 1000 are supported");
    if (k > 1 && b.any)
        return schema_fail(c, "multipleOf", "beside a bound it is not supported");
    if (k > 1)
        return multiples(c, (unsigned)k);
    integer |= k == 1;
    if (!b.any)
        return unbounded(c, integer);
    return integer ? bounded_integer(c, b) : bounded_real(c, b);
}
