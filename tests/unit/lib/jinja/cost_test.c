/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the steps of an operation grow with the bytes or elements that it touches, so that the
 * limit of steps bounds the time; a rendering is bounded by the processor's clock, too, and
 * beats. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/jinja.h"

#define UNITS 4096 /* pieces of two bytes, elements, keys: of the smaller operand */

/* What is compared or copied as a block takes at least a step for 256 bytes, all else for 16. */
enum { BLOCK = 256, SINGLE = 16 };

struct operation {
    const char *expression;
    unsigned per_step;
};

static const struct jinja_limits limits = {
    .memory_bytes = (size_t)256 << 20, .steps = UINT64_MAX / 2, .depth = 500, .output_bytes = 1};

static uint64_t steps_of(const char *text)
{
    struct error error = {0};
    struct jinja_output out;
    struct jinja_template *t = jinja_compile(text, strlen(text), &limits, &error);
    ck_assert_msg(t != NULL, "%s: %s", text, error.text);
    json_t *variables = json_object();
    struct jinja_input input = {.messages = variables};
    int rc = jinja_render(t, &input, &limits, &out, &error);
    ck_assert_msg(rc == 0, "%s: %s", text, error.text);
    uint64_t steps = out.steps;
    jinja_output_free(&out);
    jinja_template_free(t);
    json_decref(variables);
    return steps;
}

/* Steps of the expression alone, with operands of n units. */
static uint64_t cost(const char *operands, const char *expression, unsigned n)
{
    char text[1024];
    snprintf(text, sizeof text, "{%% set n = %u %%}%s{%% set r = none %%}", n, operands);
    uint64_t before = steps_of(text);
    snprintf(text, sizeof text, "{%% set n = %u %%}%s{%% set r = %s %%}", n, operands, expression);
    return steps_of(text) - before;
}

static void check_covered(const char *operands, const struct operation *op, size_t unit_bytes)
{
    uint64_t few = cost(operands, op->expression, UNITS);
    uint64_t many = cost(operands, op->expression, 2 * UNITS);
    ck_assert_msg(many >= few && (many - few) * op->per_step >= UNITS * unit_bytes,
                  "%s: %llu steps, and %llu for twice as many bytes or elements", op->expression,
                  (unsigned long long)few, (unsigned long long)many);
}

/* t: a text; u: an equal one elsewhere; z: ends in another byte. */
#define TEXTS                                                                                      \
    "{% set t = 'ab' * n %}{% set u = 'ab' * n %}{% set blank = '  ' * n %}"                       \
    "{% set z = 'ab' * (n - 1) + 'x' %}{% set mixed = ('a' ~ 1) * n %}"

static const struct operation of_texts[] = {
    {"'zz' in t", SINGLE},
    {"'abx' in t", SINGLE},
    {"'abx' not in t", SINGLE},
    {"'z' in t", BLOCK},
    {"('b' ~ 'a' * 7) in t", SINGLE},
    {"t in [1, u]", BLOCK},
    {"t == u", BLOCK},
    {"t != u", BLOCK},
    {"t < u", BLOCK},
    {"t >= u", BLOCK},
    {"t is eq(u)", BLOCK},
    {"t is lt(u)", BLOCK},
    {"t is in([u])", BLOCK},
    {"t is sameas(u)", BLOCK},
    {"t is lower", SINGLE},
    {"t is upper", SINGLE},
    {"[t] == [u]", BLOCK},
    {"{'k': t} == {'k': u}", BLOCK},
    {"t[-1]", SINGLE},
    {"t[2 * n - 1]", SINGLE},
    {"t[-2:-1]", SINGLE},
    {"t[1:]", SINGLE},
    {"t[n:]", SINGLE},
    {"t[::-1]", SINGLE},
    {"t + u", BLOCK},
    {"t ~ u", BLOCK},
    {"t * 2", BLOCK},
    {"'%s' % t", BLOCK},
    {"t % ()", SINGLE},
    {"'{}'.format(t)", BLOCK},
    {"t.format()", SINGLE},
    {"t | length", SINGLE},
    {"t | count", SINGLE},
    {"t | wordcount", SINGLE},
    {"t | upper", SINGLE},
    {"t | lower", SINGLE},
    {"t | capitalize", SINGLE},
    {"t | title", SINGLE},
    {"t | trim('ab')", SINGLE},
    {"blank | trim", SINGLE},
    {"t | replace('a', 'c')", SINGLE},
    {"t | replace('zzz', 'c')", SINGLE},
    {"t | escape", SINGLE},
    {"t | forceescape", SINGLE},
    {"t | tojson", SINGLE},
    {"[t] | string", SINGLE},
    {"t | indent", SINGLE},
    {"t | list", SINGLE},
    {"t | first", SINGLE},
    {"t | last", SINGLE},
    {"t | reverse", SINGLE},
    {"t | join", SINGLE},
    {"t | sort", SINGLE},
    {"t | unique | list", SINGLE},
    {"t | batch(2) | list", SINGLE},
    {"t | map('upper') | list", SINGLE},
    {"t | select('eq', 'a') | list", SINGLE},
    {"t | min", SINGLE},
    {"[t] | join(u)", BLOCK},
    {"[t, u] | sort(case_sensitive=true)", BLOCK},
    {"[t, u] | max(case_sensitive=true)", BLOCK},
    {"[t, u] | unique | list", BLOCK},
    {"blank.strip()", SINGLE},
    {"blank.lstrip()", SINGLE},
    {"blank.rstrip()", SINGLE},
    {"t.strip('ab')", SINGLE},
    {"'a'.strip(z)", SINGLE},
    {"t.upper()", SINGLE},
    {"t.title()", SINGLE},
    {"t.split('zzz')", SINGLE},
    {"t.split('z')", BLOCK},
    {"t.split()", SINGLE},
    {"t.rsplit('zz')", SINGLE},
    {"t.rsplit()", SINGLE},
    {"t.splitlines()", SINGLE},
    {"t.partition('zz')", SINGLE},
    {"t.rpartition('zz')", SINGLE},
    {"t.startswith(u)", BLOCK},
    {"t.endswith(u)", BLOCK},
    {"t.startswith('b', 1)", SINGLE},
    {"t.endswith('b', 0, -1)", SINGLE},
    {"t.find('zz')", SINGLE},
    {"t.rfind('zz')", SINGLE},
    {"z.find('x')", SINGLE},
    {"z.index('x')", SINGLE},
    {"t.rindex('a')", SINGLE},
    {"t.count('zz')", SINGLE},
    {"t.count('')", SINGLE},
    {"t.replace('zz', '')", SINGLE},
    {"t.removeprefix(u)", BLOCK},
    {"t.removesuffix(u)", BLOCK},
    {"'-'.join([t, u])", BLOCK},
    {"t.isalpha()", SINGLE},
    {"t.isalnum()", SINGLE},
    {"('12' * n).isdigit()", SINGLE},
    {"blank.isspace()", SINGLE},
    {"t.islower()", SINGLE},
    {"namespace(a=t).a.startswith(u)", BLOCK},
    {"dict([(t, 1)]).get(u)", BLOCK},
};

START_TEST(steps_cover_the_bytes)
{
    check_covered(TEXTS, &of_texts[_i], 2);
}
END_TEST

/* l: numbers; m: equal ones elsewhere; d: a dict with as many keys. */
#define LISTS                                                                                      \
    "{% set l = range(n) | list %}{% set m = range(n) | list %}"                                   \
    "{% set d = dict(range(n // 8) | batch(2)) %}{% set s = ['ab'] * n %}"                         \
    "{% macro f() %}{% set x = varargs, kwargs %}{% endmacro %}"

static const struct operation of_lists[] = {
    {"-1 in l", SINGLE},
    {"l == m", SINGLE},
    {"l < m", SINGLE},
    {"l.count(5)", SINGLE},
    {"l.index(n - 1)", SINGLE},
    {"l[1:]", SINGLE},
    {"l[::-1]", SINGLE},
    {"l + m", SINGLE},
    {"l * 2", SINGLE},
    {"range(n)", SINGLE},
    {"l | list", SINGLE},
    {"l | reverse", SINGLE},
    {"l | join", SINGLE},
    {"([none.x] * n) | join", SINGLE},
    {"l | sort", SINGLE},
    {"s | groupby(0)", SINGLE},
    {"l | sum", SINGLE},
    {"l | min", SINGLE},
    {"l | max", SINGLE},
    {"s | unique | list", SINGLE},
    {"l | batch(3) | list", SINGLE},
    {"l | map('string') | list", SINGLE},
    {"l | map(attribute='real') | list", SINGLE},
    {"l | select | list", SINGLE},
    {"l | reject('odd') | list", SINGLE},
    {"l | selectattr('real') | list", SINGLE},
    {"l | tojson", SINGLE},
    {"l | string", SINGLE},
    {"s | join(', ')", SINGLE},
    {"', '.join(s)", SINGLE},
    {"f(*l)", SINGLE},
    {"dict(*[s | batch(2)])", SINGLE},
    {"'%s' % (l | length) ~ '%s' % (l,)", SINGLE},
    {"'ab'.startswith(('x',) * n)", SINGLE},
    {"'ab'.endswith(('xyz',) * n)", SINGLE},
};

START_TEST(steps_cover_the_elements)
{
    check_covered(LISTS, &of_lists[_i], 1);
}
END_TEST

/* Of dicts, which are arrays: a sixteenth of the units, since making one takes their square. */
static const struct operation of_dicts[] = {
    {"d['x']", SINGLE},
    {"d.x", SINGLE},
    {"d.get('x')", SINGLE},
    {"'x' in d", SINGLE},
    {"d.items()", SINGLE},
    {"d.keys()", SINGLE},
    {"d.values()", SINGLE},
    {"d | items | list", SINGLE},
    {"d | dictsort", SINGLE},
    {"d | list", SINGLE},
    {"d | tojson", SINGLE},
    {"d | string", SINGLE},
    {"d == dict(d)", SINGLE},
    {"dict(d)", SINGLE},
    {"namespace(d)", SINGLE},
    {"d | tojson(sort_keys=true)", SINGLE},
    {"dict(**k)", SINGLE},
    {"f(**k)", SINGLE},
    {"'{z}'.format(z=1, **k)", SINGLE},
};

#define DICTS                                                                                      \
    "{% set d = dict(range(n // 8) | batch(2)) %}{% set k = dict(range(n // 8) | map('string') | " \
    "batch(2)) %}{% macro f() %}{% set x = kwargs %}{% endmacro %}"

START_TEST(steps_cover_the_keys)
{
    uint64_t few = cost(DICTS, of_dicts[_i].expression, UNITS);
    uint64_t many = cost(DICTS, of_dicts[_i].expression, 2 * UNITS);
    ck_assert_msg((many - few) * SINGLE >= UNITS / 16,
                  "%s: %llu steps, and %llu for twice the keys", of_dicts[_i].expression,
                  (unsigned long long)few, (unsigned long long)many);
}
END_TEST

/* Numbers have no length, but their texts take long: a step is 50 ns. */
START_TEST(steps_cover_the_texts_of_numbers)
{
    static const struct {
        const char *expression;
        unsigned steps;
    } cases[] = {{"0.1 | string", 10},        {"[1.7976931348623157e+308] | tojson", 100},
                 {"'%.300f' % 0.1", 50},      {"'%d' % 5", 10},
                 {"'1.5e300' | float", 10},   {"0.123456 | round(200)", 50},
                 {"strftime_now('%c')", 100}, {"'{:.300f}'.format(0.1)", 50}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        ck_assert_msg(cost("", cases[i].expression, 1) >= cases[i].steps, "%s: %llu steps",
                      cases[i].expression, (unsigned long long)cost("", cases[i].expression, 1));
}
END_TEST

/* Names of a client's keys are in one table with those of the template: a chain of names that
 * collide must not make each look-up longer than its steps. */
START_TEST(steps_cover_names_that_collide)
{
    static const char setup[] = "{% set e = dict(**k) %}",
                      loop[] = "{% for j in [1] %}{% endfor %}";
    uint64_t steps[2][2];
    for (int many = 0; many < 2; many++)
        for (int looped = 0; looped < 2; looped++) {
            char text[400];
            snprintf(text, sizeof text,
                     "{%% set k = dict(range(%d) | map('string') | batch(2)) %%}%s%s",
                     many ? 16384 : 2, setup, looped ? loop : "");
            steps[many][looped] = steps_of(text);
        }
    /* 8192 names in 256 chains: 32 of them are in that of "loop" on average */
    ck_assert_uint_gt(steps[1][1] - steps[1][0], steps[0][1] - steps[0][0]);
}
END_TEST

static void count_beat(void *arg)
{
    ++*(unsigned *)arg;
}

static int render_long(const struct jinja_limits *bounds, struct error *error)
{
    static const char text[] = "{% for a in range(1000) %}{% for b in range(1000) %}{% set x = b %}"
                               "{% endfor %}{% endfor %}";
    struct jinja_output out;
    struct jinja_template *t = jinja_compile(text, strlen(text), &limits, error);
    ck_assert(t != NULL);
    struct jinja_input input = {.messages = NULL};
    int rc = jinja_render(t, &input, bounds, &out, error);
    jinja_output_free(&out);
    jinja_template_free(t);
    return rc;
}

START_TEST(a_rendering_beats)
{
    unsigned beats = 0;
    struct error error = {0};
    struct jinja_limits bounds = limits;
    bounds.beat = count_beat;
    bounds.beat_arg = &beats;
    ck_assert_msg(render_long(&bounds, &error) == 0, "%s", error.text);
    ck_assert_uint_gt(beats, 100); /* of millions of steps */
}
END_TEST

START_TEST(a_rendering_ends_by_the_clock)
{
    struct error error = {0};
    struct jinja_limits bounds = limits;
    bounds.cpu_ns = 1;
    ck_assert_int_eq(render_long(&bounds, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, "takes too long") != NULL, "%s", error.text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cost");
    TCase *tc = tcase_create("cost");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, steps_cover_the_bytes, 0, (int)ARRAY_LEN(of_texts));
    tcase_add_loop_test(tc, steps_cover_the_elements, 0, (int)ARRAY_LEN(of_lists));
    tcase_add_loop_test(tc, steps_cover_the_keys, 0, (int)ARRAY_LEN(of_dicts));
    tcase_add_test(tc, steps_cover_the_texts_of_numbers);
    tcase_add_test(tc, steps_cover_names_that_collide);
    tcase_add_test(tc, a_rendering_beats);
    tcase_add_test(tc, a_rendering_ends_by_the_clock);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
