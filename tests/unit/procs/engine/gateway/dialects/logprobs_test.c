/* SPDX-License-Identifier: Apache-2.0 */
/* Long answers with the log-probabilities of 20 alternatives, in all dialects that have them: what
 * they take of memory and buffers, and what happens without. */
#include <malloc.h>

#include "lib/base/bytes.h"
#include "procs/engine/gateway/dialects/ollama/ollama.h"
#include "procs/engine/gateway/dialects/openai/openai.h"
#include "procs/engine/gateway/dialects/responses/responses.h"
#include "tests/unit/procs/engine/gateway/dialects/recorded.h"

#define ALTERNATIVES     20
#define JSON_PER_TOKEN   1500      /* about so many bytes */
#define HEAP_BYTES_MAX   (1 << 18) /* of JSON values: some tokens, not all of a long answer */
#define LONG_ANSWER      2000
#define LONG_ANSWER_BODY (LONG_ANSWER * 3 * JSON_PER_TOKEN)

static const struct dialect *const dialects[] = {&openai_completion, &openai_chat, &responses,
                                                 &ollama_chat, &ollama_generate};

/* ---- memory of JSON values ------------------------------------------------------------------- */

static size_t heap, heap_max, allocations, failing; /* failing: this allocation; 0: none */

static void *counted_malloc(size_t bytes)
{
    if (++allocations == failing)
        return NULL;
    void *p = malloc(bytes);
    heap += malloc_usable_size(p);
    heap_max = heap > heap_max ? heap : heap_max;
    return p;
}

static void counted_free(void *p)
{
    heap -= malloc_usable_size(p);
    free(p);
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct quota quota;

static void start(struct completion *c, const struct dialect *dialect, bool stream, size_t limit)
{
    struct recorded r = {.dialect = dialect, .logprobs = true};
    recorded_open(c, &r, stream, &quota);
    c->request.top_logprobs = ALTERNATIVES;
    quota.limit = limit;
}

static void take_token(struct completion *c)
{
    static const uint32_t piece = 5;
    static const double logprob = -0.123456789;
    static char texts[ALTERNATIVES][6];
    static struct engine_top top[ALTERNATIVES];
    for (size_t i = 0; i < ALTERNATIVES; i++) {
        snprintf(texts[i], sizeof texts[i], "word%c", (char)('a' + i));
        top[i] = (struct engine_top){.logprob = logprob, .text = texts[i], .bytes = piece};
    }
    struct engine_next next = {.count = 1,
                               .text = "word ",
                               .text_bytes = piece,
                               .logprobs = &logprob,
                               .logprobs_count = 1,
                               .top = top,
                               .top_each = ALTERNATIVES,
                               .piece_bytes = &piece,
                               .piece_bytes_count = 1};
    tokens_take(c, &next, 1);
    completion_text(c, next.text, next.text_bytes, true);
}

static void finish(struct completion *c)
{
    completion_free(c);
    ck_assert_uint_eq(quota.buffered, 0);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* A client that reads gets the end of an answer as it gets each token. */
START_TEST(streams)
{
    for (size_t i = 0; i < ARRAY_LEN(dialects); i++) {
        struct completion c;
        start(&c, dialects[i], true, 1 << 18);
        for (size_t n = 0; n < LONG_ANSWER; n++) {
            take_token(&c);
            ck_assert_msg(!c.failed && c.out.bytes > 0, "dialect %zu, token %zu", i, n);
            buffer_mark_sent(&c.out, buffer_unsent(&c.out), 0);
        }
        completion_end(&c, FINISH_END, NULL);
        ck_assert_msg(!c.failed, "dialect %zu", i);
        finish(&c);
    }
}
END_TEST

/* JSON values of all tokens together would take 15 KiB each. */
START_TEST(whole_in_little_memory)
{
    for (size_t i = 0; i < ARRAY_LEN(dialects); i++) {
        struct completion c;
        size_t bytes, before = heap;
        start(&c, dialects[i], false, LONG_ANSWER_BODY);
        for (size_t n = 0; n < LONG_ANSWER; n++)
            take_token(&c);
        completion_end(&c, FINISH_END, NULL);
        ck_assert(!c.failed);
        heap_max = heap;
        char *body = completion_whole(&c, &bytes);
        ck_assert_ptr_nonnull(body);
        ck_assert_msg(heap_max - before < HEAP_BYTES_MAX, "dialect %zu: %zu bytes", i,
                      heap_max - before);
        json_t *doc = json_loadb(body, bytes, 0, NULL);
        ck_assert_msg(doc != NULL, "dialect %zu", i);
        json_decref(doc);
        free(body);
        finish(&c);
    }
}
END_TEST

/* By one byte, too: it is no answer that fits later. */
START_TEST(whole_too_long)
{
    for (size_t i = 0; i < ARRAY_LEN(dialects); i++) {
        struct completion c;
        size_t bytes, length;
        start(&c, dialects[i], false, LONG_ANSWER_BODY);
        for (size_t n = 0; n < 20; n++)
            take_token(&c);
        completion_end(&c, FINISH_END, NULL);
        free(completion_whole(&c, &length));
        quota.limit = length;
        char *body = completion_whole(&c, &bytes);
        ck_assert_msg(body && bytes == length && !c.too_long, "dialect %zu", i);
        free(body);
        quota.limit = length - 1;
        ck_assert_msg(!completion_whole(&c, &bytes) && c.too_long, "dialect %zu", i);
        finish(&c);
    }
}
END_TEST

static char *list_of(const struct completion *c, size_t *bytes)
{
    json_t *list = openai_logprobs(&c->tokens);
    failing = 0;
    char *text = list ? json_dumps(list, JSON_COMPACT) : NULL;
    *bytes = text ? strlen(text) : 0;
    json_decref(list);
    return text;
}

/* The body, or, without a dialect, the list of an event; NULL: it says that it failed. */
static char *answer(const struct dialect *dialect, size_t *bytes)
{
    struct completion c;
    start(&c, dialect ? dialect : &openai_chat, false, 1 << 20);
    c.request.answer = (struct answer_form){0};
    take_token(&c);
    completion_end(&c, FINISH_END, NULL);
    char *out = dialect ? completion_whole(&c, bytes) : list_of(&c, bytes);
    finish(&c);
    return out;
}

static void check_failures(const struct dialect *dialect)
{
    size_t bytes, own, failed = 0;
    allocations = failing = 0;
    char *expected = answer(dialect, &bytes);
    size_t all = allocations;
    for (size_t k = 1; k <= all; k++) {
        allocations = 0;
        failing = k;
        char *got = answer(dialect, &own);
        failing = 0;
        failed += got == NULL;
        ck_assert_msg(!got || (own == bytes && memcmp(got, expected, own) == 0),
                      "allocation %zu of %zu: %.*s", k, all, (int)own, got);
        free(got);
    }
    ck_assert_uint_gt(failed, all / 2);
    free(expected);
}

/* Without memory an answer fails; none lacks a member or a token. */
START_TEST(each_allocation_fails)
{
    for (size_t i = 0; i < ARRAY_LEN(dialects); i++)
        check_failures(dialects[i]);
    check_failures(NULL);
}
END_TEST

int main(void)
{
    json_set_alloc_funcs(counted_malloc, counted_free);
    Suite *suite = suite_create("gateway");
    TCase *cases = tcase_create("logprobs");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, streams);
    tcase_add_test(cases, whole_in_little_memory);
    tcase_add_test(cases, whole_too_long);
    tcase_add_test(cases, each_allocation_fails);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
