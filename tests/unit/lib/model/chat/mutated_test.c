/* SPDX-License-Identifier: Apache-2.0 */
/* Mutated answers of every form of calls: spans are left out, repeated, exchanged, and marks are
 * put in. Nothing is lost: each letter of the answer (a Chinese one; all else is marks) is in the
 * parts as often as in the answer, and a mark is missing only where a call or reasoning was
 * read. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/random.h"
#include "lib/model/chat/answer.h"
#include "tests/harness/sample.h"

#define CHARS_MAX  1024
#define TEXT_MAX   (8 * CHARS_MAX)
#define LETTERS    0x100
#define CHANGES    6
#define FIRST_CODE 0x4e00

/* An answer with a piece of each kind; letters are in all texts. The sign makes the form. */
static const struct {
    const char *sign, *answer;
} forms[] = {
    {"</think>\n<tool_call></tool_call>",
     "<think>一丁丂</think>七丄<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"丅丆\", "
     "\"万\": [1, \"丈\"]}}\n</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": "
     "{}}</tool_call>三上"},
    {"</think><function=",
     "<think>一丁丂</think>七丄<tool_call>\n<function=f>\n<parameter=a>\n丅丆\n</parameter>\n"
     "<parameter=万>\n丈\n</parameter>\n</function>\n</tool_call>\n<tool_call><function=g>"
     "</function></tool_call>三上"},
    {"</think><arg_key>",
     "<think>一丁丂</think>七丄<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>丅丆</arg_value>\n"
     "<arg_key>万</arg_key><arg_value>丈</arg_value></tool_call><tool_call>g</tool_call>三上"},
    {"</think><minimax:tool_call>",
     "<think>一丁丂</think>七丄<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">丅丆"
     "</parameter>\n<parameter name=\"万\">丈</parameter></invoke><invoke name=\"g\">\n</invoke>\n"
     "</minimax:tool_call>三上"},
    {"</tool_calls><end_of_sentence>",
     "<think>一丁丂</think>七丄<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"a\": \"丅丆\", "
     "\"万\": [1, \"丈\"]}}\n{\"name\": \"g\", \"arguments\": {}}\n</tool_calls>三上"},
    {"</mm:think>]<]minimax[>[",
     "<mm:think>一丁丂</mm:think>七丄]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">"
     "]<]minimax[>[<a>丅丆]<]minimax[>[</a>]<]minimax[>[<b>]<]minimax[>[<item>万]<]minimax[>[</"
     "item>"
     "]<]minimax[>[<item>丈]<]minimax[>[</item>]<]minimax[>[</b>]<]minimax[>[</invoke>\n"
     "]<]minimax[>[<invoke name=\"g\">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>三上"},
    {"</think>'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type']",
     "<think>一丁丂</think>七丄<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n"
     "```json\n{\"a\": \"丅丆\", \"万\": "
     "\"丈\"}\n```<｜tool▁call▁end｜><｜tool▁call▁begin｜>function"
     "<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>三上"},
    {"</think><｜tool▁calls▁begin｜>",
     "<think>一丁丂</think>七丄<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
     "\"丅丆\","
     " \"万\": \"丈\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜>三上"},
    {"</think><|tool_calls_section_begin|>",
     "<think>一丁丂</think>七丄<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
     "<|tool_call_argument_begin|>{\"a\": \"丅丆\", \"万\": "
     "\"丈\"}<|tool_call_end|><|tool_call_begin|>"
     "functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>三上"},
    {"<|channel>thought<channel|><|tool_call><tool_call|>",
     "<|channel>thought\n一丁丂\n<channel|>七丄<|tool_call>call:f{a:<|\"|>丅丆<|\"|>,万:[1,<|\"|>丈"
     "<|\"|>]}<tool_call|><|tool_call>call:g{}<tool_call|>三上"},
    {"</think><parameter=example_parameter_1>value_1</parameter>",
     "<think>一丁丂</think>七丄<tool_call>\n<function=f>\n<parameter=a>丅丆</parameter>\n"
     "<parameter=万>丈</parameter>\n</function>\n</tool_call>\n<tool_call><function=g>"
     "</function></tool_call>三上"},
    {"HYTK = ':opensource'",
     "<think:opensource>一丁丂</think:opensource>七丄<tool_calls:opensource>\n"
     "<tool_call:opensource>f<tool_sep:opensource>\n<arg_key:opensource>a</arg_key:opensource>\n"
     "<arg_value:opensource>丅丆</arg_value:opensource>\n<arg_key:opensource>万"
     "</arg_key:opensource>\n<arg_value:opensource>丈</arg_value:opensource>\n"
     "</tool_call:opensource>\n<tool_call:opensource>g<tool_sep:opensource>\n"
     "</tool_call:opensource>\n</tool_calls:opensource>三上"},
    {"HYTK = ':6124c78e'", "<think:6124c78e>一丁丂</think:6124c78e>七丄<tool_calls:6124c78e>\n"
                           "<tool_call:6124c78e>f\n<arg_key:6124c78e>a</arg_key:6124c78e>\n"
                           "<arg_value:6124c78e>丅丆</arg_value:6124c78e>\n<arg_key:6124c78e>万"
                           "</arg_key:6124c78e>\n<arg_value:6124c78e>丈</arg_value:6124c78e>\n"
                           "</tool_call:6124c78e>\n<tool_call:6124c78e>g\n"
                           "</tool_call:6124c78e>\n</tool_calls:6124c78e>三上"},
    {"<|END_THINKING|><|END_TEXT|><|START_ACTION|>",
     "<|START_THINKING|>一丁丂<|END_THINKING|><|START_TEXT|>七丄<|END_TEXT|><|START_ACTION|>[\n"
     "    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\": \"丅丆\", "
     "\"万\": [1, "
     "\"丈\"]}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]"
     "<|END_ACTION|>三上"},
    {"[/THINK][CALL_ID][ARGS]",
     "[THINK]一丁丂[/THINK]七丄[TOOL_CALLS]f[CALL_ID]abc123XYZ[ARGS]{\"a\": \"丅丆\", \"万\": "
     "\"丈\"}[TOOL_CALLS]g[CALL_ID]abc123XYA[ARGS]{}"},
    {"[/THINK][TOOL_CALLS]",
     "[THINK]一丁丂[/THINK]七丄[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"丅丆\", "
     "\"万\": [1, \"丈\"]}, \"id\": \"abc123XYZ\"}, {\"name\": \"g\", \"arguments\": {}}]"},
    {"</think>List of tools: [",
     "<think>一丁丂</think>七丄<|tool_call_start|>[f(a='丅丆', 万=[1, {\"b\": \"丈\\n\"}]), g()]"
     "<|tool_call_end|>三上"},
    {"</think><|header_start|>[func_name1(",
     "<think>一丁丂</think><|python_start|>七丄<|python_end|>[f(a='丅丆', 万=[1, {\"b\": "
     "\"丈\\n\"}]), "
     "g()]"},
    {"</think><|header_start|>{\"name\": function name, \"parameters\": dictionary",
     "<think>一丁丂</think><|python_start|>七丄<|python_end|>{\"name\": \"f\", \"parameters\": "
     "{\"a\": "
     "\"丅丆\", \"万\": [1, \"丈\"]}}; {\"name\": \"g\", \"parameters\": {}}"},
    {"<|channel|>analysis<|message|>",
     "<|channel|>analysis<|message|>一丁丂<|end|><|start|>assistant<|channel|>commentary<|message|>"
     "七丄"
     "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
     "{\"a\": \"丅丆\", \"万\": "
     "\"丈\"}<|call|><|start|>assistant<|channel|>final<|message|>三上<|return|>"},
};

/* ---- mutations: of whole characters ---- */

struct text {
    size_t count; /* characters */
    char c[CHARS_MAX][5];
};

static void add(struct text *t, const char *bytes)
{
    while (*bytes && t->count < CHARS_MAX) {
        size_t n = 1;
        while ((bytes[n] & 0xc0) == 0x80)
            n++;
        memcpy(t->c[t->count], bytes, n);
        t->c[t->count++][n] = 0;
        bytes += n;
    }
}

static void add_span(struct text *t, const struct text *from, size_t at, size_t end)
{
    for (; at < end && at < from->count; at++)
        add(t, from->c[at]);
}

static size_t below(struct random *r, size_t n)
{
    return random_below(r, n);
}

/* One change between two places. */
static void change(struct text *t, struct random *r, const char *const *marks, uint32_t count)
{
    static const char *const others[] = {"\"", "{",  "}", "\n", " ", "下",
                                         "丌", "不", "<", ",",  "\\"};
    static struct text old;
    old = *t;
    size_t a = below(r, old.count + 1), b = below(r, 2) ? below(r, old.count + 1) : a + below(r, 9);
    size_t from = a < b ? a : b, to = a < b ? b : a, kind = below(r, 5);
    t->count = 0;
    add_span(t, &old, 0, from);
    if (kind == 0) { /* again */
        add_span(t, &old, from, to);
        add_span(t, &old, from, to);
    } else if (kind == 1) { /* after what follows it */
        add_span(t, &old, to, to + 20);
        add_span(t, &old, from, to);
        to += 20;
    } else if (kind == 2 && count > 0) {
        add(t, marks[below(r, count)]);
        to = from;
    } else if (kind == 3) {
        add(t, others[below(r, ARRAY_LEN(others))]);
        to = from;
    } /* else left out */
    add_span(t, &old, to, old.count);
    if (below(r, 12) == 0) /* the answer was cut off */
        t->count = below(r, t->count + 1);
}

/* ---- what is in a text ---- */

static void count_letters(const char *text, int sign, int counts[LETTERS])
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (p[0] == 0xe4 && p[1] >= 0xb8 && p[1] < 0xbc)
            counts[((p[1] & 0x3f) - 0x38) * 64 + (p[2] & 0x3f)] += sign;
}

static int count_marks(const char *text, const char *mark)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, mark)) != NULL; at += strlen(mark))
        n++;
    return n;
}

struct parts {
    FILE *out;   /* all, to compare */
    FILE *texts; /* reasoning, content, and the texts of calls */
    char *all, *words;
    size_t all_bytes, word_bytes;
    int calls, last;
    const char *answer; /* with its marks */
    uint64_t given;     /* bytes of it, up to the end of the last piece */
};

static void write_texts(FILE *to, const json_t *value)
{
    const char *key;
    json_t *member;
    size_t i;
    if (json_is_string(value))
        fprintf(to, "%s\n", json_string_value(value));
    json_array_foreach(value, i, member) write_texts(to, member);
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        fprintf(to, "%s\n", key);
        write_texts(to, member);
    }
}

static void collect(void *arg, const struct answer_piece *p)
{
    struct parts *parts = arg;
    if (parts->last != (int)p->part || p->part == ANSWER_CALL) {
        fprintf(parts->out, "|%d:", p->part);
        fputc(1, parts->texts); /* no mark is in two parts */
    }
    parts->last = (int)p->part;
    if (p->from != parts->given) /* nor before and after one that was left out */
        fputc(1, parts->texts);
    ck_assert_msg(p->from >= parts->given && p->from <= strlen(parts->answer), "a piece at %zu",
                  (size_t)p->from);
    parts->given = p->from + p->bytes;
    if (p->part != ANSWER_CALL) {
        ck_assert_msg(strncmp(parts->answer + p->from, p->text, p->bytes) == 0,
                      "'%.*s' is not at %zu of '%s'", (int)p->bytes, p->text, (size_t)p->from,
                      parts->answer);
        fwrite(p->text, 1, p->bytes, parts->out);
        fwrite(p->text, 1, p->bytes, parts->texts);
        return;
    }
    json_t *arguments = json_loads(p->arguments, JSON_DECODE_ANY, NULL);
    fprintf(parts->out, "%s(%s)%s", p->name, p->arguments, p->id ? p->id : "");
    fprintf(parts->texts, "\n%s\n%s\n", p->id ? p->id : "",
            p->id && strstr(p->id, p->name) ? "" : p->name);
    if (arguments)
        write_texts(parts->texts, arguments);
    else
        fprintf(parts->texts, "%s\n", p->arguments);
    json_decref(arguments);
    parts->calls++;
}

static void split(const struct answer_form *form, const struct text *t, size_t piece,
                  struct parts *parts)
{
    struct answer a;
    char answer[TEXT_MAX] = "";
    for (size_t i = 0; i < t->count; i++)
        strcat(answer, t->c[i]);
    *parts = (struct parts){.last = -1, .answer = answer};
    parts->out = open_memstream(&parts->all, &parts->all_bytes);
    parts->texts = open_memstream(&parts->words, &parts->word_bytes);
    answer_open(&a, form, false, collect, parts);
    for (size_t i = 0; i < t->count; i += piece) {
        char bytes[TEXT_MAX] = "";
        size_t n = 0;
        for (size_t k = i; k < t->count && k < i + piece; k++)
            n += (size_t)sprintf(bytes + n, "%s", t->c[k]);
        ck_assert_int_eq(answer_take(&a, bytes, n, false), 0);
    }
    ck_assert_int_eq(answer_take(&a, "", 0, true), 0);
    answer_close(&a);
    fclose(parts->out);
    fclose(parts->texts);
}

/* ---- the check ---- */

static void check_marks(const struct answer_form *form, const char *text, const struct parts *p)
{
    const struct answer_call *c = &form->call;
    const struct {
        const char *mark;
        int missing; /* at most */
    } marks[] = {{form->reasoning.open, 1}, {form->reasoning.close, 1}, {c->open, p->calls},
                 {c->close, p->calls},      {c->call_open, p->calls},   {c->call_close, p->calls}};
    for (size_t i = 0; i < ARRAY_LEN(marks) && !form->channels; i++) {
        if (!marks[i].mark || !marks[i].mark[0])
            continue;
        const char *mark = marks[i].mark + strspn(marks[i].mark, "\n"); /* blanks are left out */
        int missing = count_marks(text, mark) - count_marks(p->words, mark);
        ck_assert_msg(missing >= 0 && missing <= marks[i].missing,
                      "%d of '%s' are missing, %d calls, in '%s': '%s'", missing, mark, p->calls,
                      text, p->all);
    }
}

static void check_letters(const char *text, const struct parts *p)
{
    int missing[LETTERS] = {0};
    count_letters(text, 1, missing);
    count_letters(p->words, -1, missing);
    for (size_t i = 0; i < LETTERS; i++)
        ck_assert_msg(missing[i] == 0, "U+%04zX: %d are missing, in '%s': '%s'", FIRST_CODE + i,
                      missing[i], text, p->all);
}

static void check(const struct answer_form *form, const struct text *t, size_t piece)
{
    struct parts whole, pieces;
    char text[TEXT_MAX] = "";
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++)
        n += (size_t)sprintf(text + n, "%s", t->c[i]);
    split(form, t, CHARS_MAX, &whole);
    split(form, t, piece, &pieces);
    ck_assert_msg(strcmp(whole.all, pieces.all) == 0, "pieces of %zu characters, '%s': '%s', '%s'",
                  piece, text, whole.all, pieces.all);
    check_letters(text, &whole);
    check_marks(form, text, &whole);
    free(whole.all);
    free(whole.words);
    free(pieces.all);
    free(pieces.words);
}

START_TEST(nothing_is_lost)
{
    static struct text t;
    const char *marks[ANSWER_MARKS_MAX];
    struct answer_form form = answer_form_of(forms[_i].sign, strlen(forms[_i].sign));
    uint32_t count = answer_marks(&form, marks);
    struct random r;
    random_seed(&r, 53, (uint64_t)_i);
    ck_assert(form.call.open && (form.channels || form.reasoning.open));
    for (unsigned i = 0, n = test_amount(AMOUNT_mutated_answers); i < n; i++) {
        t.count = 0;
        add(&t, forms[_i].answer);
        if (i == 0) { /* the calls are read */
            struct parts p;
            split(&form, &t, 7, &p);
            ck_assert_msg(p.calls == (form.channels ? 1 : 2), "'%s'", p.all);
            free(p.all);
            free(p.words);
        }
        for (size_t k = i == 0 ? 0 : 1 + below(&r, CHANGES); k > 0; k--)
            change(&t, &r, marks, count);
        check(&form, &t, 1 + below(&r, 30));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mutated");
    TCase *cases = tcase_create("mutated");
    tcase_set_timeout(cases, 300);
    tcase_add_loop_test(cases, nothing_is_lost, 0, ARRAY_LEN(forms));
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
