/* SPDX-License-Identifier: Apache-2.0 */
/* Small parts of compute: pool, histogram, withheld text. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/random.h"
#include "lib/device/host/pool.h"
#include "lib/model/index/model_index.h"
#include "lib/model/tokenizer/blob.h"
#include "lib/text/utf8.h"
#include "procs/engine/compute/main/compute.h"
#include "tests/golden/image.h"
#include "tests/golden/reference.h"

/* ---- pool ---- */

struct sums {
    uint32_t n;
    _Atomic uint64_t sum, calls;
};

static void add_share(void *arg, uint32_t thread, uint32_t threads)
{
    struct sums *s = arg;
    uint32_t begin, end;
    pool_share(s->n, 3, thread, threads, &begin, &end);
    uint64_t sum = 0;
    for (uint32_t i = begin; i < end; i++)
        sum += i + 1;
    atomic_fetch_add(&s->sum, sum);
    atomic_fetch_add(&s->calls, 1);
}

START_TEST(pool_runs_every_part_once)
{
    struct error error;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        struct pool *pool = pool_create(threads, 1, UINT64_C(1) << 30, &error);
        ck_assert_ptr_nonnull(pool);
        ck_assert_uint_eq(pool_threads(pool), threads);
        for (uint32_t n = 0; n < 1500; n++) {
            struct sums s = {.n = n};
            pool_run(pool, add_share, &s);
            ck_assert_uint_eq(atomic_load(&s.calls), threads);
            ck_assert_uint_eq(atomic_load(&s.sum), (uint64_t)n * (n + 1) / 2);
        }
        pool_destroy(pool);
    }
}
END_TEST

struct claims {
    uint32_t threads;
    _Atomic uint32_t by[8]; /* by thread */
    _Atomic uint32_t out_of_range;
};

static void claim_one(void *arg, uint32_t part, uint32_t parts)
{
    struct claims *c = arg;
    if (pool_me() < c->threads && part < parts)
        atomic_fetch_add(&c->by[pool_me()], 1);
    else
        atomic_fetch_add(&c->out_of_range, 1);
}

/* More and fewer parts than threads; scratch memory may be indexed by thread number. */
START_TEST(pool_runs_any_number_of_parts)
{
    struct error error;
    for (uint32_t threads = 1; threads <= 5; threads++) {
        struct pool *pool = pool_create(threads, 1, UINT64_C(1) << 30, &error);
        ck_assert_ptr_nonnull(pool);
        for (uint32_t n = 0; n < 2000; n++) {
            struct claims c = {.threads = threads};
            uint32_t parts = 1 + n % 23, sum = 0;
            pool_run_parts(pool, parts, claim_one, &c);
            for (uint32_t t = 0; t < threads; t++)
                sum += atomic_load(&c.by[t]);
            ck_assert_uint_eq(sum, parts);
            ck_assert_uint_eq(atomic_load(&c.out_of_range), 0);
        }
        ck_assert_uint_eq(pool_parts(pool, 0), threads);
        ck_assert_uint_eq(pool_parts(pool, UINT64_MAX) % threads, 0);
        ck_assert_uint_ge(pool_parts(pool, UINT64_MAX), threads);
        pool_destroy(pool);
    }
}
END_TEST

START_TEST(shares_are_cut_at_units)
{
    for (uint32_t parts = 1; parts < 9; parts++) {
        uint32_t at = 0, begin, end;
        for (uint32_t i = 0; i < parts; i++) {
            pool_share(100, 16, i, parts, &begin, &end);
            ck_assert_uint_eq(begin, at);
            ck_assert(end % 16 == 0 || end == 100);
            at = end;
        }
        ck_assert_uint_eq(at, 100);
    }
}
END_TEST

/* ---- histogram ---- */

START_TEST(quantiles_are_within_a_bin)
{
    static struct histogram h;
    histogram_clear(&h);
    ck_assert_double_eq(histogram_quantile(&h, 0.5), 0);
    for (uint64_t i = 1; i <= 10000; i++)
        histogram_add(&h, i * 1000);
    ck_assert_double_eq_tol(histogram_quantile(&h, 0.50), 5e6, 5e6 * 0.02);
    ck_assert_double_eq_tol(histogram_quantile(&h, 0.95), 9.5e6, 9.5e6 * 0.02);
    ck_assert_double_eq_tol(histogram_quantile(&h, 0.99), 9.9e6, 9.9e6 * 0.02);
    histogram_clear(&h);
    histogram_add(&h, 0);
    histogram_add(&h, UINT64_MAX);
    ck_assert(histogram_quantile(&h, 0.0) < 2000);
    ck_assert(histogram_quantile(&h, 1.0) > 1e12);
}
END_TEST

/* ---- text ---- */

static struct image image;
static struct tokenizer *tokenizer;
static struct response response;

static void open_tokenizer(void)
{
    struct error error;
    image_open(&image, golden_demo_path(), 16);
    tokenizer = tokenizer_open((const char *)image.model + image.model->tokenizer_offset,
                               image.model->tokenizer_bytes, &error);
    ck_assert_ptr_nonnull(tokenizer);
}

static void close_tokenizer(void)
{
    tokenizer_close(tokenizer);
    image_close(&image);
}

/* Text sent to a client is always whole characters, whenever it polls, and nothing is lost. */
static const struct engine_marks no_marks;
static const struct client_text no_text;

START_TEST(text_is_whole_characters)
{
    static const char text[] = "a\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 end \xe4\xb8\xad";
    _Atomic uint32_t log[64];
    uint32_t *ids;
    size_t count, bytes;
    struct error error;
    ck_assert_int_eq(tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, &ids, &count, &error),
                     0);
    ck_assert_uint_le(count, 64);
    for (size_t i = 0; i < count; i++)
        atomic_store(&log[i], ids[i]);
    bool was_withheld = false;
    for (uint32_t have = 0; have <= count; have++) {
        size_t sent = response_gather(&response, tokenizer, log, have, false, STOP_CUT_NONE,
                                      &no_marks, &no_text, &bytes);
        was_withheld |= sent < have;
        ck_assert_uint_le(sent, have);
        ck_assert_uint_eq(utf8_complete_prefix(response.text, bytes), bytes);
        ck_assert_int_eq(memcmp(response.text, text, bytes), 0);
    }
    ck_assert(was_withheld);
    /* Sent token by token, the pieces join to the text. */
    char joined[sizeof text] = "";
    size_t at = 0, length = 0;
    for (uint32_t have = 0; have <= count; have++) {
        at += response_gather(&response, tokenizer, log + at, have - (uint32_t)at, false,
                              STOP_CUT_NONE, &no_marks, &no_text, &bytes);
        memcpy(joined + length, response.text, bytes);
        length += bytes;
    }
    ck_assert_uint_eq(at, count);
    ck_assert_int_eq(memcmp(joined, text, sizeof text - 1), 0);
    free(ids);
}
END_TEST

/* A sequence may end inside a character: then everything is sent. */
START_TEST(nothing_is_withheld_at_the_end)
{
    uint32_t *ids;
    size_t count, bytes;
    struct error error;
    _Atomic uint32_t log[8];
    ck_assert_int_eq(tokenizer_encode(tokenizer, "\xf0\x9f\x98\x80", 4, NULL, &ids, &count, &error),
                     0);
    ck_assert_uint_gt(count, 1); /* more than one token in this vocabulary */
    atomic_store(&log[0], ids[0]);
    ck_assert_uint_eq(response_gather(&response, tokenizer, log, 1, false, STOP_CUT_NONE, &no_marks,
                                      &no_text, &bytes),
                      0);
    ck_assert_uint_eq(bytes, 0);
    ck_assert_uint_eq(response_gather(&response, tokenizer, log, 1, true, STOP_CUT_NONE, &no_marks,
                                      &no_text, &bytes),
                      1);
    ck_assert_uint_gt(bytes, 0);
    free(ids);
}
END_TEST

/* A control token has a text only within a mark, and none after a stop text. */
START_TEST(control_tokens_within_marks)
{
    static const struct {
        const char *marks[2], *text;
        uint32_t cut;
    } rows[] = {{{NULL}, "ab", UINT32_MAX},
                {{"<|endoftext|>"}, "a<|endoftext|>b", UINT32_MAX},
                {{"<think>", "x<|endoftext|>y"}, "a<|endoftext|>b", UINT32_MAX},
                {{"endoftext|>"}, "ab", UINT32_MAX},
                {{"<|endoftext|>"}, "a", 1},
                {{"<|endoftext|>"}, "", 0}};
    uint32_t *ids;
    size_t count, bytes;
    struct error error;
    _Atomic uint32_t log[3];
    ck_assert_int_eq(
        tokenizer_encode(tokenizer, "a<|endoftext|>b", 15, &text_ranges_all, &ids, &count, &error),
        0);
    ck_assert_uint_eq(count, 3);
    for (size_t i = 0; i < count; i++)
        atomic_store(&log[i], ids[i]);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct engine_marks marks = {.text = {rows[i].marks[0], rows[i].marks[1]}};
        marks.count = !rows[i].marks[0] ? 0 : rows[i].marks[1] ? 2 : 1;
        struct stop_cut cut = {rows[i].cut, 0};
        ck_assert_uint_eq(
            response_gather(&response, tokenizer, log, 3, true, cut, &marks, &no_text, &bytes), 3);
        ck_assert_msg(bytes == strlen(rows[i].text) &&
                          memcmp(response.text, rows[i].text, bytes) == 0,
                      "row %zu: '%.*s'", i, (int)bytes, response.text);
    }
    free(ids);
}
END_TEST

/* Of the tokens of this text, the last one ends answers although it is no control token. */
static struct tokenizer *open_ending(const char *text, void **blob, _Atomic uint32_t *log,
                                     uint32_t *n)
{
    uint32_t *ids;
    size_t count, bytes = image.model->tokenizer_bytes;
    struct error error;
    ck_assert_int_eq(tokenizer_encode(tokenizer, text, strlen(text), NULL, &ids, &count, &error),
                     0);
    for (size_t i = 0; i < count; i++)
        atomic_store(&log[i], ids[i]);
    *n = (uint32_t)count;
    *blob = malloc(bytes);
    ck_assert_ptr_nonnull(*blob);
    memcpy(*blob, (const char *)image.model + image.model->tokenizer_offset, bytes);
    ((struct tokenizer_blob *)*blob)->ends[TOKENIZER_ENDS - 1] = ids[count - 1];
    free(ids);
    struct tokenizer *t = tokenizer_open(*blob, bytes, &error);
    ck_assert_msg(t != NULL, "%s", error.text);
    return t;
}

/* An end of answers has no text, like a control token: only within a mark, and where it does not
 * end the answer. */
START_TEST(ends_have_no_text)
{
    static const struct {
        const char *mark, *text;
        bool ends;
    } rows[] = {{NULL, "1 2 ", false},
                {NULL, "1 2 3", true},
                {"<3>", "1 2 3", false},
                {"<4>", "1 2 ", false}};
    _Atomic uint32_t log[16];
    uint32_t n;
    size_t bytes;
    void *blob;
    struct tokenizer *t = open_ending("1 2 3", &blob, log, &n);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct engine_marks marks = {.count = rows[i].mark != NULL, .text = {rows[i].mark}};
        struct client_text prompt = {.ends = rows[i].ends};
        ck_assert_uint_eq(
            response_gather(&response, t, log, n, true, STOP_CUT_NONE, &marks, &prompt, &bytes), n);
        ck_assert_msg(bytes == strlen(rows[i].text) &&
                          memcmp(response.text, rows[i].text, bytes) == 0,
                      "row %zu: '%.*s'", i, (int)bytes, response.text);
    }
    tokenizer_close(t);
    free(blob);
}
END_TEST

/* A vocabulary that adds blanks. */
static struct tokenizer *open_spm(struct model_index **index)
{
    static const char path[] = SLUICE_SOURCE_DIR "/tests/golden/data/tokenizers/spm.gguf";
    struct error error = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_msg(model_index_build(fd, path, index, &error) == 0, "%s", error.text);
    close(fd);
    struct tokenizer *t = tokenizer_open((char *)*index + (*index)->tokenizer_offset,
                                         (*index)->tokenizer_bytes, &error);
    ck_assert_msg(t && tokenizer_adds_blank(t), "%s", error.text);
    return t;
}

/* Token by token and in one reply, the text of a prompt is what the client wrote, and that of the
 * answer behind it what the model wrote. */
static void check_client_text(const struct tokenizer *t, bool bos, const char *text,
                              const char *answer)
{
    uint32_t *ids, *more, n = 0;
    size_t count, added, bytes;
    struct error error = {0};
    _Atomic uint32_t log[100];
    ck_assert_int_eq(
        tokenizer_encode(t, text, strlen(text), &text_ranges_all, &ids, &count, &error), 0);
    ck_assert_int_eq(tokenizer_encode(t, answer, strlen(answer), NULL, &more, &added, &error), 0);
    ck_assert_uint_le(count + added + bos, ARRAY_LEN(log));
    if (bos)
        atomic_store(&log[n++], tokenizer_bos(t));
    for (size_t i = 0; i < count; i++)
        atomic_store(&log[n++], ids[i]);
    struct client_text prompt = {.first = bos, .end = n};
    for (size_t i = 0; i < added; i++)
        atomic_store(&log[n++], more[i]);
    char expected[200], joined[200] = "";
    snprintf(expected, sizeof expected, "%s%s%s", text,
             added > 0 && tokenizer_adds_blank(t) ? " " : "", answer);
    response_gather(&response, t, log, n, true, STOP_CUT_NONE, &no_marks, &prompt, &bytes);
    ck_assert_msg(bytes == strlen(expected) && memcmp(response.text, expected, bytes) == 0,
                  "'%s': '%.*s'", expected, (int)bytes, response.text);
    for (; prompt.at < n; prompt.at++) {
        response_gather(&response, t, log + prompt.at, 1, true, STOP_CUT_NONE, &no_marks, &prompt,
                        &bytes);
        strncat(joined, response.text, bytes);
    }
    ck_assert_str_eq(joined, expected);
    free(ids);
    free(more);
}

/* The prompt with a control token for each @. */
static const char *with_control(const char *prompt, const char *control)
{
    static char text[200];
    size_t n = 0;
    for (; *prompt; prompt++)
        n += (size_t)(*prompt == '@' ? snprintf(text + n, sizeof text - n, "%s", control)
                                     : snprintf(text + n, sizeof text - n, "%c", *prompt));
    text[n] = 0;
    return text;
}

START_TEST(prompts_are_as_the_client_wrote_them)
{
    static const char *const prompts[] = {"", "hi", " hi", "   ", "@", "@ hi", "@hi@ a@b"};
    struct model_index *index;
    struct tokenizer *spm = open_spm(&index);
    size_t bytes;
    const char *name = tokenizer_control_name(spm, tokenizer_bos(spm), &bytes);
    char control[50];
    snprintf(control, sizeof control, "%.*s", (int)bytes, name);
    for (size_t i = 0; i < ARRAY_LEN(prompts); i++) {
        check_client_text(spm, true, with_control(prompts[i], control), "The");
        check_client_text(spm, false, with_control(prompts[i], control), "The");
        check_client_text(tokenizer, false, with_control(prompts[i], "<|endoftext|>"), " The");
    }
    tokenizer_close(spm);
    free(index);
}
END_TEST

/* ---- stop texts ---- */

static uint32_t encode(const char *text, _Atomic uint32_t *log, size_t cap)
{
    uint32_t *ids;
    size_t count;
    struct error error;
    ck_assert_int_eq(tokenizer_encode(tokenizer, text, strlen(text), NULL, &ids, &count, &error),
                     0);
    ck_assert_uint_le(count, cap);
    for (size_t i = 0; i < count; i++)
        atomic_store(&log[i], ids[i]);
    free(ids);
    return (uint32_t)count;
}

/* Sends token by token, as compute does. Sets the text, and in *cut where it ends. */
static void send_all(const struct stop_texts *stops, const _Atomic uint32_t *log, uint32_t count,
                     char *joined, struct stop_cut *cut)
{
    size_t sent = 0, length = 0, bytes;
    bool ended = false;
    *cut = STOP_CUT_NONE;
    for (uint32_t have = 1; have <= count && !ended; have++) {
        ended = stops_match(stops, tokenizer, log, have, cut) || have == count;
        uint32_t may = ended ? have : stops_settled(stops, tokenizer, log, have);
        if (may < sent) /* text that was sent is not withdrawn */
            ck_abort_msg("%u of %u sent, %zu before", may, have, sent);
        struct stop_cut here = *cut;
        if (cut->token != UINT32_MAX)
            here = cut->token < sent ? (struct stop_cut){0, 0}
                                     : (struct stop_cut){cut->token - (uint32_t)sent, cut->bytes};
        sent += response_gather(&response, tokenizer, log + sent, may - (uint32_t)sent, ended, here,
                                &no_marks, &no_text, &bytes);
        memcpy(joined + length, response.text, bytes);
        length += bytes;
    }
    joined[length] = 0;
}

static void add_stop(struct stop_texts *stops, const char *text)
{
    struct error error;
    ck_assert_int_eq(stop_texts_add(stops, text, strlen(text), &error), 0);
}

/* The response is the text before the first match, for any split into tokens. */
START_TEST(stops_cut_the_text)
{
    static const struct {
        const char *text, *stops[3], *sent;
        uint32_t which;
    } rows[] = {
        {"one two three four", {"three"}, "one two ", 0},
        {"one two three four", {"e t"}, "on", 0},
        {"one two three four", {"e f!"}, "one two three four", 0},
        {"one two three four", {"wo th", "ee f"}, "one t", 0},
        {"one two three four", {"hre", "three"}, "one two ", 1},
        {"one two three four", {"four", "three f", "three"}, "one two ", 2},
        {"one two three four", {"o"}, "", 0},
        {"one two three four", {"r"}, "one two th", 0},
        {"aaab aaaab", {"aaaa"}, "aaab ", 0},
        {"a question? No: an answer.", {"answer!", "No!"}, "a question? No: an answer.", 0},
        {"the end\n\nQuestion", {"\n\n"}, "the end", 0},
        {"caf\xc3\xa9 noir", {"\xc3\xa9 n"}, "caf", 0},
        {"nothing", {NULL}, "nothing", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct stop_texts stops = {0};
        struct stop_cut cut;
        _Atomic uint32_t log[64];
        char joined[256] = "";
        for (size_t k = 0; k < 3 && rows[i].stops[k]; k++)
            add_stop(&stops, rows[i].stops[k]);
        uint32_t count = encode(rows[i].text, log, ARRAY_LEN(log));
        send_all(&stops, log, count, joined, &cut);
        ck_assert_msg(strcmp(joined, rows[i].sent) == 0, "row %zu: '%s' instead of '%s'", i, joined,
                      rows[i].sent);
        if (cut.token != UINT32_MAX)
            ck_assert_uint_eq(stops_which(&stops, tokenizer, log, count, cut), rows[i].which);
    }
}
END_TEST

/* ---- the same against the definition: of the stop texts present when the first one is complete,
 * the one that starts first ends the response ---- */

#define RANDOM_TOKENS 24
#define RANDOM_ROUNDS 20000

/* Tokens of few letters, so that stop texts touch and overlap, in pieces of one to three bytes. */
static uint32_t random_log(struct random *random, const uint32_t *ids, size_t ids_count,
                           _Atomic uint32_t *log)
{
    uint32_t count = 1 + (uint32_t)random_below(random, RANDOM_TOKENS);
    for (uint32_t i = 0; i < count; i++)
        atomic_store(&log[i], ids[random_below(random, ids_count)]);
    return count;
}

static void random_stops(struct random *random, struct stop_texts *stops)
{
    *stops = (struct stop_texts){0};
    for (uint64_t n = 1 + random_below(random, 3); n > 0; n--) {
        char text[7] = "";
        uint64_t bytes = 1 + random_below(random, sizeof text - 1);
        for (uint64_t i = 0; i < bytes; i++)
            text[i] = (char)('a' + random_below(random, 2));
        add_stop(stops, text);
    }
}

static void by_definition(const struct stop_texts *stops, const _Atomic uint32_t *log,
                          uint32_t count, char *text)
{
    size_t length = 0, bytes;
    for (uint32_t i = 0; i < count; i++) {
        const char *piece = tokenizer_piece(tokenizer, atomic_load(&log[i]), &bytes), *first = NULL;
        memcpy(text + length, piece, bytes);
        length += bytes;
        text[length] = 0;
        for (uint32_t k = 0; k < stops->count; k++) {
            const char *at = memmem(text, length, stops->text[k], stops->bytes[k]);
            first = at && (!first || at < first) ? at : first;
        }
        if (first) {
            text[first - text] = 0;
            return;
        }
    }
}

START_TEST(stops_are_what_they_are_defined_as)
{
    static const char *const pieces[] = {"a", "b", "aa", "ab", "ba", "bb", "aba"};
    _Atomic uint32_t log[RANDOM_TOKENS], one[8];
    uint32_t ids[ARRAY_LEN(pieces)], cuts = 0, longer = 0;
    size_t ids_count = 0, bytes;
    struct random random;
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        if (encode(pieces[i], one, ARRAY_LEN(one)) == 1) {
            ids[ids_count++] = atomic_load(&one[0]);
            tokenizer_piece(tokenizer, ids[ids_count - 1], &bytes);
            longer += bytes > 1;
        }
    ck_assert(ids_count > 2 && longer > 0); /* else no cut would be within a token */
    random_seed(&random, 20261122, 0);
    for (int round = 0; round < RANDOM_ROUNDS; round++) {
        struct stop_texts stops;
        struct stop_cut cut;
        char sent[4 * RANDOM_TOKENS + 1], expected[4 * RANDOM_TOKENS + 1];
        uint32_t count = random_log(&random, ids, ids_count, log);
        random_stops(&random, &stops);
        send_all(&stops, log, count, sent, &cut);
        by_definition(&stops, log, count, expected);
        ck_assert_msg(strcmp(sent, expected) == 0, "round %d: '%s' instead of '%s'", round, sent,
                      expected);
        cuts += cut.token != UINT32_MAX && cut.bytes > 0;
    }
    ck_assert_uint_gt(cuts, 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("parts");
    TCase *c = tcase_create("pool and figures");
    tcase_set_timeout(c, 120);
    tcase_add_test(c, pool_runs_every_part_once);
    tcase_add_test(c, pool_runs_any_number_of_parts);
    tcase_add_test(c, shares_are_cut_at_units);
    tcase_add_test(c, quantiles_are_within_a_bin);
    suite_add_tcase(suite, c);
    c = tcase_create("text");
    tcase_add_checked_fixture(c, open_tokenizer, close_tokenizer);
    tcase_add_test(c, text_is_whole_characters);
    tcase_add_test(c, nothing_is_withheld_at_the_end);
    tcase_add_test(c, control_tokens_within_marks);
    tcase_add_test(c, ends_have_no_text);
    tcase_add_test(c, prompts_are_as_the_client_wrote_them);
    tcase_add_test(c, stops_cut_the_text);
    tcase_add_test(c, stops_are_what_they_are_defined_as);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
