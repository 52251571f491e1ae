/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: rejected files with their messages, round trips through a file, and the properties
 * requested of synthetic traces. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/trace/trace.h"

#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

static struct trace small(void)
{
    struct trace_synthetic s;
    struct trace t;
    struct error error;
    trace_synthetic_defaults(&s);
    s.layers = 3, s.experts = 8, s.top_k = 2, s.tokens = 20, s.sequences = 2;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    return t;
}

static void *bytes_of(const struct trace *t, size_t *count)
{
    *count = sizeof t->header + t->count * sizeof *t->records;
    char *bytes = malloc(*count);
    memcpy(bytes, &t->header, sizeof t->header);
    memcpy(bytes + sizeof t->header, t->records, t->count * sizeof *t->records);
    return bytes;
}

START_TEST(survives_a_file)
{
    struct trace t = small(), back;
    struct error error;
    char path[] = "/tmp/sluice-trace-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(trace_write(path, &t, &error), 0);
    ck_assert_int_eq(trace_read(path, &back, &error), 0);
    ck_assert_uint_eq(back.count, t.count);
    ck_assert_mem_eq(&back.header, &t.header, sizeof t.header);
    ck_assert_mem_eq(back.records, t.records, t.count * sizeof *t.records);
    trace_free(&back);
    /* The recorder was killed in the middle of a record. */
    ck_assert_int_eq(ftruncate(fd, (off_t)(sizeof t.header + 5 * sizeof *t.records + 7)), 0);
    ck_assert_int_eq(trace_read(path, &back, &error), 0);
    ck_assert_uint_eq(back.count, 5);
    trace_free(&back);
    ck_assert_int_eq(ftruncate(fd, 50), 0);
    ck_assert_int_eq(trace_read(path, &back, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    close(fd);
    unlink(path);
    ck_assert_int_eq(trace_read(path, &back, &error), -1);
    trace_free(&t);
}
END_TEST

static struct trace bad;

static void set_floats(struct trace_record *r, float last)
{
    const float value[TRACE_FLOATS] = {0, 0, 0, last};
    trace_set_values(r, value);
}

static void add_table(struct trace *t)
{
    t->header.table = (struct trace_table){.tables = 1,
                                           .rows_of_token = 6,
                                           .rows = 100,
                                           .row_bytes = 90,
                                           .head_bytes = 64,
                                           .slots = 2 * MODEL_PAGE_WAYS,
                                           .layer = 1};
}

/* Of a token: numbers from `first` on. */
static void set_rows(struct trace_record *r, uint32_t first, uint32_t count, uint32_t last)
{
    const uint32_t row[TRACE_FLOATS] = {0, 99, 99, last};
    r->kind = TRACE_ROWS, r->layer = 1, r->expert = (uint16_t)first, r->rank = (uint8_t)count;
    trace_set_values(r, row);
}

static void damage_table(struct trace_record *r, int what)
{
    struct trace_table *t = &bad.header.table;
    add_table(&bad);
    set_rows(r, 0, 4, 99);
    switch (what) {
    case 0: t->tables = 2; return;
    case 1: t->tables = 0; return;
    case 2: t->rows_of_token = TRACE_TABLE_ROWS_MAX + 1; return;
    case 3: t->head_bytes = PAGE_BYTES; return;
    case 4: t->slots = MODEL_PAGE_WAYS + 1; return;
    case 5: t->row_bytes = TABLE_WAVE_PARTS * PAGE_BYTES; return;
    case 6: t->rows = UINT32_MAX, t->row_bytes = 2 * PAGE_BYTES; return;
    case 7: memset(t, 0, sizeof *t); return;
    case 8: r->layer = 2; return;
    case 9: r->rank = TRACE_FLOATS + 1; return;
    case 10: r->expert = 3; return;
    default: set_rows(r, 2, 4, 100);
    }
}

#define TABLE_DAMAGES 12

static void damage(int what)
{
    struct trace_record *r = &bad.records[1];
    while (r->kind != TRACE_EXPERT || r->prefill)
        r++;
    switch (what) {
    case 0: bad.header.magic++; return;
    case 1: bad.header.version++; return;
    case 2: bad.header.layers = 0; return;
    case 3: bad.header.experts = MODEL_EXPERTS_MAX + 1; return;
    case 4: bad.header.top_k = 9; return;
    case 5: bad.header.precision_mask = 1u << PRECISION__COUNT; return;
    case 6: bad.header.precision_bytes[0] = 0; return;
    case 7: r->layer = 3; return;
    case 8: r->expert = 8; return;
    case 9: r->weight = -1; return;
    case 10: r->kind = 9; return;
    case 11: r->tokens = 0; return;
    case 12: r->kind = TRACE_PREDICTED, r->from_layer = r->layer; return;
    case 13: r->prefill = 1, r->before = (float)(0.0 / bad.header.precision_bytes[1] - 1); return;
    case 14: r->kind = TRACE_LOGITS, r->rank = 0; return;
    case 15: r->kind = TRACE_LOGITS, r->rank = 17; return;
    case 16: r->kind = TRACE_LOGITS, r->expert = 7, r->rank = 2; return;
    case 17: r->kind = TRACE_LOGITS, r->expert = 8, r->rank = 1; return;
    case 18: r->kind = TRACE_LOGITS, r->layer = 3; return;
    case 19: r->kind = TRACE_GPU_PREDICTED, r->from_layer = r->layer; return;
    case 20: r->kind = TRACE_CANDIDATE, r->before = HUGE_VALF; return;
    case 21: r->kind = TRACE_ROUTER, r->rank = 4; return;
    case 22: bad.header.router.gating = 7; return;
    case 23: /* groups of three experts, of which one is used: fewer than the four used */
        bad.header.router = (struct trace_router){.gating = 1, .groups = 3, .groups_used = 1};
        return;
    case 24:
    case 25:
    case 26:
        bad.header.router.gating = 1;
        r->kind = TRACE_ROUTER, r->expert = 4, r->rank = what == 24 ? 5 : what == 25 ? 0 : 4;
        set_floats(r, what == 26 ? NAN : 1);
        return;
    case 27: r->kind = TRACE_INPUT, r->rank = 8; return;
    case 28: bad.header.hidden = 12, r->kind = TRACE_INPUT, r->expert = 1, r->rank = 5; return;
    case 29: bad.header.hidden = 12, r->kind = TRACE_INPUT, r->expert = 2, r->rank = 1; return;
    case 30: r->kind = TRACE_SEQUENCE_START, r->rank = 1, r->weight = -1; return;
    case 31: bad.header.record_bytes = 31; return;
    default: damage_table(r, what - 32);
    }
}

static const char *const messages[] = {"magic",
                                       "version",
                                       "out of range",
                                       "out of range",
                                       "out of range",
                                       "precision mask",
                                       "invalid expert size",
                                       "invalid layer",
                                       "invalid expert",
                                       "invalid weight",
                                       "invalid kind",
                                       "invalid tokens",
                                       "layer of the prediction",
                                       "invalid weight before",
                                       "number of values",
                                       "number of values",
                                       "number of values",
                                       "invalid expert",
                                       "invalid layer",
                                       "layer of the prediction",
                                       "invalid margin",
                                       "logits of an unknown router",
                                       "invalid router",
                                       "invalid router",
                                       "number of values",
                                       "number of values",
                                       "invalid value",
                                       "number of values",
                                       "number of values",
                                       "number of values",
                                       "invalid nats",
                                       "version",
                                       "invalid table",
                                       "invalid table",
                                       "invalid table",
                                       "invalid table",
                                       "invalid table",
                                       "invalid table",
                                       "invalid table",
                                       "invalid layer",
                                       "invalid layer",
                                       "number of values",
                                       "number of values",
                                       "invalid row"};
_Static_assert(sizeof messages / sizeof *messages == 32 + TABLE_DAMAGES, "one for each");

START_TEST(damage_is_rejected)
{
    struct trace out;
    struct error error = {.text = ""};
    size_t count;
    bad = small();
    void *bytes = bytes_of(&bad, &count);
    ck_assert_int_eq(trace_parse(bytes, count, &out, &error), 0);
    trace_free(&out);
    free(bytes);
    damage(_i);
    bytes = bytes_of(&bad, &count);
    ck_assert_int_eq(trace_parse(bytes, count, &out, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    ck_assert_msg(strstr(error.text, messages[_i]) != NULL, "%s", error.text);
    ck_assert_ptr_null(out.records);
    free(bytes);
    trace_free(&bad);
}
END_TEST

START_TEST(rows_of_a_table_are_read)
{
    struct trace t = small(), back;
    struct error error = {.text = ""};
    size_t count;
    add_table(&t);
    set_rows(&t.records[1], 0, 4, 99);
    set_rows(&t.records[2], 4, 2, 1000); /* of which the last two are none */
    void *bytes = bytes_of(&t, &count);
    ck_assert_msg(trace_parse(bytes, count, &back, &error) == 0, "%s", error.text);
    trace_free(&back);
    free(bytes);
    trace_free(&t);
}
END_TEST

/* A file of version 2 or 3 has a shorter header, and is one of this version without a table, and of
 * version 2 without a router. */
START_TEST(older_versions_are_read)
{
    const uint32_t version = (uint32_t)_i;
    const size_t header = version == 2 ? TRACE_HEADER_2_BYTES : TRACE_HEADER_3_BYTES;
    struct trace t = small(), back;
    struct error error = {.text = ""};
    size_t count, shorter = sizeof t.header - header;
    t.header.version = version;
    t.header.header_bytes = (uint32_t)header;
    t.header.router = (struct trace_router){.gating = version == 3};
    char *bytes = bytes_of(&t, &count);
    memmove(bytes + header, bytes + sizeof t.header, count - sizeof t.header);
    char path[] = "/tmp/sluice-trace-XXXXXX";
    int fd = mkstemp(path);
    ck_assert(write(fd, bytes, count - shorter) == (ssize_t)(count - shorter));
    for (int from_file = 0; from_file < 2; from_file++) {
        int status = from_file ? trace_read(path, &back, &error)
                               : trace_parse(bytes, count - shorter, &back, &error);
        ck_assert_msg(status == 0, "%s", error.text);
        ck_assert_uint_eq(back.header.version, TRACE_VERSION);
        ck_assert_uint_eq(back.header.router.gating, version == 3);
        ck_assert_uint_eq(back.header.table.tables, 0);
        ck_assert_uint_eq(back.count, t.count);
        ck_assert_mem_eq(back.records, t.records, t.count * sizeof *t.records);
        ck_assert_int_eq(trace_check(&back.header, back.records, back.count, &error), 0);
        trace_free(&back);
    }
    close(fd);
    unlink(path);
    free(bytes);
    trace_free(&t);
}
END_TEST

START_TEST(synthetic_traces_have_the_requested_shape)
{
    struct trace_synthetic s;
    struct trace t, again;
    struct error error;
    trace_synthetic_defaults(&s);
    s.layers = 4, s.experts = 16, s.top_k = 4, s.locality = 0.5, s.recall = 0.6, s.skew = 1;
    s.tokens = 1500, s.sequences = 1, s.prompt = 0;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    ck_assert_int_eq(trace_synthesise(&s, &again, &error), 0);
    ck_assert_uint_eq(t.count, again.count);
    ck_assert_mem_eq(t.records, again.records, t.count * sizeof *t.records);
    trace_free(&again);

    uint32_t accesses = 0, kept = 0, named = 0, predicted = 0, before[4][4] = {{0}},
             now[4][4] = {{0}};
    uint32_t count[16] = {0};
    uint8_t list[4][16] = {{0}};
    bool first = true;
    for (uint64_t i = 0; i < t.count; i++) {
        const struct trace_record *r = &t.records[i];
        if (r->kind == TRACE_PREDICTED)
            list[r->layer][r->expert] = 1;
        if (r->kind == TRACE_TOKEN_END) {
            memcpy(before, now, sizeof now);
            memset(list, 0, sizeof list);
            first = false;
        }
        if (r->kind != TRACE_EXPERT)
            continue;
        for (uint32_t k = 0; k < r->rank; k++)
            ck_assert_uint_ne(now[r->layer][k], r->expert); /* distinct */
        now[r->layer][r->rank] = r->expert;
        count[r->layer == 0 ? r->expert : 0] += r->layer == 0;
        for (uint32_t k = 0; k < 4 && !first; k++)
            kept += before[r->layer][k] == r->expert;
        accesses++;
        if (r->layer > 0) {
            predicted++;
            named += list[r->layer][r->expert];
        }
    }
    ck_assert_uint_eq(accesses, 1500 * 4 * 4);
    ck_assert(kept > 0.5 * accesses && kept < 0.8 * accesses); /* some are drawn again by chance */
    ck_assert_double_eq_tol((double)named / predicted, 0.6, 0.02);
    uint32_t max = 0, min = UINT32_MAX;
    for (uint32_t e = 0; e < 16; e++) {
        max = count[e] > max ? count[e] : max;
        min = count[e] < min ? count[e] : min;
    }
    ck_assert_uint_gt(max, 3 * min);
    trace_free(&t);
}
END_TEST

START_TEST(synthetic_bounds)
{
    struct trace_synthetic s, d;
    struct trace t;
    struct error error;
    trace_synthetic_defaults(&d);
    s = d, s.top_k = 33;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), -1);
    s = d, s.recall = 1.5;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), -1);
    s = d, s.sequences = 0;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), -1);
    s = d, s.sequences = UINT32_MAX;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), -1);
    s = d, s.precision_mask = 2;
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), -1);
    ck_assert_int_eq(error.code, ERR_BAD_INPUT);
    s = d, s.skew = 10, s.experts = 4, s.top_k = 4; /* all of them, though some are never drawn */
    ck_assert_int_eq(trace_synthesise(&s, &t, &error), 0);
    ck_assert_int_eq(trace_check(&t.header, t.records, t.count, &error), 0);
    trace_free(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trace");
    TCase *c = tcase_create("trace");
    tcase_add_test(c, survives_a_file);
    tcase_add_loop_test(c, damage_is_rejected, 0, (int)(sizeof messages / sizeof messages[0]));
    tcase_add_test(c, rows_of_a_table_are_read);
    tcase_add_loop_test(c, older_versions_are_read, 2, 4);
    tcase_add_test(c, synthetic_traces_have_the_requested_shape);
    tcase_add_test(c, synthetic_bounds);
    suite_add_tcase(s, c);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_NORMAL);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? 0 : 1;
}
