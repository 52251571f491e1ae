/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: every feature against jinja2 (tests/golden/jinja_vectors.py), who wrote each
 * byte, and the limits. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/jinja.h"

static const struct jinja_limits defaults = JINJA_LIMITS_DEFAULT;
static const char *const roles[] = {"system", "user", "assistant", NULL};

/* Renders text with variables as JSON text (NULL: none). */
static int render_with(const char *text, const char *own, const char *messages,
                       const struct jinja_limits *limits, struct jinja_output *out,
                       struct error *error)
{
    json_error_t why;
    *out = (struct jinja_output){0};
    *error = (struct error){.code = ERR_NONE};
    struct jinja_template *t = jinja_compile(text, strlen(text), limits, error);
    if (!t)
        return -1;
    json_t *o = own ? json_loads(own, 0, &why) : NULL;
    json_t *m = messages ? json_loads(messages, 0, &why) : NULL;
    ck_assert((!own || o) && (!messages || m));
    struct jinja_input input = {.own = o, .messages = m, .roles = roles};
    int result = jinja_render(t, &input, limits, out, error);
    json_decref(o);
    json_decref(m);
    jinja_template_free(t);
    return result;
}

/* The output with "~" in place of every byte of a message. */
static char *masked(const char *text, const char *own, const char *messages)
{
    struct jinja_output out;
    struct error error;
    ck_assert_msg(render_with(text, own, messages, &defaults, &out, &error) == 0, "%s: %s", text,
                  error.text);
    ck_assert(text_ranges_valid(&out.written, out.bytes));
    char *mask = calloc(1, out.bytes + 1);
    memset(mask, '~', out.bytes);
    for (size_t i = 0; i < out.written.count; i++)
        memcpy(mask + out.written.at[i].from, out.text + out.written.at[i].from,
               out.written.at[i].to - out.written.at[i].from);
    jinja_output_free(&out);
    return mask;
}

static void check_mask(const char *text, const char *expected)
{
    char *mask =
        masked(text, "{\"bos\": \"<s>\", \"list\": [\"x\", \"y\"]}",
               "{\"m\": \" <s>Hi</s> \", \"n\": 12, \"l\": [\"ab\", \"c\"], \"d\": {\"k\": \"v\"}, "
               "\"messages\": [{\"role\": \"user\", \"content\": \"user\"}, {\"role\": \"<s>\"}]}");
    ck_assert_msg(strcmp(mask, expected) == 0, "%s: '%s', expected '%s'", text, mask, expected);
    free(mask);
}

/* Of every feature (jinja_vectors.py), and random ones (jinja_random.py), which begin with a text
 * of a list. */
static const char *const vectors[] = {SLUICE_SOURCE_DIR "/tests/golden/data/jinja.json",
                                      SLUICE_SOURCE_DIR "/tests/golden/data/jinja_random.json"};

/* New reference. */
static json_t *template_of(const json_t *file, const json_t *c)
{
    const json_t *begin = json_array_get(json_object_get(file, "begins"),
                                         (size_t)json_integer_value(json_object_get(c, "begin")));
    const json_t *rest = json_object_get(c, "template");
    return json_sprintf("%s%s", begin ? json_string_value(begin) : "", json_string_value(rest));
}

START_TEST(equals_jinja2)
{
    json_error_t why;
    json_t *file = json_load_file(vectors[_i], JSON_ALLOW_NUL, &why);
    ck_assert_msg(file != NULL, "%s", why.text);
    json_t *cases = json_object_get(file, "cases"), *c;
    size_t i, failed = 0;
    ck_assert(json_array_size(cases) > 200);
    json_array_foreach(cases, i, c)
    {
        const json_t *expected = json_object_get(c, "text");
        struct error error = {0};
        struct jinja_output out = {0};
        json_t *text = template_of(file, c);
        struct jinja_template *t =
            jinja_compile(json_string_value(text), json_string_length(text), &defaults, &error);
        struct jinja_input input = {.messages = json_object_get(file, "variables"), .roles = roles};
        input.now = (struct tm){.tm_year = 126,
                                .tm_mon = 1,
                                .tm_mday = 3,
                                .tm_hour = 14,
                                .tm_min = 5,
                                .tm_sec = 6,
                                .tm_wday = 2,
                                .tm_yday = 33};
        bool rendered = t && jinja_render(t, &input, &defaults, &out, &error) == 0;
        bool equal = rendered && json_is_string(expected) &&
                     out.bytes == json_string_length(expected) &&
                     memcmp(out.text, json_string_value(expected), out.bytes) == 0;
        if (!(equal || (!rendered && json_is_null(expected)))) {
            fprintf(stderr, "%s\n  expected %s\n  got      %s\n", json_string_value(text),
                    json_is_string(expected) ? json_string_value(expected) : "an error",
                    rendered ? out.text : error.text);
            failed++;
        }
        ck_assert(rendered ||
                  (error.code == ERR_BAD_INPUT && error.text[0] && !strchr(error.text, '\n')));
        jinja_output_free(&out);
        jinja_template_free(t);
        json_decref(text);
    }
    ck_assert_uint_eq(failed, 0);
    json_decref(file);
}
END_TEST

START_TEST(every_byte_has_its_writer)
{
    check_mask("a{{ bos }}{{ m }}b", "a<s>~~~~~~~~~~~b");
    check_mask("{{ m | trim }}|{{ m.strip() }}|{{ m[1:4] }}", "~~~~~~~~~|~~~~~~~~~|~~~");
    check_mask("{{ m | upper }}{{ bos | upper }}", "~~~~~~~~~~~<S>");
    check_mask("{{ m | replace('<s>', '<e>') }}", "~<e>~~~~~~~");
    check_mask("{{ m.split('Hi') | join('|') }}", "~~~~|~~~~~");
    check_mask("{{ ('<' + m + '>')[0:5] }}", "<~~~~");
    check_mask("{{ '<' ~ n ~ '>' }}{{ n + 1 }}", "<~~>13");
    check_mask("{{ l }}{{ ['a'] }}{{ d }}{{ {'a': m} }}",
               "~~~~~~~~~~~['a']~~~~~~~~~~{'a': ~~~~~~~~~~~~~}");
    check_mask("{{ l | tojson }}{{ list | tojson }}{{ ['a', m] | tojson }}",
               "~~~~~~~~~~~[\"x\", \"y\"][\"a\", ~~~~~~~~~~~~~]");
    check_mask("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "~=~");
    check_mask("{% set x %}({{ m | trim }}){% endset %}{{ x | upper }}", "(~~~~~~~~~)");
    check_mask("{% macro q(x) %}[{{ x }}]{% endmacro %}{{ q(l[0]) | trim }}", "[~~]");
    check_mask("{{ 'x{}y'.format(l[0]) }}{{ 'x%sy' % l[0] }}", "x~~yx~~y");
    check_mask("{% set ns = namespace(s='') %}{% for x in l %}{% set ns.s = ns.s + x + ',' %}{% "
               "endfor %}{{ ns.s }}",
               "~~,~,");
    check_mask("{{ m | length }}{{ m == ' <s>Hi</s> ' }}", "11True");
    check_mask("{{ bos * 2 }}{{ l[0] * 2 }}{{ m | default('x') }}", "<s><s>~~~~~~~~~~~~~~~");
    /* keys of ** are the client's, in every place that makes a key of a keyword */
    check_mask("{% macro q() %}{% for k in kwargs %}{{ k }},{% endfor %}{% endmacro %}"
               "{{ q(**d) }}{{ q(a=1, **d) }}{{ q(**{'x': 1}) }}",
               "~,a,~,x,");
    check_mask("{{ dict(**d) | join }}{{ dict(b=1, **d) | join }}{{ dict(d) | join }}", "~b~~");
    check_mask("{{ namespace(**d) }}{{ ('%s' | format(**d)) }}",
               "<Namespace {~~~: ~~~}>{~~~: ~~~}");
    /* what a message gives to a function is not the template's */
    check_mask("{{ m[1:4].format() }}{{ ('{:' ~ m[1] ~ '<3}').format('') }}", "~~~~~~");
    check_mask("{{ '{:<<3}'.format('') }}{{ '%3s' % '' }}", "<<<   ");
    check_mask("{{ strftime_now(m[1:4]) }}{{ strftime_now('<s>') }}", "~~~<s>");
    check_mask("{{ ['a', 'b'] | tojson(separators=(m[1:4], '=')) }}", "[\"a\"~~~\"b\"]");
    check_mask("{{ {'a': 1} | tojson(indent=m[1:4]) }}", "{\n~~~\"a\": 1\n}");
    check_mask("{{ 'a\nb' | indent(m[1:4]) }}{{ ['a', 'b'] | join(m[1:4]) }}", "a\n~~~ba~~~b");
    check_mask("{{ l[0] | e }}{{ (bos | safe) + m }}", "~~<s>~~~~~~~~~~~~~~~~~~~~~~~");
}
END_TEST

START_TEST(a_known_role_is_the_templates)
{
    check_mask("{% for x in messages %}<|{{ x.role }}|>{{ x.content }}{% endfor %}",
               "<|user|>~~~~<|~~~|>");
}
END_TEST

/* ---- limits ---- */

static void check_stops_within(const struct jinja_limits *limits, const char *text,
                               const char *reason)
{
    struct jinja_output out;
    struct error error;
    ck_assert_msg(render_with(text, NULL, "{\"l\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}", limits, &out,
                              &error) == -1,
                  "%s", text);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, reason) != NULL, "%s: %s", text, error.text);
    ck_assert_ptr_null(out.text);
}

static void check_stops(const char *text, const char *reason)
{
    check_stops_within(&defaults, text, reason);
}

START_TEST(endless_templates_stop)
{
    check_stops("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply");
    check_stops("{% macro a(x) %}{{ b(x) }}{% endmacro %}{% macro b(x) %}{{ a(x) }}{% endmacro "
                "%}{{ a(1) }}",
                "nested too deeply");
    check_stops("{% set s = 'x' * 1000000 %}{% for i in range(10000) %}{% if 'y' in s %}{% endif "
                "%}{% endfor %}",
                "too many steps");
    /* Each turn costs as many bytes as its strings have, and these fit the steps only if
     * uncounted. */
    struct jinja_limits few = defaults;
    few.steps = 1000 * 1000;
    static const char *const turns[] = {"s == t",        "s <= t",          "s in [t]",
                                        "t.isdigit()",   "s.startswith(t)", "s.startswith('1', 1)",
                                        "s | wordcount", "blank | trim",    "s.rfind(no) + 1"};
    for (size_t i = 0; i < ARRAY_LEN(turns); i++) {
        char text[400];
        snprintf(
            text, sizeof text,
            "{%% set s = '1' * 500 * 1000 %%}{%% set t = '1' * 500 * 1000 %%}{%% set no = '2' + "
            "'1' * 200 * 1000 %%}{%% set blank = ' ' * 500 * 1000 %%}{%% for i in range(30000) "
            "%%}{%% if %s %%}{%% endif %%}{%% endfor %%}",
            turns[i]);
        check_stops_within(&few, text, "too many steps");
    }
    check_stops_within(&few, "{% set s = '1' * 500 * 1000 %}{{ s.strip('2' * 500 * 1000 + '1') }}",
                       "too many steps");
    check_stops("{% set x = 'x' * 5000 * 1000 %}{{ 'abc'.endswith((x,), 3, 0) }}{{ x.y.z }}",
                "no attribute 'y'");
    check_stops("{{ [] * 9223372036854775807 }}{{ x.y }}", "'x' is undefined");
    check_stops("{{ '%d' % 1e300 }}", "too large");
    check_stops("{{ 9223372036854775807 | round(-1) }}", "too large");
    check_stops("{{ '%.390f' % 1e50 }}", "too large");
    check_stops("{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
                "too ");
    check_stops("{{ 'x' * 9999999999 }}", "too ");
    check_stops("{{ [0] * 9999999999 }}", "too ");
    check_stops("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s "
                "%}{% endfor %}",
                "memory");
    check_stops("{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s "
                "%}{% endfor %}",
                "memory");
    check_stops("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "nested too deeply");
    check_stops(
        "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns == namespace(x=[ns]) }}{{ [ns] }}",
        "nested too deeply");
    check_stops("{{ '%9999999s' % 'x' }}", "too large");
    check_stops("{{ 'x' | indent(999999) }}", "too large");
    check_stops("{{ 9223372036854775807 + 1 }}", "too large");
    check_stops("{{ 10 ** 30 }}", "too large");
    check_stops("{{ 'abc' | replace('', 'x' * 1000000) | replace('', 'x' * 1000000) }}", "too ");
}
END_TEST

static char *repeated(const char *head, const char *part, size_t count, const char *tail)
{
    size_t n = strlen(part), bytes = strlen(head) + n * count + strlen(tail) + 1;
    char *text = malloc(bytes), *at = stpcpy(text, head);
    for (size_t i = 0; i < count; i++)
        at = stpcpy(at, part);
    stpcpy(at, tail);
    return text;
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define STACK_BYTES ((size_t)8 << 20) /* its frames are larger */
#else
#define STACK_BYTES ((size_t)512 << 10) /* of every thread of the gateway */
#endif

static void *in_thread(void *work)
{
    (*(void (**)(void))work)();
    return NULL;
}

static void with_small_stack(void (*work)(void))
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    ck_assert_int_eq(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
    ck_assert_int_eq(pthread_create(&thread, &attributes, in_thread, &work), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

/* Whatever calls itself ends at the limit, which the stack has room for. */
static void nest(void)
{
    static const char *const generators[] = {
        "map('string')",   "map('map', 'string')", "select", "reject('none')",
        "selectattr('x')", "rejectattr(0)",        "unique", "batch(1)"};
    static const char *const values[] = {"[ns.x]", "(ns.x,)", "{'k': ns.x}", "namespace(x=ns.x)"};
    static const char *const uses[] = {
        "ns.x | string",      "ns.x | pprint", "ns.x | tojson", "ns.x == ns.y",
        "ns.x < ns.y",        "{ns.x: 1}",     "'%s' % [ns.x]", "[ns.x, ns.y] | unique | list",
        "[ns.x, ns.y] | sort"};
    char text[500];
    for (size_t i = 0; i < ARRAY_LEN(generators); i++) {
        snprintf(text, sizeof text,
                 "{%% set ns = namespace(x=[1]) %%}{%% for i in range(3000) %%}"
                 "{%% set ns.x = ns.x | %s %%}{%% endfor %%}{{ ns.x | list }}",
                 generators[i]);
        check_stops(text, "nested too deeply");
    }
    for (size_t i = 0; i < ARRAY_LEN(values) * ARRAY_LEN(uses); i++) {
        struct jinja_output out;
        struct error error;
        snprintf(text, sizeof text,
                 "{%% set ns = namespace(x=1, y=1) %%}{%% for i in range(3000) %%}"
                 "{%% set t = %s %%}{%% if i %% 2 %%}{%% set ns.y = ns.x %%}{%% endif %%}"
                 "{%% set ns.x = t %%}{%% endfor %%}{{ %s }}",
                 values[i / ARRAY_LEN(uses)], uses[i % ARRAY_LEN(uses)]);
        if (render_with(text, NULL, NULL, &defaults, &out, &error) != 0)
            ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        jinja_output_free(&out);
    }
}

static void nest_macros(void)
{
    check_stops("{% macro m() %}{% for a in [1] %}{% if a %}{% with b = 1 %}{% call q() %}"
                "{% filter trim %}{% set x %}{{ [[m()]] | map('trim') | list ~ 'x' }}"
                "{% endset %}{{ x }}{% endfilter %}{% endcall %}{% endwith %}{% endif %}"
                "{% endfor %}{% endmacro %}{% macro q() %}{{ caller() }}{% endmacro %}{{ m() }}",
                "nested too deeply");
    check_stops("{% macro m(x) %}{{ m(x=m(x)) }}{% endmacro %}{{ m(1) }}", "nested too deeply");
    check_stops("{% macro m(x=m()) %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply");
    check_stops("{% macro m() %}{% for a in [1] if m() %}{% endfor %}{% endmacro %}{{ m() }}",
                "nested too deeply");
}

START_TEST(what_nests_fits_the_stack)
{
    with_small_stack(nest);
    with_small_stack(nest_macros);
}
END_TEST

static void reject_deep_syntax(void)
{
    static const char *const parts[][3] = {
        {"{{ ", "(", ""},
        {"{{ ", "[", ""},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "not ", "1 }}"},
        {"{{ x", "[x", ""},
        {"{{ 1", " if 1 else 1", " }}"},
        {"", "{% if x %}", ""},
        {"", "{% for x in l %}", ""},
        {"{{ 1", "+1", " }}"},
        {"{{ l", "|list", " }}"},
        {"{% set ", "(", ""},
        {"{% for x in l %}{% if l", " and l", "%}{% endif %}{% endfor %}"},
        {"{{ x", ".x", "}}"},
        {"{% filter e", "|e", " %}x{% endfilter %}"},
        {"{% set x | e", "|e", " %}x{% endset %}"}};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        char *text = repeated(parts[i][0], parts[i][1], 100000, parts[i][2]);
        struct jinja_output out;
        struct error error;
        int result = render_with(text, NULL, "{\"l\": []}", &defaults, &out, &error);
        bool harmless = strcmp(parts[i][1], "not ") == 0; /* they are counted, not nested */
        ck_assert_msg(result == (harmless ? 0 : -1), "%s", parts[i][1]);
        ck_assert(result == 0 || error.code == ERR_BAD_INPUT);
        jinja_output_free(&out);
        free(text);
    }
}

START_TEST(deep_syntax_is_rejected)
{
    with_small_stack(reject_deep_syntax);
}
END_TEST

/* A chain of elifs is not nested. */
START_TEST(many_elifs)
{
    char *text = repeated("{% if no %}", "{% elif no %}", 5000, "{% else %}x{% endif %}");
    struct jinja_output out;
    struct error error;
    ck_assert_msg(render_with(text, NULL, NULL, &defaults, &out, &error) == 0, "%s", error.text);
    ck_assert_str_eq(out.text, "x");
    jinja_output_free(&out);
    free(text);
}
END_TEST

START_TEST(smaller_limits_are_kept)
{
    struct jinja_limits small = defaults;
    struct jinja_output out;
    struct error error;
    small.output_bytes = 3;
    ck_assert_int_eq(render_with("abc", NULL, NULL, &small, &out, &error), 0);
    jinja_output_free(&out);
    ck_assert_int_eq(render_with("abcd", NULL, NULL, &small, &out, &error), -1);
    ck_assert(strstr(error.text, "the maximum is 3"));
    small = defaults;
    small.memory_bytes = 8 << 10;
    ck_assert_int_eq(render_with("abc", NULL, NULL, &small, &out, &error), -1);
    ck_assert(strstr(error.text, "memory"));
    small = defaults;
    small.steps = 100;
    ck_assert_int_eq(render_with("{% for x in range(9) %}{{ x }}{{ x }}{{ x }}{{ x }}{% endfor %}",
                                 NULL, NULL, &small, &out, &error),
                     -1);
    ck_assert(strstr(error.text, "steps"));
}
END_TEST

/* A loop that appends to a string is linear: a megabyte in pieces of 100 bytes would be 5 GB if
 * each turn copied what is before it. */
START_TEST(appending_is_cheap)
{
    struct jinja_output out;
    struct error error;
    ck_assert_msg(render_with("{% set ns = namespace(s='') %}{% for i in range(10000) %}"
                              "{% set ns.s = ns.s + 'x' * 100 %}{% endfor %}{{ ns.s }}",
                              NULL, NULL, &defaults, &out, &error) == 0,
                  "%s", error.text);
    ck_assert_uint_eq(out.bytes, 1000000);
    ck_assert_uint_eq(out.written.count, 1);
    jinja_output_free(&out);
}
END_TEST

#define SEARCH                                                                                     \
    "{% for m in range(n) %}{% set f = namespace(found=false, at=none) %}"                         \
    "{% for j in range(m - 1, -1, -1) %}{% if not f.found %}{% if j % 7 == 3 %}"                   \
    "{% set f.found = true %}{% set f.at = j %}{% endif %}{% endif %}{% endfor %}"                 \
    "{% set s = namespace(stop=false, k=0) %}"                                                     \
    "{% for k in range(m, n) %}{% if s.stop %}{% elif k > m + 2 %}{% set s.stop = true %}"         \
    "{% else %}{% set s.k = s.k + 1 %}{% endif %}{% endfor %}"                                     \
    "{% if m + 5 > n %}[{{ f.at }} {{ s.k }}]{% endif %}{% endfor %}"

/* Templates without `break` search with a flag. Such a loop costs nothing more once the flag is
 * set: all turns of the two ranges here would be a million, of 4 steps at least and 16 bytes. */
START_TEST(a_loop_that_waits_for_its_end_is_left)
{
    struct jinja_output out;
    struct error error;
    struct jinja_limits limits = defaults;
    limits.steps = 400000;
    limits.memory_bytes = (size_t)4 << 20;
    ck_assert_msg(render_with(SEARCH, NULL, "{\"n\": 20}", &defaults, &out, &error) == 0, "%s",
                  error.text);
    ck_assert_str_eq(out.text, "[10 3][10 3][17 2][17 1]");
    jinja_output_free(&out);
    ck_assert_msg(render_with(SEARCH, NULL, "{\"n\": 1000}", &limits, &out, &error) == 0, "%s",
                  error.text);
    ck_assert_str_eq(out.text, "[990 3][990 3][997 2][997 1]");
    jinja_output_free(&out);
}
END_TEST

#define FAR "9223372036854775807"

/* Conditions that a turn may change, or that have effects, are evaluated in every turn. */
START_TEST(a_loop_that_may_do_something_is_not_left)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"{% for i in [0, 1, 0, 1] %}{% if i %}x{% endif %}{% endfor %}", "xx"},
        {"{% for a, b in [(1, 0), (0, 1)] %}{% if b %}x{% endif %}{% endfor %}", "x"},
        {"{% for i in range(4) %}{% if loop.last %}x{% endif %}{% endfor %}", "x"},
        {"{% for i in range(4) %}{% if no %}a{% else %}x{% endif %}{% endfor %}", "xxxx"},
        {"{% for i in range(4) %}{% if no %}a{% elif i == 2 %}x{% endif %}{% endfor %}", "x"},
        {"{% for i in range(3) %}{% if no %}a{% endif %}x{% endfor %}", "xxx"},
        {"{% set n = namespace(i=0) %}{% macro up() %}{% set n.i = n.i + 1 %}{% endmacro %}"
         "{% for i in range(3) %}{% if up() %}a{% endif %}{% endfor %}{{ n.i }}",
         "3"},
        {"{% for i in range(3) %}{% if no %}a{% endif %}{% else %}b{% endfor %}c", "c"},
        {"{% for i in range(0) %}a{% else %}b{% endfor %}", "b"},
        {"{% for i in range(9, 0, -4) if i != 5 %}{{ i }}{{ loop.last }}{{ loop.length }},"
         "{% endfor %}",
         "9False2,1True2,"},
        {"{% for i in range(3) %}{{ loop.nextitem }}{{ loop.revindex }}{% endfor %}", "1322"
                                                                                      "1"},
        {"{% set range = d.get %}{% for i in range('k') %}{{ i }}{% endfor %}", "v"},
        {"{% set l = range(3) %}{% for i in l %}{{ i }}{% endfor %}{{ l }}", "012range(0, 3)"},
        {"{% for i in range(-5, 9, 7) %}{{ i }} {% endfor %}", "-5 2 "},
        {"{% for i in range(-" FAR " - 1, " FAR ", " FAR ") %}{{ i }} {% endfor %}",
         "-9223372036854775808 -1 9223372036854775806 "},
        {"{{ range(" FAR ", -" FAR " - 1, -" FAR ") | list }}",
         "[9223372036854775807, 0, -9223372036854775807]"},
        {"{% set n = namespace(l=none) %}{% for i in range(4) %}{% if not n.l %}{% set n.l = loop "
         "%}"
         "{% elif n.l.last %}x{% endif %}{% endfor %}",
         "x"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct jinja_output out;
        struct error error;
        ck_assert_msg(render_with(cases[i].text, NULL, "{\"no\": false, \"d\": {\"k\": \"v\"}}",
                                  &defaults, &out, &error) == 0,
                      "%s: %s", cases[i].text, error.text);
        ck_assert_msg(strcmp(out.text, cases[i].expected) == 0, "%s: '%s'", cases[i].text,
                      out.text);
        jinja_output_free(&out);
    }
    struct jinja_output out; /* the second element cannot be unpacked */
    struct error error;
    ck_assert_int_eq(render_with("{% for a, b in [(1, 2), 3] %}{% if no %}x{% endif %}{% endfor %}",
                                 NULL, "{}", &defaults, &out, &error),
                     -1);
}
END_TEST

/* A million turns, in 64 MiB; a scope that a macro refers to is not that of the next turn. */
START_TEST(turns_share_a_scope)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"{% set l = range(1000) %}{% for a in l %}{% for b in l %}{% set x = b %}{% endfor %}"
         "{% endfor %}ok",
         "ok"},
        {"{% for i in range(3) %}{{ y is defined }}{% set y = i %}{% endfor %}", "FalseFalseFalse"},
        {"{% set ns = namespace(m=none) %}{% for i in range(3) %}{% set x = i %}{% if i == 1 %}"
         "{% macro f() %}{{ x }}{% endmacro %}{% set ns.m = f %}{% endif %}{% endfor %}{{ ns.m() "
         "}}",
         "1"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct jinja_output out;
        struct error error;
        ck_assert_msg(render_with(cases[i].text, NULL, NULL, &defaults, &out, &error) == 0, "%s",
                      error.text);
        ck_assert_str_eq(out.text, cases[i].expected);
        jinja_output_free(&out);
    }
}
END_TEST

START_TEST(errors_name_the_line)
{
    struct jinja_output out;
    struct error error;
    ck_assert_int_eq(render_with("a\nb\n{{ x.y }}", NULL, NULL, &defaults, &out, &error), -1);
    ck_assert_str_eq(error.text, "chat template, line 3: 'x' is undefined");
    ck_assert_int_eq(render_with("{{ raise_exception('Roles\nmust alternate') }}", NULL, NULL,
                                 &defaults, &out, &error),
                     -1);
    ck_assert_str_eq(error.text, "chat template, line 1: Roles must alternate");
    ck_assert_int_eq(render_with("\n\n{% if %}", NULL, NULL, &defaults, &out, &error), -1);
    ck_assert(strstr(error.text, "line 3"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("jinja");
    TCase *tc = tcase_create("jinja");
    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, equals_jinja2, 0, (int)ARRAY_LEN(vectors));
    tcase_add_test(tc, every_byte_has_its_writer);
    tcase_add_test(tc, a_known_role_is_the_templates);
    tcase_add_test(tc, endless_templates_stop);
    tcase_add_test(tc, what_nests_fits_the_stack);
    tcase_add_test(tc, deep_syntax_is_rejected);
    tcase_add_test(tc, many_elifs);
    tcase_add_test(tc, smaller_limits_are_kept);
    tcase_add_test(tc, appending_is_cheap);
    tcase_add_test(tc, a_loop_that_waits_for_its_end_is_left);
    tcase_add_test(tc, a_loop_that_may_do_something_is_not_left);
    tcase_add_test(tc, turns_share_a_scope);
    tcase_add_test(tc, errors_name_the_line);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
