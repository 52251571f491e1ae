/* SPDX-License-Identifier: Apache-2.0 */
/* The gate rows (a ring of seqlocks) and the access log (a ring whose producer never waits). */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "shm/rings/access_log.h"
#include "shm/rings/gates.h"
#include "tests/unit/shm/shm_test.h"

#define LAYERS 3
#define WIDTH  48

static struct gates gates_open(void)
{
    struct segment s = test_segment(SEGMENT_GATES, gates_bytes(WIDTH - 3, 8));
    struct gates g;
    struct error e = {.text = ""};
    gates_format(s.base, LAYERS, WIDTH - 3, 8);
    int fd = dup(s.fd);
    segment_detach(&s);
    ck_assert_msg(gates_attach(fd, true, BOOT, &g, &e) == 0, "%s", e.text);
    return g;
}

START_TEST(gates_round_trip)
{
    struct gates g = gates_open();
    struct gates_read got;
    float in[WIDTH], out[WIDTH];
    ck_assert_uint_eq(g.head->width, WIDTH);
    ck_assert(!gates_read(&g, 0, &got, out)); /* nothing published yet */
    for (int i = 0; i < WIDTH; i++)
        in[i] = (float)i / 3;
    gates_publish(&g, &(struct gates_place){1, 7, 9, 11}, GATES_INPUT, in, WIDTH);
    ck_assert(gates_read(&g, 0, &got, out));
    ck_assert_mem_eq(in, out, sizeof in);
    ck_assert(got.kind == GATES_INPUT && got.sequence == 7 && got.position == 9 && got.layer == 1 &&
              got.token == 11 && got.count == WIDTH);
    ck_assert_uint_eq(gates_wait(&g, 0, 600 * NS_PER_S), 1); /* a new row: no wait */
    ck_assert_uint_eq(gates_wait(&g, 1, NS_PER_MS), 1);      /* no new row: ends by its timeout */
    segment_detach(&g.segment);
}
END_TEST

/* A layer of a pass of GATES_ROWS sequences: each row is there; one more replaces the first. */
START_TEST(gates_of_many_sequences)
{
    struct gates g = gates_open();
    struct gates_read got;
    float values[WIDTH] = {0};
    atomic_store(&g.head->news, UINT32_MAX - 2); /* numbers wrap */
    for (uint32_t i = 0; i < GATES_ROWS; i++) {
        values[0] = (float)i;
        gates_publish(&g, &(struct gates_place){2, 100 + i, i, 11}, GATES_INPUT, values, WIDTH);
    }
    for (uint32_t i = 0; i < GATES_ROWS; i++) {
        ck_assert(gates_read(&g, UINT32_MAX - 2 + i, &got, NULL));
        ck_assert(got.sequence == 100 + i && got.layer == 2 && got.count == WIDTH);
        ck_assert(gates_read(&g, UINT32_MAX - 2 + i, &got, values));
        ck_assert_float_eq(values[0], (float)i);
    }
    ck_assert(!gates_read(&g, UINT32_MAX - 2 + GATES_ROWS, &got, NULL)); /* not there yet */
    gates_publish(&g, &(struct gates_place){2, 7, 7, 11}, GATES_INPUT, values, WIDTH);
    ck_assert(!gates_read(&g, UINT32_MAX - 2, &got, NULL));
    ck_assert(gates_read(&g, UINT32_MAX - 1, &got, NULL));
    segment_detach(&g.segment);
}
END_TEST

START_TEST(gates_dead_writer)
{
    struct gates g = gates_open();
    struct gates_read got;
    float values[WIDTH] = {1};
    gates_publish(&g, &(struct gates_place){2, 1, 1, 11}, GATES_COUNTS, values, 8);
    struct gates_row_head *row = (void *)g.rows;
    atomic_fetch_add(&row->lock, 1); /* the writer died here, before it counted the row */
    atomic_store(&g.head->news, 0);
    ck_assert(!gates_read(&g, 0, &got, values));
    gates_repair(&g);
    ck_assert(!gates_read(&g, 0, &got, values)); /* a partial row is not returned */
    gates_publish(&g, &(struct gates_place){2, 1, 2, 11}, GATES_COUNTS, values, 8);
    ck_assert(gates_read(&g, 0, &got, values));
    ck_assert_uint_eq(got.position, 2);
    atomic_store(&row->layer, LAYERS); /* untrusted: the reader has LAYERS layers */
    ck_assert(!gates_read(&g, 0, &got, values));
    atomic_store(&row->layer, 2);
    atomic_store(&row->count, WIDTH + 1); /* untrusted: the reader's buffer is WIDTH long */
    ck_assert(!gates_read(&g, 0, &got, values));
    segment_detach(&g.segment);
}
END_TEST

START_TEST(gates_bad_shape)
{
    struct gates g = gates_open(), other;
    struct error e;
    g.head->width = 1000000;
    ck_assert_int_eq(gates_attach(g.segment.fd, false, BOOT, &other, &e), -1);
    ck_assert_msg(strstr(e.text, "do not fit") != NULL, "%s", e.text);
    segment_detach(&g.segment);
}
END_TEST

#define ROUNDS 200000

static void *publish_many(void *arg)
{
    struct gates *g = arg;
    float values[WIDTH];
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        for (int k = 0; k < WIDTH; k++)
            values[k] = (float)i;
        gates_publish(g, &(struct gates_place){0, i, i, 11}, GATES_INPUT, values, WIDTH);
    }
    return NULL;
}

START_TEST(gates_never_torn)
{
    struct gates g = gates_open();
    struct gates_read got = {.position = 0};
    float values[WIDTH];
    pthread_t writer;
    uint32_t seen = 0, reads = 0;
    ck_assert_int_eq(pthread_create(&writer, NULL, publish_many, &g), 0);
    while (got.position < ROUNDS) {
        seen = gates_wait(&g, seen, NS_PER_S);
        if (!gates_read(&g, seen - 1, &got, values))
            continue;
        reads++;
        for (int k = 0; k < WIDTH; k++)
            ck_assert(values[k] == (float)got.position && got.sequence == got.position);
    }
    pthread_join(writer, NULL);
    ck_assert_uint_gt(reads, 0);
    segment_detach(&g.segment);
}
END_TEST

/* ---- access log */

static struct access_log access_log_open(void)
{
    struct segment s = test_segment(SEGMENT_ACCESS_LOG, access_log_bytes());
    struct access_log u;
    struct error e = {.text = ""};
    int fd = dup(s.fd);
    segment_detach(&s);
    ck_assert_msg(access_log_attach(fd, true, BOOT, &u, &e) == 0, "%s", e.text);
    return u;
}

static void append(struct access_log *u, uint32_t n)
{
    struct access_record r = {.sequence = n, .position = ~n, .kind = ACCESS_EXPERT, .weight = 0.5f};
    access_log_append(u, &r);
}

START_TEST(access_log_in_order)
{
    struct access_log u = access_log_open();
    struct access_log_reader a, b;
    struct access_record r;
    append(&u, 0);
    access_log_reader_start(&u, &a); /* starts at the newest: does not read record 0 */
    ck_assert(!access_log_read(&u, &a, UINT64_MAX, &r));
    for (uint32_t i = 1; i <= 10; i++)
        append(&u, i);
    b = (struct access_log_reader){.next = 0};
    for (uint32_t i = 1; i <= 5; i++) {
        ck_assert(access_log_read(&u, &a, 6, &r));
        ck_assert(r.sequence == i && r.position == ~i && r.kind == ACCESS_EXPERT &&
                  r.weight == 0.5f);
    }
    ck_assert(!access_log_read(&u, &a, 6, &r)); /* the limit */
    ck_assert(access_log_read(&u, &a, 7, &r));
    ck_assert(access_log_read(&u, &b, UINT64_MAX, &r)); /* each reader has its own position */
    ck_assert_uint_eq(r.sequence, 0);
    ck_assert_uint_eq(access_log_written(&u), 11);
    segment_detach(&u.segment);
}
END_TEST

START_TEST(access_log_resync)
{
    struct access_log u = access_log_open();
    struct access_log_reader a = {.next = 0};
    struct access_record r;
    for (uint32_t i = 0; i < ACCESS_LOG_RECORDS; i++)
        append(&u, i);
    ck_assert(access_log_read(&u, &a, UINT64_MAX, &r)); /* exactly one ring behind: nothing lost */
    ck_assert_uint_eq(r.sequence, 0);
    append(&u, ACCESS_LOG_RECORDS);
    append(&u, ACCESS_LOG_RECORDS + 1); /* overwrites record 1, the reader's next */
    ck_assert(!access_log_read(&u, &a, UINT64_MAX, &r));
    ck_assert_uint_eq(a.next, ACCESS_LOG_RECORDS + 2);
    ck_assert_uint_eq(a.lost, ACCESS_LOG_RECORDS + 1);
    ck_assert_uint_eq(a.resyncs, 1);
    append(&u, 42);
    ck_assert(access_log_read(&u, &a, UINT64_MAX, &r));
    ck_assert_uint_eq(r.sequence, 42);
    segment_detach(&u.segment);
}
END_TEST

START_TEST(access_log_dead_producer)
{
    struct access_log u = access_log_open();
    struct access_log_reader a = {.next = 0};
    struct access_record r;
    append(&u, 1);
    u.head->cell[1].position = 0; /* the writer died in its second record */
    u.head->cell[1].word[2] = 99;
    ck_assert(access_log_read(&u, &a, UINT64_MAX, &r));
    ck_assert(!access_log_read(&u, &a, UINT64_MAX, &r));
    append(&u, 2); /* the next writer writes it again */
    ck_assert(access_log_read(&u, &a, UINT64_MAX, &r));
    ck_assert_uint_eq(r.sequence, 2);
    ck_assert_uint_eq(a.lost, 0);
    segment_detach(&u.segment);
}
END_TEST

static void *append_many(void *arg)
{
    for (uint32_t i = 0; i < 20 * ACCESS_LOG_RECORDS; i++)
        append(arg, i);
    return NULL;
}

START_TEST(access_log_never_torn)
{
    struct access_log u = access_log_open();
    struct access_log_reader a = {.next = 0};
    struct access_record r;
    pthread_t writer;
    uint64_t read = 0;
    ck_assert_int_eq(pthread_create(&writer, NULL, append_many, &u), 0);
    while (a.next < 20 * ACCESS_LOG_RECORDS)
        if (access_log_read(&u, &a, UINT64_MAX, &r)) {
            ck_assert_uint_eq(r.sequence, a.next - 1);
            ck_assert_uint_eq(r.position, ~r.sequence);
            read++;
        }
    pthread_join(writer, NULL);
    ck_assert_uint_eq(read + a.lost, 20 * ACCESS_LOG_RECORDS);
    segment_detach(&u.segment);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rings");
    TCase *t = tcase_create("gates");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, gates_round_trip);
    tcase_add_test(t, gates_of_many_sequences);
    tcase_add_test(t, gates_dead_writer);
    tcase_add_test(t, gates_bad_shape);
    tcase_add_test(t, gates_never_torn);
    suite_add_tcase(suite, t);
    t = tcase_create("access_log");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, access_log_in_order);
    tcase_add_test(t, access_log_resync);
    tcase_add_test(t, access_log_dead_producer);
    tcase_add_test(t, access_log_never_torn);
    suite_add_tcase(suite, t);
    return test_run(suite);
}
