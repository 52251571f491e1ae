/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schema: what each keyword accepts, and that what cannot be enforced is refused with its path
 * and keyword. tests/golden/schema_random.py compares random schemas with another program. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/grammar/grammar.h"

static struct grammar *compile(const char *text)
{
    struct error error = {0};
    struct grammar *g = NULL;
    ck_assert_msg(grammar_from_schema(text, strlen(text), NULL, &g, &error) == 0, "%s: %s", text,
                  error.text);
    return g;
}

static bool fits(const struct grammar *g, const char *text)
{
    struct grammar_state *s = grammar_start(g);
    bool all = grammar_accept_text(s, text, strlen(text)) == strlen(text) && grammar_is_end(s);
    grammar_stop(s);
    return all;
}

#define KIND(k, more)                                                                              \
    "{\"type\":\"object\",\"required\":[\"k\"],\"properties\":{\"k\":{\"const\":\"" k "\"}" more   \
    "}}"

static const struct {
    const char *schema, *yes[4], *no[6];
} cases[] = {
    {"{}", {"null", "-0.5e+10", "{\"a\": [1,{}]}", "\"\\u00e9\""}, {"01", "", "nul", " 1", "[1,]"}},
    {"{\"type\":[\"null\",\"boolean\"]}", {"null", "true"}, {"1", "\"true\""}},
    {"{\"type\":\"string\",\"nullable\":true}", {"null", "\"\""}, {"1"}},
    {"{\"enum\":[1,\"a\",\"ab\",null,{\"b\":[1, 2]}]}",
     {"1", "\"ab\"", "{\"b\":[1,2]}", "{\"b\": [1, 2]}"},
     {"2", "\"abc\"", "{}"}},
    {"{\"type\":\"string\",\"enum\":[1,\"a\"]}", {"\"a\""}, {"1"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\\n\"", "\"a\\u0000b\""},
     {"\"a\"", "\"abcd\"", "\"\\ud83d\\ud83d\"", "\"\\udc00a\"", "\"a\nb\"", "\"\\x61\\x61\""}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":305}",
     {"-12", "0", "99", "305"},
     {"-13", "306", "1.0", "-0", "01", "1e1"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":2.5}",
     {"1", "2"},
     {"0", "3", "-1"}},
    {"{\"type\":\"number\",\"minimum\":0,\"exclusiveMaximum\":1}",
     {"0", "0.999", "0.0"},
     {"1", "1.0", "-0.1", "0."}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-2,\"maximum\":-1}",
     {"-1", "-1.5", "-1.0", "-1.999"},
     {"-2", "-2.0", "-0.9", "1"}},
    {"{\"type\":\"integer\",\"multipleOf\":25}",
     {"0", "-75", "100", "123456789012345675"},
     {"1", "70", "-5", "1234567890123456775", "00", "025"}},
    {"{\"type\":\"integer\",\"multipleOf\":1000}", {"0", "1000", "-12000"}, {"100", "000", "1500"}},
    {"{\"type\":\"integer\",\"multipleOf\":7}", {"0", "-7", "1001"}, {"1", "07", "-0"}},
    {"{\"pattern\":\"^[a-z]+$\",\"minLength\":2,\"maxLength\":4}",
     {"\"ab\"", "\"abcd\""},
     {"\"a\"", "\"abcde\"", "\"aB\""}},
    {"{\"pattern\":\"^[\\\\d-_]+$\"}", {"\"1-_9\"", "\"_\""}, {"\"A\"", "\":\"", "\"1a\""}},
    {"{\"pattern\":\"^[\\\\d-.]+$\"}", {"\"1.2-3\""}, {"\"/\"", "\"1a\""}},
    {"{\"pattern\":\"^[\\\\w--/]+$\"}", {"\"a-/\""}, {"\".\""}},
    {"{\"pattern\":\"^[\\\\s-x-z]+$\"}", {"\" -xz\""}, {"\"y\"", "\"w\""}},
    {"{\"pattern\":\"^[\\\\d-]+[a-c]$\"}", {"\"1-b\""}, {"\"a\"", "\".b\""}},
    {"{\"pattern\":\"b\\\\d\"}", {"\"ab1c\"", "\"b0\""}, {"\"b\"", "\"ab\""}},
    {"{\"pattern\":\"^(a|\\\"|\\\\n){2}$\"}", {"\"a\\\"\"", "\"\\na\""}, {"\"a\"", "\"ab\""}},
    {"{\"format\":\"date\"}", {"\"2026-12-31\""}, {"\"2026-13-01\"", "\"2026-02-30\"", "\"x\""}},
    {"{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083}",
     {"\"https://example.org:80/a//b/?c=d#e\"", "\"http://a\"", "\"http://a?b\""},
     {"\"https:/a\"", "\"\"", "\"http://\""}},
    {"{\"format\":\"uri\",\"maxLength\":255}", {"\"https://example.org/a?b=c\""}, {"\"x\""}},
    {"{\"format\":\"email\",\"minLength\":5,\"maxLength\":254}",
     {"\"a.b@mail.example.org\"", "\"a@b.de\""},
     {"\"a.b@org\"", "\"a@b@c.de\""}},
    {"{\"format\":\"email\",\"maxLength\":100}", {"\"a.b@mail.example.org\""}, {"\"a@b\""}},
    {"{\"format\":\"hostname\",\"maxLength\":255}", {"\"a-b.example\""}, {"\"a_b\""}},
    {"{\"type\":\"string\",\"enum\":[\"a\",\"b\"],\"enumDescriptions\":[\"x\",\"y\"]}",
     {"\"a\""},
     {"\"x\""}},
    {"{\"type\":\"string\",\"format\":\"enum\",\"enum\":[\"a\"]}", {"\"a\""}, {"\"x\""}},
    {"{\"const\":1,\"x-order\":2,\"uniqueItems\":false}", {"1"}, {"2"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/a\",\"x-a\":1},{\"x-a\":2}],\"x-b\":1,\"$defs\":{\"a\":{"
     "\"type\":\"null\"}}}",
     {"null"},
     {"1"}},
    {"{\"properties\":{\"next\":{\"$ref\":\"#\",\"x-order\":1}}}",
     {"{}", "{\"next\":{\"next\":{}}}"},
     {"{\"next\":1}"}},
    {"{\"format\":\"ipv4\"}", {"\"255.0.10.1\""}, {"\"256.0.0.1\"", "\"1.2.3\""}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":true,\"c\":{\"type\":\"null\"}},"
     "\"required\":[\"b\"]}",
     {"{\"b\":1}", "{\"a\":null, \"b\": 1}", "{\"b\":1,\"c\":null}"},
     {"{}", "{\"a\":null}", "{\"b\":1,\"a\":null}", "{\"b\":1,\"d\":1}", "{,\"b\":1}",
      "{\"b\":1,}"}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"},\"ab\":true},\"additionalProperties\":{\"type\":"
     "\"integer\"}}",
     {"{\"b\":1}", "{\"a\":null,\"abc\":1}", "{}", "{\"\":1,\"\\\"\":2}"},
     {"{\"a\":1}", "{\"b\":null}", "{\"\\u0061\":1}", "{\"a\\", "{\"b\":1,\"a\":null}"}},
    {"{\"required\":[\"x\",\"y\"]}",
     {"{\"x\":1,\"y\":2}", "{\"x\":1,\"y\":2,\"z\":3}"},
     {"{\"x\":1}", "{\"x\":1,\"z\":1,\"y\":2}"}},
    {"{\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1, 2,3]"},
     {"[]", "[1,2,3,4]", "[\"a\"]", "[1,]"}},
    {"{\"prefixItems\":[{\"type\":\"null\"},{\"const\":1}],\"items\":false,\"minItems\":1}",
     {"[null]", "[null,1]"},
     {"[]", "[1]", "[null,1,1]"}},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"integer\"}],\"minimum\":5}",
     {"5", "null"},
     {"4", "\"\""}},
    {"{\"oneOf\":[" KIND("a", "") "," KIND("b", ",\"v\":{\"type\":\"null\"}") "]}",
     {"{\"k\":\"a\"}", "{\"k\":\"b\",\"v\":null}"},
     {"{\"k\":\"c\"}", "{\"k\":\"a\",\"v\":null}"}},
    {"{\"allOf\":[{\"$ref\":\"#/$defs/"
     "a\"},{\"properties\":{\"b\":{\"maximum\":3}}}],\"required\":[\"b\"],"
     "\"$defs\":{\"a\":{\"properties\":{\"b\":{\"type\":\"integer\",\"minimum\":2}}}}}",
     {"{\"b\":2}", "{\"b\":3}"},
     {"{}", "{\"b\":1}", "{\"b\":4}"}},
    {"{\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}},\"required\":["
     "\"next\"]}",
     {"{\"next\":null}", "{\"next\":{\"next\":null}}"},
     {"{}", "{\"next\":{}}"}},
    {"{\"$ref\":\"#/$defs/a~1b%25\",\"$defs\":{\"a/b%\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
};

START_TEST(keywords)
{
    struct grammar *g = compile(cases[_i].schema);
    for (size_t i = 0; i < ARRAY_LEN(cases[_i].yes) && cases[_i].yes[i]; i++)
        ck_assert_msg(fits(g, cases[_i].yes[i]), "%s refuses %s", cases[_i].schema,
                      cases[_i].yes[i]);
    for (size_t i = 0; i < ARRAY_LEN(cases[_i].no) && cases[_i].no[i]; i++)
        ck_assert_msg(!fits(g, cases[_i].no[i]), "%s accepts %s", cases[_i].schema,
                      cases[_i].no[i]);
    grammar_free(g);
}
END_TEST

static const struct {
    const char *schema, *why;
} refused[] = {
    {"", "JSON Schema"},
    {"1", "at $: a schema is"},
    {"{\"type\":\"text\"}", "at $, type: there is no such type"},
    {"{\"properties\":{\"a\":{\"items\":{\"not\":{}}}}}", "at $.properties.a.items, not:"},
    {"{\"uniqueItems\":true}", "uniqueItems"},
    {"{\"type\":\"array\",\"contains\":{}}", "contains"},
    {"{\"if\":{}}", "if"},
    {"{\"patternProperties\":{\"a\":{}}}", "patternProperties"},
    {"{\"type\":\"object\",\"patternProperties\":{\"a\":{}}}", "patternProperties"},
    {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":1}}", "propertyNames"},
    {"{\"type\":\"object\",\"minProperties\":2}", "minProperties"},
    {"{\"required\":[\"a\"],\"additionalProperties\":false}", "required"},
    {"{\"type\":\"number\",\"minimum\":0.5}", "minimum"},
    {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no number"},
    {"{\"type\":\"integer\",\"maximum\":9007199254740995}", "2^53"},
    {"{\"type\":\"number\",\"multipleOf\":0.1}", "multipleOf"},
    {"{\"minLength\":3,\"maxLength\":2}", "minLength"},
    {"{\"minLength\":-1}", "no count"},
    {"{\"pattern\":\"(?=a)\"}", "look-around"},
    {"{\"pattern\":\"\\\\bx\"}", "not supported"},
    {"{\"pattern\":\"(a)\\\\1\"}", "not supported"},
    {"{\"pattern\":\"a^b\"}", "at the beginning"},
    {"{\"pattern\":\"a)\"}", "not opened"},
    {"{\"pattern\":\"[a\"}", "bracket"},
    {"{\"pattern\":\"ab\",\"maxLength\":9}", "longer than maxLength"},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"maxLength\":3}]}", "at $, oneOf"},
    {"{\"$ref\":\"#/nothing\"}", "leads to nothing"},
    {"{\"$ref\":\"http://example.org/a\"}", "$ref"},
    {"{\"allOf\":[{\"$ref\":\"#\"}]}", "at $"},
    {"{\"$ref\":\"#\"}", "at $, $ref: it leads back to itself"},
    {"{\"properties\":{\"a\":{\"$ref\":\"#/$defs/"
     "x\"}},\"$defs\":{\"x\":{\"anyOf\":[{\"type\":\"null\"},"
     "{\"$ref\":\"#/$defs/y\"}]},\"y\":{\"oneOf\":[{\"$ref\":\"#/$defs/x\"}]}}}",
     "at $.properties.a, $ref: it leads back to itself"},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "no text fits"},
    {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "pattern"},
    {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},{\"properties\":{"
     "\"b\":{}}}]}",
     "additionalProperties"},
    {"{\"allOf\":[{\"items\":{\"type\":\"integer\"}},{\"items\":[{\"type\":\"string\"}]}]}",
     "hold together"},
    {"{\"items\":[{}],\"prefixItems\":[{}]}", "beside prefixItems"},
    {"{\"pattern\":\"\\\\012\"}", "octal"},
    {"{\"enum\":[]}", "enum"},
    {"{\"enum\":[1],\"minimum\":0}", "beside enum"},
    {"{\"enum\":[\"a\"],\"format\":\"uri\"}", "beside enum"},
    {"{\"format\":\"uri\",\"maxLength\":20}", "leave the length out"},
    {"{\"pattern\":\"[a-\\\\d]\"}", "ends before it begins, or with"},
    {"false", "no text fits"},
};

START_TEST(refusals)
{
    struct error error = {0};
    struct grammar *g = NULL;
    const char *schema = refused[_i].schema;
    ck_assert_msg(grammar_from_schema(schema, strlen(schema), NULL, &g, &error) == -1, "%s",
                  schema);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, refused[_i].why) != NULL, "%s: %s", schema, error.text);
}
END_TEST

START_TEST(a_length_costs_nothing)
{
    struct grammar *small = compile("{\"type\":\"string\",\"maxLength\":20}");
    struct grammar *large = compile("{\"type\":\"string\",\"maxLength\":65536}");
    ck_assert_uint_eq(grammar_memory_bytes(small), grammar_memory_bytes(large));
    grammar_free(small);
    grammar_free(large);
}
END_TEST

/* Each schema doubles the choices of the one before it. */
START_TEST(explosions_are_refused)
{
    char text[4000];
    struct error error = {0};
    struct grammar *g = NULL;
    int n = snprintf(text, sizeof(text), "{\"$ref\":\"#/$defs/d0\",\"$defs\":{");
    for (int i = 0; i < 30; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n,
                      "\"d%d\":{\"allOf\":[{\"anyOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/"
                      "$defs/d%d\"}]},"
                      "{\"maxLength\":%d}]},",
                      i, i + 1, i + 1, 100 + i);
    snprintf(text + n, sizeof(text) - (size_t)n, "\"d30\":{\"type\":\"string\"}}}");
    ck_assert_int_eq(grammar_from_schema(text, strlen(text), NULL, &g, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
}
END_TEST

START_TEST(names_are_forced)
{
    struct grammar *g =
        compile("{\"properties\":{\"name\":{\"type\":\"string\"}},\"required\":[\"name\"]}");
    struct grammar_state *s = grammar_start(g);
    char out[40];
    ck_assert_uint_eq(grammar_forced(s, out, sizeof(out), NULL), 8);
    ck_assert(memcmp(out, "{\"name\":", 8) == 0);
    grammar_stop(s);
    grammar_free(g);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schema");
    TCase *t = tcase_create("schema");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, keywords, 0, ARRAY_LEN(cases));
    tcase_add_loop_test(t, refusals, 0, ARRAY_LEN(refused));
    tcase_add_test(t, a_length_costs_nothing);
    tcase_add_test(t, explosions_are_refused);
    tcase_add_test(t, names_are_forced);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
