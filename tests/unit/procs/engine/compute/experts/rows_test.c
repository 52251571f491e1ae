/* SPDX-License-Identifier: Apache-2.0 */
/* A pass with rows of several sequences, as compute's source sees it: one pin and one DEMAND for an
 * expert of several rows, records and gates of each sequence. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model/limits.h"
#include "tests/unit/procs/engine/compute/experts/world.h"

/* Rows 0 and 1 decode, each of its sequence; rows 2 and 3 are a chunk of a third one. */
static const uint32_t used_by_all[] = {0, 1, 2, 3}, used_by_chunk[] = {2, 3};

static struct route mixed_routes[4 * MODEL_TOP_K_MAX];

static void mix_rows(void)
{
    uint32_t k = w.child.model->hparams.experts_used;
    world_set_rows(4, true);
    w.step.decode = true;
    for (uint32_t r = 0; r < 2; r++)
        w.row[r] = (struct expert_row){
            .sequence = 20 + r, .position = 100 + r, .first = 100 + r, .prefill = false};
    for (uint32_t r = 0; r < 4; r++)
        for (uint32_t i = 0; i < k; i++)
            mixed_routes[r * k + i] = (struct route){.expert = 60, .weight = 0.05f};
    for (uint32_t r = 0; r < 4; r++) /* all rank item 0 differently, with weights of their own */
        mixed_routes[r * k + r % k] =
            (struct route){.expert = w.item[0].expert, .weight = 0.1f * (float)(r + 1)};
    mixed_routes[2 * k] = mixed_routes[3 * k] =
        (struct route){.expert = w.item[1].expert, .weight = 0.9f};
    w.step.routes = mixed_routes;
    w.item[0].tokens = 4;
    w.item[0].row = used_by_all;
    w.item[1].tokens = 2;
    w.item[1].row = used_by_chunk;
    w.item[1].weight = 0.9f;
    w.item[1].prefill = true;
}

/* One pin and one demand for all, a record for each sequence. */
START_TEST(each_sequence_has_its_records)
{
    static const struct access_record want[] = {
        {.sequence = 20, .position = 100, .tokens = 1, .weight = 0.1f, .rank = 0},
        {.sequence = 21, .position = 101, .tokens = 1, .weight = 0.2f, .rank = 1},
        {.sequence = 9, .position = 4, .tokens = 2, .weight = 0.4f, .rank = 2, .prefill = 1},
        {.sequence = 9, .position = 4, .tokens = 2, .weight = 0.9f, .rank = 1, .prefill = 1}};
    struct access_log_reader reader;
    struct access_record access;
    mix_rows();
    access_log_reader_start(&w.child.access_log, &reader);
    world_make_ready(1);
    world_pin(2);
    ck_assert_int_eq(w.item[0].state, ITEM_WAITED);
    ck_assert_int_eq(w.item[1].state, ITEM_READY);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ck_assert(access_log_read(&w.child.access_log, &reader, UINT64_MAX, &access));
        ck_assert_uint_eq(access.expert, w.item[i == 3].expert);
        ck_assert_uint_eq(access.outcome, i == 3 ? ACCESS_HIT : ACCESS_MISS);
        ck_assert_uint_eq(access.sequence, want[i].sequence);
        ck_assert_uint_eq(access.position, want[i].position);
        ck_assert_uint_eq(access.tokens, want[i].tokens);
        ck_assert_uint_eq(access.prefill, want[i].prefill);
        ck_assert_uint_eq(access.rank, want[i].rank);
        ck_assert(fabsf(access.weight - want[i].weight) < 1e-6f);
        ck_assert_uint_eq(access.pass, 70001 & UINT16_MAX);
    }
    ck_assert(!access_log_read(&w.child.access_log, &reader, UINT64_MAX, &access));
    ck_assert_uint_eq(world_count(CTR_COMPUTE_demands), 1);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_accesses), 4);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_hits), 1);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_misses), 3);
}
END_TEST

/* What an access was, and the time of a wait, are counted for the sequence whose rows they are. */
START_TEST(each_sequence_has_its_counts)
{
    struct kv_request request[3] = {0};
    mix_rows();
    for (uint32_t r = 0; r < 4; r++)
        w.row[r].member = r < 2 ? r : 2;
    for (uint32_t i = 0; i < 3; i++)
        w.requests[i] = &request[i];
    experts_pass_begins(w.experts, w.requests, 3);
    world_make_ready(1);
    world_pin(2);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(request[i].stats.misses, 1);
        ck_assert_uint_eq(request[i].stats.hits, i == 2);
    }
    ck_assert_uint_eq(world_count(CTR_COMPUTE_pass_experts), 2);
    ck_assert_uint_eq(world_count(CTR_COMPUTE_pass_expert_rows), 6);
}
END_TEST

/* A pass ends early when nobody wants any of its sequences. */
START_TEST(a_pass_goes_on_for_one_sequence)
{
    struct kv_request request[3] = {0};
    struct error error;
    mix_rows();
    for (uint32_t i = 0; i < 3; i++)
        w.requests[i] = &request[i];
    experts_pass_begins(w.experts, w.requests, 3);
    world_pin(2);
    atomic_store(&request[0].cancel, 1);
    atomic_store(&request[1].cancel, 1);
    ck_assert_int_eq(world_wait_any(2, &error), -1); /* until the stall limit */
    ck_assert_int_eq(error.code, ERR_NO_PROGRESS);
    atomic_store(&request[2].cancel, 1);
    ck_assert_int_eq(world_wait_any(2, &error), -1);
    ck_assert_int_eq(error.code, ERR_CANCELLED);
}
END_TEST

/* The rows that decode, with their sequences; none of a prompt. */
START_TEST(each_row_that_decodes_is_published)
{
    uint32_t n = w.child.model->hparams.hidden;
    float *x = calloc((size_t)4 * n, sizeof *x), *seen = calloc(n, sizeof *seen);
    struct gates_read read;
    uint32_t news = atomic_load(&w.child.gates.head->news);
    ck_assert(x && seen);
    for (uint32_t i = 0; i < 4 * n; i++)
        x[i] = (float)i;
    mix_rows();
    world_make_ready(0);
    world_make_ready(1);
    w.experts->publishes = PREDICT_LOGITS;
    w.source.gate_input(w.source.self, &w.step, x, n);
    world_pin(2);
    ck_assert_uint_eq(atomic_load(&w.child.gates.head->news) - news, 2);
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert(gates_read(&w.child.gates, news + i, &read, seen));
        ck_assert_uint_eq(read.layer, LAYER);
        ck_assert_uint_eq(read.sequence, w.row[i].sequence);
        ck_assert_uint_eq(read.position, w.row[i].position);
        ck_assert(read.count == n && memcmp(seen, x + i * n, n * sizeof *x) == 0);
    }
    world_pin(0); /* once */
    ck_assert_uint_eq(atomic_load(&w.child.gates.head->news) - news, 2);
    free(x);
    free(seen);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rows");
    TCase *c = tcase_create("rows");
    tcase_set_timeout(c, 60);
    tcase_add_checked_fixture(c, world_setup, NULL);
    tcase_add_test(c, each_sequence_has_its_records);
    tcase_add_test(c, each_sequence_has_its_counts);
    tcase_add_test(c, a_pass_goes_on_for_one_sequence);
    tcase_add_test(c, each_row_that_decodes_is_published);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
