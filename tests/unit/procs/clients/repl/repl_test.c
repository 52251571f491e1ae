/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation and the settings of repl, without an engine. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "procs/clients/repl/fit.h"
#include "procs/clients/repl/paste.h"
#include "procs/clients/repl/repl.h"

static char path[] = "/tmp/sluice-repl-test.XXXXXX";

static int add(struct conversation *t, const char *prompt, const char *response)
{
    return conversation_add(t, prompt, response, strlen(response));
}

/* What is removed from the end. */
static void take_last(struct conversation *t, const char *prompt)
{
    struct turn last;
    ck_assert(conversation_take_last(t, &last));
    ck_assert_str_eq(last.prompt, prompt);
    free(last.prompt);
    free(last.response);
}

static void check_text(struct conversation *t, const char *prompt, const char *expected)
{
    size_t bytes;
    char *text = conversation_text(t, prompt, &bytes);
    ck_assert_str_eq(text, expected);
    ck_assert_uint_eq(bytes, strlen(expected));
    free(text);
}

START_TEST(the_conversation_is_one_text)
{
    struct conversation t = {0};
    check_text(&t, "hello", "hello");
    ck_assert_int_eq(add(&t, "one", " two"), 0);
    ck_assert_int_eq(add(&t, "three\nfour", ""), 0);
    check_text(&t, "five", "one two\nthree\nfour\nfive");
    t.first = 1;
    check_text(&t, "five", "three\nfour\nfive");
    take_last(&t, "three\nfour");
    check_text(&t, "six", "six");
    take_last(&t, "one");
    ck_assert_uint_eq(t.first, 0);
    conversation_clear(&t);
    struct turn none;
    ck_assert(!conversation_take_last(&t, &none));
    conversation_clear(&t);
}
END_TEST

/* What a request can hold is sent, not 1500 bytes. */
START_TEST(a_long_conversation_is_sent)
{
    struct conversation t = {0};
    char turn[1001];
    memset(turn, 'x', 1000);
    turn[1000] = 0;
    for (int i = 0; i < 400; i++)
        ck_assert_int_eq(add(&t, turn, ""), 0);
    size_t bytes;
    char *text = conversation_text(&t, "end", &bytes);
    ck_assert_uint_eq(bytes, 400 * 1001 + 3);
    free(text);
    for (int i = 0; i < 400; i++)
        ck_assert_int_eq(add(&t, turn, ""), 0);
    text = conversation_text(&t, "end", &bytes);
    ck_assert_uint_le(bytes, ENGINE_PROMPT_BYTES_MAX);
    ck_assert_uint_gt(bytes, ENGINE_PROMPT_BYTES_MAX - 3000);
    ck_assert_uint_gt(t.first, 0);
    free(text);
    conversation_clear(&t);
}
END_TEST

static void check_chat(struct conversation *t, const struct model_chat *chat, const char *prompt,
                       const char *expected)
{
    struct error error;
    struct chat_prompt p;
    struct chat_format format = {.model = *chat};
    struct conversation_form form = {.chat = &format};
    ck_assert_msg(conversation_chat(t, &form, prompt, &p, &error) == 0, "%s", error.text);
    ck_assert_str_eq(p.text, expected);
    chat_prompt_free(&p);
}

#define PROMPT(text) "<|im_start|>user\n" text "<|im_end|>\n<|im_start|>assistant\n"

/* A model with a chat template gets the prompt in that format. Text the template rejects is an
 * error in the prompt; in an earlier message, it and everything before it are dropped. */
START_TEST(the_conversation_has_the_models_form)
{
    struct conversation t = {0};
    struct error error;
    struct chat_prompt p;
    struct model_chat chat = {.family = CHAT_CHATML, .eos = "<|im_end|>"};
    check_chat(&t, &chat, "hello", PROMPT("hello"));
    ck_assert_int_eq(add(&t, "one", "two"), 0);
    ck_assert_int_eq(add(&t, "three", "four"), 0);
    check_chat(&t, &chat, "five",
               PROMPT("one") "two<|im_end|>\n" PROMPT("three") "four<|im_end|>\n" PROMPT("five"));
    t.first = 1;
    check_chat(&t, &chat, "five", PROMPT("three") "four<|im_end|>\n" PROMPT("five"));
    t.first = 2;
    check_chat(&t, &chat, "<|im_start|>", PROMPT("<|im_start|>")); /* text, no control token */
    conversation_clear(&t);
    chat.family = CHAT_MISTRAL;
    struct chat_format format = {.model = chat};
    struct conversation_form form = {.chat = &format};
    ck_assert_int_eq(conversation_chat(&t, &form, "[INST]", &p, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_int_eq(add(&t, "five", "a [/INST] b"), 0);
    ck_assert_int_eq(add(&t, "six", "seven"), 0);
    check_chat(&t, &chat, "eight", "[INST] six [/INST] seven<|im_end|>[INST] eight [/INST]");
    ck_assert_uint_eq(t.first, 1); /* so the next prompt begins with this one */
    conversation_clear(&t);
}
END_TEST

#define OWN                                                                                        \
    "{% for m in messages %}{% if m.content == 'bad' %}{{ raise_exception('bad turn') }}{% endif " \
    "%}"                                                                                           \
    "[{{ m.role }}]{{ m.content }}{% endfor %}{{ '+' if enable_thinking else '-' }}"

static void check_own(struct conversation *t, const struct conversation_form *form,
                      const char *prompt, const char *expected)
{
    struct error error;
    struct chat_prompt p;
    ck_assert_msg(conversation_chat(t, form, prompt, &p, &error) == 0, "%s", error.text);
    ck_assert_str_eq(p.text, expected);
    chat_prompt_free(&p);
}

/* The template of the file is executed, with the system message and the variables. Turns up to one
 * that it rejects are left out. */
START_TEST(the_models_template_is_executed)
{
    struct conversation t = {0};
    struct error error;
    struct chat_prompt p;
    struct chat_format format = {0};
    json_t *variables = json_pack("{s:b}", "enable_thinking", 1);
    struct conversation_form form = {.chat = &format};
    const struct model_chat model = {.family = CHAT_CHATML};
    ck_assert_int_eq(chat_format_set(&format, &model, OWN, strlen(OWN), &error), 0);
    check_own(&t, &form, "one", "[user]one-");
    form.system = "sys";
    form.variables = variables;
    add(&t, "one", " two");
    check_own(&t, &form, "three", "[system]sys[user]one[assistant] two[user]three+");
    for (int i = 0; i < 9; i++)
        add(&t, i == 4 ? "bad" : "p", "r");
    check_own(&t, &form, "end",
              "[system]sys[user]p[assistant]r[user]p[assistant]r[user]p[assistant]r[user]p"
              "[assistant]r[user]end+");
    ck_assert_uint_eq(t.first, 6);
    ck_assert_int_eq(conversation_chat(&t, &form, "bad", &p, &error), -1);
    ck_assert(strstr(error.text, "bad turn") != NULL);
    ck_assert_uint_eq(t.first, 6);
    ck_assert_int_eq(conversation_chat(&t, &form, "\xff", &p, &error), -1);
    ck_assert(strstr(error.text, "UTF-8") != NULL);
    json_decref(variables);
    chat_format_free(&format);
    conversation_clear(&t);
}
END_TEST

/* NUL in a response is a character like others: in prompts of every form, and in a saved file. */
START_TEST(responses_with_nul)
{
    static const char text[] = "p\0r\np\0r\nend", own[] = "[user]p[assistant]\0r[user]end-",
                      turns[] = "User: p\nAssistant: \0r\nUser: end\nAssistant:";
    struct conversation t = {0}, loaded = {0};
    struct error error;
    struct chat_prompt p;
    size_t bytes;
    ck_assert_int_eq(conversation_add(&t, "p", "\0r", 2), 0);
    struct chat_format format = {.model.family = CHAT_PLAIN};
    struct conversation_form form = {.chat = &format};
    ck_assert_int_eq(conversation_chat(&t, &form, "end", &p, &error), 0);
    ck_assert(p.bytes == sizeof turns - 1 && memcmp(p.text, turns, p.bytes) == 0);
    chat_prompt_free(&p);
    ck_assert_int_eq(chat_format_set(&format, &format.model, OWN, strlen(OWN), &error), 0);
    ck_assert_int_eq(conversation_chat(&t, &form, "end", &p, &error), 0);
    ck_assert(p.bytes == sizeof own - 1 && memcmp(p.text, own, p.bytes) == 0);
    chat_prompt_free(&p);
    json_t *settings = json_object(), *again = NULL;
    ck_assert_int_eq(conversation_save(&t, settings, path, true, &error), 0);
    ck_assert_msg(conversation_load(&loaded, &again, path, &error) == 0, "%s", error.text);
    ck_assert(loaded.count == 1 && loaded.turns[0].response_bytes == 2 &&
              memcmp(loaded.turns[0].response, "\0r", 3) == 0 && loaded.bytes == t.bytes);
    ck_assert_int_eq(conversation_add(&t, "p", "\0r", 2), 0);
    char *all = conversation_text(&t, "end", &bytes);
    ck_assert(bytes == sizeof text - 1 && memcmp(all, text, bytes) == 0);
    free(all);
    json_decref(settings);
    json_decref(again);
    conversation_clear(&t);
    conversation_clear(&loaded);
    chat_format_free(&format);
}
END_TEST

START_TEST(the_oldest_is_forgotten)
{
    struct conversation t = {0};
    char *big = malloc(CONVERSATION_PROMPT_MAX + 1);
    memset(big, 'x', CONVERSATION_PROMPT_MAX);
    big[CONVERSATION_PROMPT_MAX] = 0;
    for (int i = 0; i < 100; i++) {
        big[0] = (char)('0' + i % 10);
        ck_assert_int_eq(add(&t, big, ""), 0);
        ck_assert_uint_le(t.bytes, CONVERSATION_BYTES_MAX);
    }
    ck_assert_uint_ge(t.count, CONVERSATION_BYTES_MAX / CONVERSATION_PROMPT_MAX - 1);
    ck_assert_int_eq(t.turns[t.count - 1].prompt[0], '9');
    conversation_clear(&t);
    free(big);
}
END_TEST

static void write_file(const char *text)
{
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

START_TEST(saved_is_loaded)
{
    struct repl a = {.context = 7}, b = {.context = 0};
    struct error error;
    char set[] = "stop \"a \\\"b\\n\" END", more[] = "parameter top_k 3";
    engine_submit_defaults(&a.submit);
    engine_submit_defaults(&b.submit);
    ck_assert_int_eq(settings_set(&a, set, &error), 0);
    ck_assert_int_eq(settings_set(&a, more, &error), 0);
    ck_assert_int_eq(settings_option(&a, "system", "Be \"brief\".\n", &error), 0);
    ck_assert_int_eq(settings_option(&a, "thinking", "off", &error), 0);
    a.submit.ignore_eos = true;
    add(&a.conversation, "one \"1\"", " two\n");
    add(&a.conversation, "\x01", "\xe2\x82\xac");
    json_t *settings = settings_json(&a), *loaded = NULL;
    ck_assert_int_eq(conversation_save(&a.conversation, settings, path, true, &error), 0);
    ck_assert_int_eq(conversation_save(&a.conversation, settings, path, false, &error), -1);
    ck_assert_msg(strstr(error.text, "exists already; /save --force FILE") != NULL, "%s",
                  error.text);
    ck_assert_int_eq(conversation_load(&b.conversation, &loaded, path, &error), 0);
    ck_assert_int_eq(settings_take(&b, loaded, &error), 0);
    ck_assert_uint_eq(b.conversation.count, 2);
    ck_assert_uint_eq(b.conversation.bytes, a.conversation.bytes);
    ck_assert_str_eq(b.conversation.turns[1].response, "\xe2\x82\xac");
    ck_assert_int_eq(b.context, 7);
    ck_assert_int_eq(b.submit.sampling.top_k, 3);
    ck_assert(b.submit.ignore_eos);
    ck_assert_uint_eq(b.submit.stops.count, 2);
    ck_assert_uint_eq(b.submit.stops.bytes[0], 5);
    ck_assert_int_eq(memcmp(b.submit.stops.text[0], "a \"b\n", 5), 0);
    ck_assert_str_eq(b.system, "Be \"brief\".\n");
    ck_assert_int_eq(b.thinking, TERNARY_OFF);
    json_object_del(loaded, "system"); /* files of before these settings: they stay */
    json_object_del(loaded, "thinking");
    ck_assert_int_eq(settings_take(&b, loaded, &error), 0);
    ck_assert_msg(b.system && strcmp(b.system, "Be \"brief\".\n") == 0,
                  "the system message is lost");
    ck_assert_int_eq(b.thinking, TERNARY_OFF);
    free(a.system);
    free(b.system);
    json_decref(settings);
    json_decref(loaded);
    conversation_clear(&a.conversation);
    conversation_clear(&b.conversation);
}
END_TEST

START_TEST(a_broken_file_changes_nothing)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"format\": \"other\", \"turns\": [], \"settings\": {}}",
        "{\"format\": \"sluice conversation 1\", \"turns\": 1, \"settings\": {}}",
        "{\"format\": \"sluice conversation 1\", \"turns\": [{}], \"settings\": {}}",
        "{\"format\": \"sluice conversation 1\", \"turns\": [7], \"settings\": {}}",
        "{\"format\": \"sluice conversation 1\", \"turns\": []}",
        "{\"format\": \"sluice conversation 1\\u0000\", \"turns\": [], \"settings\": {}}",
        ("{\"format\": \"sluice conversation 1\", \"turns\": [{\"prompt\": \"a\\u0000b\", "
         "\"answer\": \"c\"}], \"settings\": {}}"),
    };
    static const char *const bad_settings[] = {"{\"top_k\": -1}",
                                               "{\"top_k\": \"x\"}",
                                               "{\"nonsense\": 1}",
                                               "{\"stop\": [1]}",
                                               "{\"system\": \"x\\u0000\"}",
                                               "{\"ignore_eos\": true}",
                                               "{\"context\": 1e9}",
                                               "{\"system\": \"x\", \"thinking\": \"maybe\"}"};
    struct conversation t = {0};
    struct error error;
    json_t *settings = NULL;
    add(&t, "kept", "");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        write_file(bad[i]);
        ck_assert_msg(conversation_load(&t, &settings, path, &error) == -1, "row %zu", i);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
        ck_assert_ptr_null(settings);
    }
    ck_assert_str_eq(t.turns[0].prompt, "kept");
    ck_assert_int_eq(conversation_load(&t, &settings, "/nonexistent/file", &error), -1);
    settings = json_object();
    ck_assert_int_eq(conversation_save(&t, settings, "/nonexistent/file", false, &error), -1);
    json_decref(settings);
    for (size_t i = 0; i < ARRAY_LEN(bad_settings); i++) {
        struct repl r = {.context = 5};
        engine_submit_defaults(&r.submit);
        json_t *given = json_loads(bad_settings[i], JSON_ALLOW_NUL, NULL);
        ck_assert_msg(settings_take(&r, given, &error) == -1, "row %zu", i);
        ck_assert_int_eq(r.context, 5);
        ck_assert_int_eq(r.submit.sampling.top_k, 40);
        json_decref(given);
    }
    conversation_clear(&t);
}
END_TEST

START_TEST(settings_are_checked)
{
    static const char *const good[] = {"temperature 0",
                                       "temp 0.5",
                                       "top-k 7",
                                       "parameter seed 12",
                                       "tokens 9",
                                       "num_predict 10",
                                       "repeat_penalty 1.1 ",
                                       "special on",
                                       "stop",
                                       "context 0",
                                       "min_p 0.1",
                                       "stop \"\\n\\n\"",
                                       "thinking on",
                                       "system",
                                       "system You are \"brief\".",
                                       "",
                                       "temp"};
    static const char *const bad[] = {
        "nonsense", "temperature 1 2",        "nonsense 1", "special 1",  "tokens -1",
        "top_p 2",  "stop 1 2 3 4 5 6 7 8 9", "thinking 1", "system \xff"};
    char arguments[128];
    struct repl r = {.context = 5};
    struct error error;
    engine_submit_defaults(&r.submit);
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        snprintf(arguments, sizeof arguments, "%s", good[i]);
        ck_assert_msg(settings_set(&r, arguments, &error) == 0, "'%s': %s", good[i], error.text);
    }
    ck_assert_int_eq(r.submit.max_tokens, 10);
    ck_assert_uint_eq(r.submit.stops.count, 1);
    ck_assert_int_eq(memcmp(r.submit.stops.text[0], "\n\n", 2), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(arguments, sizeof arguments, "%s", bad[i]);
        ck_assert_msg(settings_set(&r, arguments, &error) == -1, "'%s' was taken", bad[i]);
        ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    }
    ck_assert_uint_eq(r.submit.stops.count, 1);
    ck_assert_str_eq(r.system, "You are \"brief\".");
    free(r.system);
    size_t names = 0;
    while (settings_name(names))
        names++;
    ck_assert_uint_ge(names, 12);
}
END_TEST

/* Tokens of turns, each with those of all after it; the last one is the prompt alone. */
struct counted {
    uint64_t tokens[12];
    size_t calls, last, fails;
};

static int count_turns(void *arg, size_t first, uint64_t *tokens, struct error *error)
{
    struct counted *c = arg;
    c->last = first;
    *tokens = c->tokens[first];
    return ++c->calls == c->fails ? error_set(error, ERR_GONE, "the engine has gone") : 0;
}

/* The same as trying one turn after the other, with few calls. */
START_TEST(a_full_context_leaves_out_the_oldest)
{
    struct counted c = {.tokens = {900, 800, 640, 640, 500, 420, 300, 220, 110, 90, 40, 20}};
    struct error error;
    for (size_t turns = 1; turns < ARRAY_LEN(c.tokens); turns++)
        for (size_t from = 0; from <= turns; from++)
            for (uint64_t most = 0; most < 1000; most += 10) {
                size_t expected = from, first = SIZE_MAX;
                while (expected < turns && c.tokens[expected] > most)
                    expected++;
                c.calls = 0;
                ck_assert_int_eq(fit_turns(from, turns, most, count_turns, &c, &first, &error), 0);
                ck_assert_uint_eq(first, expected);
                ck_assert_uint_eq(c.last, first); /* what is sent was made last */
                ck_assert_uint_le(c.calls, 6);
            }
    c.calls = 0;
    c.fails = 2;
    size_t first;
    ck_assert_int_eq(fit_turns(0, 11, 100, count_turns, &c, &first, &error), -1);
    ck_assert_int_eq(error.code, ERR_GONE);
}
END_TEST

/* The text of a paste, after its start mark. */
START_TEST(pastes)
{
    static const struct {
        const wchar_t *typed, *text;
    } rows[] = {
        {L"one\033[201~", L"one"},
        {L"one\rtwo\nthree\r\rfour\033[201~", L"one\ntwo\nthree\n\nfour"},
        {L"one\r\r\033[201~", L"one"},
        {L"\033[201~", L""},
        {L"\r\n\033[201~", L""},
        {L"a\tb\001\007\177c\x9b"
         L"2Jd\033[201~",
         L"a\tbc2Jd"},
        {L"\033[31mred\033[0m\033[201~", L"[31mred[0m"},
        {L"\033[20\033[201~", L"[20"},
        {L"\033\033[201~", L""},
        {L"[201~ caf\u00e9 \u20ac\033[201~", L"[201~ caf\u00e9 \u20ac"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct paste paste = {0};
        wchar_t text[64] = L"", out[PASTE_OUT];
        bool ended = false;
        for (const wchar_t *c = rows[i].typed; *c; c++) {
            ck_assert(!ended);
            ended = paste_take(&paste, *c, out);
            ck_assert_uint_lt(wcslen(out), PASTE_OUT);
            wcscat(text, out);
        }
        ck_assert_uint_le(paste.lines, wcslen(text));
        text[wcslen(text) - paste.lines] = 0;
        ck_assert_msg(ended && wcscmp(text, rows[i].text) == 0, "row %zu: '%ls'", i, text);
    }
}
END_TEST

int main(void)
{
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    Suite *suite = suite_create("repl");
    TCase *cases = tcase_create("repl");
    tcase_add_test(cases, the_conversation_is_one_text);
    tcase_add_test(cases, a_long_conversation_is_sent);
    tcase_add_test(cases, the_conversation_has_the_models_form);
    tcase_add_test(cases, the_models_template_is_executed);
    tcase_add_test(cases, responses_with_nul);
    tcase_add_test(cases, the_oldest_is_forgotten);
    tcase_add_test(cases, saved_is_loaded);
    tcase_add_test(cases, a_broken_file_changes_nothing);
    tcase_add_test(cases, settings_are_checked);
    tcase_add_test(cases, a_full_context_leaves_out_the_oldest);
    tcase_add_test(cases, pastes);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    unlink(path);
    return failed != 0;
}
