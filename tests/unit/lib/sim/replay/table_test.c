/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table on storage in a replay: a row is in one page or two, a page is read once while it
 * has a slot, and what a pass has many of is read in blocks, the next one requested ahead. */
#include <stdlib.h>
#include <string.h>

#include "lib/sim/replay/together.h"
#include "tests/unit/lib/sim/sim_test.h"

#define ROW_BYTES 1024u /* four rows in a page; the first one begins at its half */
#define RECORDS   100000u

static struct trace t;
static uint32_t position;

static void setup(void)
{
    t = (struct trace){.records = calloc(RECORDS, sizeof *t.records)};
    trace_header_init(&t.header);
    t.header.layers = 2;
    t.header.experts = 4;
    t.header.top_k = 1;
    t.header.precision_mask = 1u << PRECISION_NATIVE;
    t.header.precision_bytes[PRECISION_NATIVE] = EXPERT_BYTES;
    t.header.table = (struct trace_table){.tables = 1,
                                          .rows_of_token = 6,
                                          .rows = 1000000,
                                          .row_bytes = ROW_BYTES,
                                          .head_bytes = PAGE_BYTES / 2,
                                          .slots = 2 * MODEL_PAGE_WAYS,
                                          .layer = 1};
    position = 0;
}

static void teardown(void)
{
    trace_free(&t);
}

static struct trace_record *add(enum trace_kind kind, uint32_t sequence, uint32_t at)
{
    ck_assert_uint_lt(t.count, RECORDS);
    t.records[t.count] = (struct trace_record){
        .kind = (uint8_t)kind, .sequence = sequence, .position = at, .tokens = 1};
    return &t.records[t.count++];
}

static void add_token(uint32_t sequence, uint32_t at, const uint32_t *row, uint32_t rows)
{
    for (uint32_t first = 0; first < rows; first += TRACE_FLOATS) {
        uint32_t value[TRACE_FLOATS] = {0}, n = rows - first;
        struct trace_record *r = add(TRACE_ROWS, sequence, at);
        n = n < TRACE_FLOATS ? n : TRACE_FLOATS;
        memcpy(value, row + first, n * sizeof *row);
        trace_set_values(r, value);
        r->layer = 1;
        r->expert = (uint16_t)first;
        r->rank = (uint8_t)n;
    }
}

static void add_pass(uint32_t sequence, uint32_t tokens)
{
    for (uint16_t layer = 0; layer < 2; layer++)
        add(TRACE_EXPERT, sequence, position)->layer = layer;
    add(TRACE_TOKEN_END, sequence, position)->tokens = tokens;
    position += tokens;
}

static void decode(const uint32_t *row, uint32_t rows)
{
    add_token(1, position, row, rows);
    add_pass(1, 1);
}

static struct sim_result replay(const struct trace *of, uint64_t measure)
{
    struct sim_config config = config_of("lod", NULL, 8);
    struct sim_result r;
    struct error error = {.text = ""};
    ck_assert_int_eq(trace_check(&of->header, of->records, of->count, &error), 0);
    ck_assert_msg(sim_run(of, 0, measure, &config, false, &r, &error) == 0, "%s", error.text);
    return r;
}

static void check(const struct sim_stats *f, uint64_t rows, uint64_t pages, uint64_t reads)
{
    ck_assert_uint_eq(f->table_rows, rows);
    ck_assert_uint_eq(f->table_pages, pages);
    ck_assert_uint_eq(f->table_reads, reads);
    ck_assert_uint_eq(f->table_bytes, reads * PAGE_BYTES);
}

/* Page p has rows 4 p - 2 and the three after it. */
static uint32_t row_of(uint32_t page)
{
    return page == 0 ? 0 : 4 * page - 2;
}

START_TEST(a_page_is_read_once)
{
    decode((const uint32_t[]){0, 1, 2, 2, 6, 5}, 6); /* pages 0 0 1 1 2 1 */
    uint64_t measure = t.count;
    decode((const uint32_t[]){1, 2, 10}, 3); /* of which 3 is new */
    struct sim_result r = replay(&t, 0);
    check(&r.phase[SIM_DECODE], 9, 9, 4);
    check(&r.phase[SIM_PREFILL], 0, 0, 0);
    r = replay(&t, measure); /* what was read before is there */
    check(&r.phase[SIM_DECODE], 3, 3, 1);
}
END_TEST

START_TEST(a_row_in_two_pages)
{
    t.header.table.head_bytes = PAGE_BYTES - 1;
    decode((const uint32_t[]){0, 1}, 2); /* a byte in page 0, and the others */
    struct sim_result r = replay(&t, 0);
    check(&r.phase[SIM_DECODE], 2, 3, 2);
}
END_TEST

/* Eight even pages have the slots of a set. */
START_TEST(the_page_used_longest_ago_gives_its_slot)
{
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        decode((const uint32_t[]){row_of(2 * i)}, 1);
    decode((const uint32_t[]){row_of(0)}, 1);
    /* 16 takes the slot of 2; 4 is used in the same pass, so that 6 gives its slot to 18 */
    decode((const uint32_t[]){row_of(16), row_of(18), row_of(4)}, 3);
    struct sim_result r = replay(&t, 0);
    check(&r.phase[SIM_DECODE], 12, 12, 10);
    uint64_t measure = t.count;
    decode((const uint32_t[]){row_of(0), row_of(4), row_of(8)}, 3);
    r = replay(&t, measure);
    check(&r.phase[SIM_DECODE], 3, 3, 0);
    measure = t.count;
    decode((const uint32_t[]){row_of(2), row_of(6)}, 2);
    r = replay(&t, measure);
    check(&r.phase[SIM_DECODE], 2, 2, 2);
}
END_TEST

/* A chunk of 130 tokens is read in three blocks. All rows of its pass are of prefill, as its tokens
 * are: also that of a token of another sequence, which decodes. */
START_TEST(a_chunk_is_read_in_blocks)
{
    for (uint32_t i = 0; i < 130; i++)
        add_token(1, i, (const uint32_t[]){row_of(i / 64), row_of(5)}, 2);
    add_token(2, 7, (const uint32_t[]){row_of(0)}, 1);
    for (uint16_t layer = 0; layer < 2; layer++)
        for (uint32_t sequence = 1; sequence < 3; sequence++)
            add(TRACE_EXPERT, sequence, sequence == 1 ? 0 : 7)->layer = layer;
    add(TRACE_TOKEN_END, 1, 0)->tokens = 130;
    add(TRACE_TOKEN_END, 2, 7);
    struct sim_result r = replay(&t, 0);
    check(&r.phase[SIM_PREFILL], 261, 261, 4);
    check(&r.phase[SIM_DECODE], 0, 0, 0);
    ck_assert_uint_eq(r.phase[SIM_PREFILL].tokens, 131);
}
END_TEST

/* Eight even pages, in all slots of a set, are requested for the first block; the page of the
 * second one gets the slot of page 0, which is read again. That does not take the slot back. */
START_TEST(what_was_requested_ahead_stays)
{
    for (uint32_t i = 0; i < MODEL_PAGE_WAYS; i++)
        decode((const uint32_t[]){row_of(2 * i)}, 1);
    for (uint32_t i = 0; i < 128; i++)
        add_token(1, position + i, (const uint32_t[]){row_of(i < 64 ? 2 * (i % 8) : 16)}, 1);
    add_pass(1, 128);
    struct sim_result r = replay(&t, 0);
    check(&r.phase[SIM_DECODE], 8, 8, 8);
    check(&r.phase[SIM_PREFILL], 128, 128, 2);
}
END_TEST

/* More pages than slots, all in one pass: each block is read with what it has room for. */
START_TEST(more_pages_than_slots)
{
    for (uint32_t i = 0; i < 200; i++)
        add_token(1, i, (const uint32_t[]){row_of(3 * i), row_of(3 * i + 1), row_of(3 * i + 2)}, 3);
    add_pass(1, 200);
    struct sim_result r = replay(&t, 0);
    ck_assert_uint_eq(r.phase[SIM_PREFILL].table_rows, 600);
    ck_assert_uint_eq(r.phase[SIM_PREFILL].table_pages, 600);
    ck_assert_uint_ge(r.phase[SIM_PREFILL].table_reads, 600);
    ck_assert_uint_lt(r.phase[SIM_PREFILL].table_reads, 700);
}
END_TEST

/* Records of rows among those of a layer, which no engine writes, are of a pass each. */
START_TEST(rows_between_accesses)
{
    for (uint32_t i = 0; i < 20; i++) {
        add(TRACE_EXPERT, 1, 0)->expert = (uint16_t)(i % 4);
        add_token(1, i, (const uint32_t[]){row_of(i)}, 1);
    }
    struct sim_result r = replay(&t, 0);
    check(&r.phase[SIM_DECODE], 20, 20, 20);
}
END_TEST

/* The rows of all sequences precede the layers of a pass. */
START_TEST(sequences_together)
{
    struct error error;
    struct trace two;
    for (uint32_t sequence = 1; sequence < 3; sequence++) {
        add(TRACE_SEQUENCE_START, sequence, 0);
        for (position = 0; position < 5;) {
            add_token(sequence, position, (const uint32_t[]){row_of(position), row_of(9)}, 2);
            add_pass(sequence, 1);
        }
        add(TRACE_SEQUENCE_END, sequence, 0);
    }
    struct together *all = together_create(&t, 1, 2, &error);
    ck_assert_ptr_nonnull(all);
    ck_assert_int_eq(together_trace(all, 2, NULL, &two, &error), 0);
    struct sim_result r = replay(&two, 0), one = replay(&t, 0);
    check(&one.phase[SIM_DECODE], 20, 20, 6);
    check(&r.phase[SIM_DECODE], 20, 20, 6);
    ck_assert_uint_eq(r.phase[SIM_DECODE].passes, 5);
    ck_assert_uint_eq(r.phase[SIM_DECODE].accesses, one.phase[SIM_DECODE].accesses);
    uint32_t run = 0, runs = 0;
    for (uint64_t i = 0; i < two.count; i++) {
        bool rows = two.records[i].kind == TRACE_ROWS;
        run = rows ? run + 1 : 0;
        runs += run == 2; /* of both sequences */
        ck_assert_uint_le(run, 2);
    }
    ck_assert_uint_eq(runs, 5);
    trace_free(&two);
    together_destroy(all);
}
END_TEST

TCase *sim_table_case(void)
{
    TCase *c = tcase_create("table");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_page_is_read_once);
    tcase_add_test(c, a_row_in_two_pages);
    tcase_add_test(c, the_page_used_longest_ago_gives_its_slot);
    tcase_add_test(c, a_chunk_is_read_in_blocks);
    tcase_add_test(c, what_was_requested_ahead_stays);
    tcase_add_test(c, more_pages_than_slots);
    tcase_add_test(c, rows_between_accesses);
    tcase_add_test(c, sequences_together);
    return c;
}
