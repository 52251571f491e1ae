/* SPDX-License-Identifier: Apache-2.0 */
/* Buffered bytes of clients: accounting, limits, release. */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "procs/engine/gateway/http/buffer.h"

static void add(struct quota *q, struct buffer *b, const char *text)
{
    ck_assert(buffer_add(q, b, text, strlen(text)));
}

static void check_text(const struct buffer *b, const char *text)
{
    ck_assert_uint_eq(buffer_unsent(b), strlen(text));
    ck_assert(memcmp(b->data + b->sent, text, strlen(text)) == 0);
}

START_TEST(bodies_leave_space_for_responses)
{
    struct quota q = {.limit = 8192};
    struct buffer one = {.unvalidated = true}, other = {.unvalidated = true}, response = {0};
    static const char block[4096];
    ck_assert(buffer_add(&q, &one, block, 2000));
    ck_assert(!buffer_add(&q, &other, block, 2500)); /* 4500 are more than half the limit */
    ck_assert_uint_eq(other.bytes, 0);
    ck_assert(buffer_add(&q, &other, block, 2000));
    ck_assert(!buffer_add(&q, &other, block, 200));
    ck_assert_uint_eq(other.bytes, 2000);
    ck_assert(buffer_add(&q, &response, block, 4096));
    ck_assert(!buffer_add(&q, &response, block, 1));
    ck_assert_uint_eq(q.buffered, one.capacity + other.capacity + response.capacity);
    ck_assert_uint_eq(q.unvalidated, one.capacity + other.capacity);
    /* A body whose buffer was handed over stays counted until its charge is returned. */
    size_t charge = buffer_detach(&one);
    ck_assert(!buffer_add(&q, &other, block, 1000));
    quota_give(&q, charge, true);
    ck_assert(buffer_add(&q, &other, block, 1000));
    buffer_free(&q, &other);
    buffer_free(&q, &response);
    buffer_free(&q, &one);
    ck_assert(q.buffered == 0 && q.unvalidated == 0);
}
END_TEST

/* A client that is always slightly behind does not make the buffer grow. */
START_TEST(sent_bytes_are_freed)
{
    struct quota q = {.limit = 1 << 20};
    struct buffer b = {0};
    static const char block[1000];
    add(&q, &b, "behind");
    for (int i = 0; i < 1000; i++) {
        ck_assert(buffer_add(&q, &b, block, sizeof block));
        buffer_mark_sent(&b, sizeof block, 4000);
        ck_assert_uint_eq(buffer_unsent(&b), 6);
    }
    ck_assert_uint_le(b.capacity, 8192);
    buffer_mark_sent(&b, 6, 4000);
    ck_assert_uint_eq(b.bytes, 0);
    add(&q, &b, "abc");
    buffer_mark_sent(&b, 1, 1);
    check_text(&b, "bc");
    buffer_free(&q, &b);
    ck_assert_uint_eq(q.buffered, 0);
}
END_TEST

/* An event that was started is sent completely; those after it are dropped. */
START_TEST(events_are_dropped_whole)
{
    struct quota q = {.limit = 1 << 20};
    struct buffer b = {0};
    buffer_drop_events(&b, "\n\n");
    add(&q, &b, "data: one\n\ndata: two\n\ndata: three\n\n");
    buffer_mark_sent(&b, 3, 1 << 20);
    buffer_drop_events(&b, "\n\n");
    check_text(&b, "a: one\n\n");
    add(&q, &b, "data: two\n\ndata: three\n\n");
    buffer_mark_sent(&b, 7, 1 << 20); /* between the two newlines */
    buffer_drop_events(&b, "\n\n");
    check_text(&b, "\ndata: two\n\n");
    buffer_mark_sent(&b, buffer_unsent(&b), 1 << 20);
    buffer_drop_events(&b, "\n\n");
    check_text(&b, "");
    add(&q, &b, "{1}\n{2}\n{3}\n");
    buffer_mark_sent(&b, 1, 1 << 20);
    buffer_drop_events(&b, "\n");
    check_text(&b, "1}\n");
    buffer_free(&q, &b);
}
END_TEST

/* An addition over the limit changes nothing. */
START_TEST(all_or_nothing)
{
    struct quota q = {.limit = 1000};
    struct buffer b = {0};
    add(&q, &b, "abc");
    ck_assert(!buffer_reserve(&q, &b, 998));
    ck_assert(!buffer_reserve(&q, &b, SIZE_MAX));
    check_text(&b, "abc");
    ck_assert(buffer_reserve(&q, &b, 997)); /* not doubled, but enough */
    ck_assert_uint_eq(q.buffered, 1000);
    ck_assert(!quota_take(&q, 1, false));
    check_text(&b, "abc");
    buffer_free(&q, &b);
    ck_assert(quota_take(&q, 500, true) && !quota_take(&q, 1, true) && quota_take(&q, 500, false));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gateway");
    TCase *t = tcase_create("buffer");
    tcase_add_test(t, bodies_leave_space_for_responses);
    tcase_add_test(t, sent_bytes_are_freed);
    tcase_add_test(t, events_are_dropped_whole);
    tcase_add_test(t, all_or_nothing);
    suite_add_tcase(suite, t);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
