/* SPDX-License-Identifier: Apache-2.0 */
/* The cache manager: victims, waiting, cancelling, retries, prefetches, filling and recovery. */
#include "tests/unit/procs/engine/cache/world.h"

static void advance(uint32_t sequence, uint32_t position, uint32_t layer)
{
    cache_advance(&w.cache, &(struct prediction_place){sequence, position, layer});
}

/* ---- victims -------------------------------------------------------------------------------- */

START_TEST(lru_evicts_the_entry_that_was_accessed_longest_ago)
{
    start("lod", 4);
    make_resident(0, 4);
    struct residency_access once = {.tokens = 1};
    advance(1, 7, LAYER);
    residency_accessed(w.cache.residency, cache_slot(&w.cache, expert(LAYER, 0)), &once);
    uint64_t owned = w.cache.owned_bytes;
    demand(expert(LAYER, 4));
    ck_assert_int_eq(state(expert(LAYER, 1)), ENTRY_ABSENT);
    ck_assert_int_eq(state(expert(LAYER, 0)), ENTRY_READY);
    ck_assert_int_eq(state(expert(LAYER, 4)), ENTRY_LOADING);
    ck_assert_uint_eq(w.cache.owned_bytes,
                      owned - slot_bytes(expert(LAYER, 1)) + slot_bytes(expert(LAYER, 4)));
    ck_assert_uint_eq(count(CTR_CACHE_evictions), 1);
    arrive(expert(LAYER, 4));
    ck_assert_uint_eq(w.cache.resident_entries, 4);
    ck_assert_uint_eq(w.cache.demands_open, 0);
}
END_TEST

START_TEST(pinned_entries_stay_and_the_demand_waits)
{
    start("lod", 2);
    make_resident(0, 2);
    pin(expert(LAYER, 0));
    pin(expert(LAYER, 1));
    demand(expert(LAYER, 2));
    ck_assert_int_eq(state(expert(LAYER, 2)), ENTRY_ABSENT);
    ck_assert_uint_eq(w.cache.waiting.count, 1);
    ck_assert_uint_eq(atomic_load(&w.child.directory.head->prefetch_paused), 1);
    cache_retry_waiting(&w.cache);
    ck_assert_uint_eq(w.cache.waiting.count, 1);
    unpin(expert(LAYER, 1));
    cache_retry_waiting(&w.cache);
    ck_assert_uint_eq(w.cache.waiting.count, 0);
    ck_assert_uint_eq(atomic_load(&w.child.directory.head->prefetch_paused), 0);
    ck_assert_int_eq(state(expert(LAYER, 1)), ENTRY_ABSENT);
    arrive(expert(LAYER, 2));
}
END_TEST

START_TEST(a_waiting_demand_ends_with_its_pin)
{
    start("lod", 1);
    make_resident(0, 1);
    pin(expert(LAYER, 0));
    demand(expert(LAYER, 1));
    ck_assert_uint_eq(w.cache.demands_open, 1);
    unpin(expert(LAYER, 1));
    cache_retry_waiting(&w.cache);
    ck_assert_uint_eq(w.cache.waiting.count, 0);
    ck_assert_uint_eq(w.cache.demands_open, 0);
    ck_assert_int_eq(state(expert(LAYER, 1)), ENTRY_ABSENT);
}
END_TEST

START_TEST(a_demand_cancels_prefetches_that_take_its_space)
{
    start("lod", 1);
    uint64_t offset;
    uint32_t prefetched = expert(LAYER, 0), wanted = expert(LAYER, 1);
    ck_assert(cache_space_take_free(&w.cache, prefetched, &offset));
    cache_reserve(&w.cache, prefetched, offset, LOAD_PREFETCH, 0);
    ck_assert_uint_eq(w.cache.prefetches_open, 1);
    demand(wanted);
    ck_assert_int_eq(state(prefetched), ENTRY_DOOMED);
    ck_assert_uint_eq(count(CTR_CACHE_cancels), 1);
    ck_assert_int_eq(state(wanted), ENTRY_ABSENT); /* the loader may still write the slot */
    struct directory_entry *d = &w.child.directory.entries[prefetched];
    ck_assert_int_eq(entry_shard_fail(&d->word, entry_generation_of(word(prefetched)), 0),
                     SHARD_DOOMED);
    cache_observe(&w.cache, prefetched);
    ck_assert_int_eq(state(prefetched), ENTRY_ABSENT);
    cache_retry_waiting(&w.cache);
    arrive(wanted);
    ck_assert_uint_eq(w.cache.prefetches_open, 0);
}
END_TEST

START_TEST(a_load_that_fails_three_times_is_given_up)
{
    start("lod", 2);
    uint32_t entry = expert(LAYER, 0);
    demand(entry);
    for (uint32_t i = 1; i <= CACHE_FAILURES_MAX; i++) {
        ck_assert_int_eq(state(entry), ENTRY_LOADING);
        load_fails(entry);
        ck_assert_uint_eq(count(CTR_CACHE_load_failures), i);
    }
    ck_assert_int_eq(state(entry), ENTRY_ABSENT);
    ck_assert_uint_eq(w.cache.demands_open, 0);
    cache_request_fresh(&w.cache, entry, LOAD_DEMAND, 1); /* a new request: counted from zero */
    load_fails(entry);
    ck_assert_int_eq(state(entry), ENTRY_LOADING);
    arrive(entry);
}
END_TEST

/* ---- messages ------------------------------------------------------------------------------- */

static void send_demand(uint32_t entry)
{
    struct msg_demand m = {
        .sequence = 1, .layer = LAYER, .count = 1, .wants = {{.entry = entry, .tokens = 1}}};
    ck_assert_int_eq(channel_send(w.compute, &m, MSG_DEMAND), 0);
    cache_receive_compute(&w.cache);
}

START_TEST(a_demand_message_loads_and_a_wrong_entry_is_counted)
{
    start("lod", 2);
    uint32_t entry = expert(LAYER, 5);
    pin(entry);
    send_demand(entry);
    ck_assert_int_eq(state(entry), ENTRY_LOADING);
    ck_assert_uint_eq(count(CTR_CACHE_demands), 1);
    send_demand(w.child.model->entry_count);
    ck_assert_uint_eq(count(CTR_CACHE_messages_invalid), 1);
    ck_assert_uint_eq(count(CTR_CACHE_demands), 2);
    arrive(entry);
}
END_TEST

static void send_hint_of(uint32_t sequence, uint32_t position, uint32_t layer, uint32_t first,
                         uint32_t hinted)
{
    struct msg_hint m = {.sequence = sequence,
                         .position = position,
                         .layer = (uint16_t)layer,
                         .from_layer = (uint16_t)(layer - 1),
                         .count = (uint16_t)hinted};
    for (uint32_t i = 0; i < hinted; i++)
        m.predictions[i] = (struct msg_prediction){.entry = expert(layer, first + i),
                                                   .probability = 0.9f - 0.1f * (float)i};
    ck_assert_int_eq(channel_send(w.predictor, &m, MSG_HINT), 0);
    cache_receive_predictor(&w.cache);
}

static void send_hint(uint32_t position, uint32_t layer, uint32_t first, uint32_t hinted)
{
    send_hint_of(1, position, layer, first, hinted);
}

static void send_known(uint32_t sequence, uint32_t position, uint32_t layer, uint32_t number)
{
    struct msg_hint m = {.sequence = sequence,
                         .position = position,
                         .layer = (uint16_t)layer,
                         .from_layer = (uint16_t)layer,
                         .count = 1,
                         .predictions = {{.entry = expert(layer, number), .probability = 1}}};
    ck_assert_int_eq(channel_send(w.compute, &m, MSG_KNOWN), 0);
    cache_receive_compute(&w.cache);
    for (uint32_t i = 0; i < 3; i++) /* one per iteration of the main loop */
        cache_prefetch(&w.cache);
}

/* Of the first token of a sequence, and of the one after the last layer. What was passed is not
 * read. */
START_TEST(what_a_table_names_is_read_before_the_first_layer)
{
    uint32_t last = w.child.model->hparams.layers - 1;
    start("default", 4);
    w.cache.limit.judge.on = false; /* it is about guesses */
    cache_sequence_starts(&w.cache, 1);
    send_known(1, 0, 0, 3);
    ck_assert_int_eq(state(expert(0, 3)), ENTRY_LOADING);
    arrive(expert(0, 3));
    advance(1, 0, last);
    send_known(1, 1, 0, 4);
    send_known(1, 1, 1, 5);
    ck_assert_int_eq(state(expert(0, 4)), ENTRY_LOADING);
    ck_assert_int_eq(state(expert(1, 5)), ENTRY_LOADING);
    advance(1, 1, 1);
    send_known(1, 1, 0, 6);
    ck_assert_int_eq(state(expert(0, 6)), ENTRY_ABSENT);
    ck_assert_uint_eq(count(CTR_CACHE_prefetches), 3);
}
END_TEST

START_TEST(hinted_experts_are_prefetched_while_space_is_free)
{
    start("default", 3);
    advance(1, 7, LAYER);
    make_resident(0, 1);
    send_hint(7, LAYER + 1, 0, 3);
    for (uint32_t i = 0; i < 6; i++) /* one per iteration of the main loop */
        cache_prefetch(&w.cache);
    ck_assert_int_eq(state(expert(LAYER + 1, 0)), ENTRY_LOADING);
    ck_assert_int_eq(state(expert(LAYER + 1, 1)), ENTRY_LOADING);
    ck_assert_uint_ge(w.cache.prefetches_open, 2);
    ck_assert_uint_eq(count(CTR_CACHE_prefetches), w.cache.prefetches_open);
}
END_TEST

START_TEST(a_hint_for_a_layer_that_has_passed_is_dropped)
{
    start("default", 8);
    advance(1, 7, LAYER);
    send_hint(7, LAYER, 0, 2);
    cache_prefetch(&w.cache);
    ck_assert_uint_eq(count(CTR_CACHE_hints_expired), 2);
    ck_assert_uint_eq(w.cache.prefetches_open, 0);
}
END_TEST

/* A newer list for the same place keeps the reads of the older one; of another place they are
 * cancelled. */
START_TEST(a_newer_list_keeps_the_reads_of_its_place)
{
    start("default", 8);
    advance(1, 7, LAYER);
    for (uint32_t i = 0; i < 2; i++) {
        send_hint(7, LAYER + 1, i, 1);
        cache_prefetch(&w.cache);
        ck_assert_int_eq(state(expert(LAYER + 1, i)), ENTRY_LOADING);
    }
    ck_assert_int_eq(state(expert(LAYER + 1, 0)), ENTRY_LOADING);
    send_hint(8, LAYER + 1, 2, 1);
    ck_assert_int_eq(state(expert(LAYER + 1, 0)), ENTRY_LOADING);
    ck_assert_int_ne(state(expert(LAYER + 1, 1)), ENTRY_LOADING);
}
END_TEST

/* Lists of two sequences in one pass: what one of them passes, and its end, leave the other's. */
START_TEST(lists_survive_another_sequence)
{
    start("default", 8);
    cache_sequence_starts(&w.cache, 1);
    cache_sequence_starts(&w.cache, 2);
    advance(1, 7, LAYER);
    send_hint_of(1, 7, LAYER + 1, 0, 2);
    advance(2, 90, LAYER);
    send_hint_of(2, 90, LAYER + 1, 1, 2);
    for (uint32_t i = 0; i < 6; i++)
        cache_prefetch(&w.cache);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(state(expert(LAYER + 1, i)), ENTRY_LOADING);
    ck_assert_uint_eq(count(CTR_CACHE_prefetches), 3); /* one of them is in both */
    advance(1, 7, LAYER + 1);
    ck_assert_int_ne(state(expert(LAYER + 1, 0)), ENTRY_LOADING); /* in no list any more */
    ck_assert_int_eq(state(expert(LAYER + 1, 1)), ENTRY_LOADING);
    ck_assert_int_eq(state(expert(LAYER + 1, 2)), ENTRY_LOADING);
    cache_sequence_ends(&w.cache, 1);
    ck_assert_int_eq(state(expert(LAYER + 1, 1)), ENTRY_LOADING);
    cache_sequence_ends(&w.cache, 2);
    ck_assert_int_ne(state(expert(LAYER + 1, 1)), ENTRY_LOADING);
    ck_assert_int_ne(state(expert(LAYER + 1, 2)), ENTRY_LOADING);
    ck_assert(!cache_predictions_wait(&w.cache));
    send_hint_of(2, 90, LAYER + 2, 0, 2); /* late: it has ended */
    ck_assert(!cache_predictions_wait(&w.cache));
}
END_TEST

/* Nothing would end a sequence that starts with a hint: its experts would be protected for ever. */
START_TEST(a_hint_starts_no_sequence)
{
    start("default", 8);
    send_hint_of(5, 7, LAYER + 1, 0, 2); /* never seen */
    ck_assert(!cache_predictions_wait(&w.cache));
    ck_assert_uint_eq(count(CTR_CACHE_hints_expired), 2);
    for (uint32_t sequence = 10; sequence < 14; sequence++) {
        cache_sequence_starts(&w.cache, sequence);
        advance(sequence, 7, LAYER);
        cache_sequence_ends(&w.cache, sequence);
    }
    send_hint_of(10, 8, LAYER + 1, 0, 2); /* its end is no longer known */
    ck_assert(!cache_predictions_wait(&w.cache));
    ck_assert_uint_eq(count(CTR_CACHE_hints_expired), 4);
}
END_TEST

/* The record of an end may be among those that were lost. */
START_TEST(lost_records_end_what_runs)
{
    start("default", 8);
    advance(1, 7, LAYER);
    send_hint_of(1, 7, LAYER + 1, 0, 2);
    ck_assert(cache_predictions_wait(&w.cache));
    cache_forget_predictions(&w.cache);
    send_hint_of(1, 7, LAYER + 2, 0, 2);
    ck_assert(!cache_predictions_wait(&w.cache));
    advance(1, 8, LAYER); /* its next access starts it again */
    send_hint_of(1, 8, LAYER + 1, 0, 2);
    ck_assert(cache_predictions_wait(&w.cache));
}
END_TEST

/* An expert that a sequence is predicted to need is evicted only when nothing else is left. */
START_TEST(another_sequence_spares_predicted_experts)
{
    start("default", 2);
    make_resident(0, 2);
    advance(1, 7, LAYER - 1);
    send_hint_of(1, 7, LAYER, 0, 1);
    advance(2, 90, LAYER - 1);
    send_hint_of(2, 90, LAYER, 0, 1);
    advance(2, 90, LAYER);
    demand(expert(LAYER, 2));
    ck_assert_int_eq(state(expert(LAYER, 0)), ENTRY_READY);
    ck_assert_int_eq(state(expert(LAYER, 1)), ENTRY_ABSENT);
}
END_TEST

/* ---- filling and recovery ------------------------------------------------------------------- */

static void fill_while_idle(void)
{
    for (uint32_t i = 0; i < 64 && cache_fill_waits(&w.cache); i++) {
        cache_fill(&w.cache);
        while (w.cache.loading.head != ENTRY_NONE)
            arrive(w.cache.loading.head);
    }
    ck_assert(!cache_fill_waits(&w.cache));
}

START_TEST(the_preload_ends_when_the_capacity_is_used)
{
    start("auto-noprefetch", 5);
    fill_while_idle();
    ck_assert_uint_eq(w.cache.resident_entries, 5);
    ck_assert_uint_eq(count(CTR_CACHE_evictions), 0);
}
END_TEST

/* The default preset fills free space only where two thirds of the experts or more fit. */
START_TEST(the_default_fills_the_space_for_most_experts)
{
    uint32_t most = w.child.model->expert_entry_count * 3 / 4;
    start("default", most);
    fill_while_idle();
    ck_assert_uint_gt(w.cache.resident_entries, most * 9 / 10); /* some are larger */
    ck_assert_uint_eq(count(CTR_CACHE_evictions), 0);
}
END_TEST

START_TEST(the_default_leaves_less_space_free)
{
    start("default", w.child.model->expert_entry_count / 2);
    fill_while_idle();
    ck_assert_uint_eq(w.cache.resident_entries, 0);
}
END_TEST

START_TEST(a_successor_keeps_what_is_ready_and_resets_what_was_loading)
{
    start("lod", 4);
    make_resident(0, 3);
    uint32_t loading = expert(LAYER, 3);
    demand(loading);
    uint64_t owned = w.cache.owned_bytes, generation = entry_generation_of(word(loading));
    close_channels();
    close_cache();
    open_cache("lod"); /* all its state is in shared memory */
    open_channels();
    cache_rebuild(&w.cache);
    ck_assert_uint_eq(w.cache.resident_entries, 3);
    ck_assert_uint_eq(w.cache.owned_bytes, owned - slot_bytes(loading));
    ck_assert_int_eq(state(loading), ENTRY_ABSENT);
    ck_assert_uint_gt(entry_generation_of(word(loading)), generation);
    ck_assert_uint_ge(count(CTR_CACHE_punched_bytes), slot_bytes(loading));
    ck_assert_uint_eq(count(CTR_CACHE_rebuilds), 1);
    cache_load_required(&w.cache); /* compute's pin still requests it */
    arrive(loading);
    ck_assert_uint_eq(w.cache.resident_entries, 4);
}
END_TEST

/* ---- expert replacement --------------------------------------------------------------------- */

static void fill_all(void)
{
    do {
        cache_fill(&w.cache);
        while (w.cache.loading.head != ENTRY_NONE)
            arrive(w.cache.loading.head);
    } while (cache_fill_waits(&w.cache));
}

/* As compute logs a layer's importance, and the end of `tokens` tokens. */
static void log_choice(uint32_t layer, uint32_t number)
{
    struct access_record r = {.kind = ACCESS_CHOICE,
                              .layer = (uint16_t)layer,
                              .expert = (uint16_t)number,
                              .weight = (float)(100 - number)};
    access_log_append(&w.child.access_log, &r);
}

static void log_tokens(uint32_t tokens)
{
    static uint16_t pass;
    struct access_record r = {.kind = ACCESS_TOKEN_END,
                              .tokens = tokens,
                              .prefill = tokens > 1,
                              .pass = ++pass,
                              .layer = UINT16_MAX};
    access_log_append(&w.child.access_log, &r);
    access_log_add_tokens(&w.child.access_log, tokens);
}

/* Sets of 4 or 5, the lowest numbers. The capacity counts the largest experts, others are
 * smaller. */
static void start_sets(void)
{
    static const uint8_t hash[PLAN_HASH_BYTES];
    const struct model_hparams *h = &w.child.model->hparams;
    struct error error;
    w.child.plan = plan_create(h->layers, h->experts, h->experts_used, hash, 0, 0, &error);
    start("swapmoe", 40);
    fill_all();
    ck_assert_uint_ge(w.cache.resident_entries, 4 * h->layers);
}

/* One turn ends a pair and starts the next read: an idle cache wakes every 50 ms only. A chunk
 * passes several plans of the layer. */
START_TEST(the_next_pair_starts_when_the_last_is_done)
{
    start_sets();
    for (uint32_t i = 20; i < 24; i++)
        log_choice(LAYER, i);
    log_tokens(512);
    cache_read_accesses(&w.cache, UINT64_MAX);
    cache_fill(&w.cache);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_int_eq(state(expert(LAYER, 20 + i)), ENTRY_LOADING);
        ck_assert_uint_eq(w.cache.loading.count, 1); /* one at a time */
        ck_assert_int_eq(state(expert(LAYER, i)), ENTRY_READY);
        if (i == 2)
            pin(expert(LAYER, i)); /* in use: the next pair waits for it */
        arrive(expert(LAYER, 20 + i));
        cache_fill(&w.cache);
        if (i == 2) {
            ck_assert_int_eq(state(expert(LAYER, i)), ENTRY_READY);
            ck_assert_uint_eq(w.cache.loading.count, 0);
            unpin(expert(LAYER, i));
            cache_fill(&w.cache);
        }
        ck_assert_int_eq(state(expert(LAYER, i)), ENTRY_ABSENT);
    }
    ck_assert_uint_eq(count(CTR_CACHE_expert_swaps), 4);
}
END_TEST

/* The bell is set for the next plan; when compute passed it before it was set, the cache sees
 * it. */
START_TEST(the_token_bell_rings_for_plans)
{
    const _Atomic uint64_t *bell = &w.child.directory.head->token_bell;
    start_sets();
    cache_read_accesses(&w.cache, UINT64_MAX);
    cache_set_token_bell(&w.cache);
    ck_assert_uint_eq(*bell, 96);
    log_tokens(95);
    ck_assert(!cache_tokens_passed(&w.cache));
    log_choice(0, 20);
    log_tokens(1);
    ck_assert(cache_tokens_passed(&w.cache));
    cache_read_accesses(&w.cache, UINT64_MAX);
    cache_fill(&w.cache);
    cache_set_token_bell(&w.cache);
    ck_assert_uint_eq(*bell, 0); /* the loader rings for the pair in progress */
    arrive(expert(0, 20));
    cache_fill(&w.cache);
    cache_set_token_bell(&w.cache);
    ck_assert_uint_eq(*bell, 96 + 96 / w.child.model->hparams.layers);
}
END_TEST

/* What a demand evicted from a set is loaded again, and what it loaded is evicted. */
START_TEST(broken_sets_are_repaired)
{
    start_sets();
    make_resident(20, 12);
    fill_all();
    for (uint32_t l = 0; l < w.child.model->hparams.layers; l++)
        for (uint32_t e = 0; e < 4; e++)
            ck_assert_int_eq(state(expert(l, e)), ENTRY_READY);
}
END_TEST

int main(void)
{
    if (!make_dir())
        return 1;
    Suite *s = suite_create("cache");
    TCase *t = tcase_create("cache");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, lru_evicts_the_entry_that_was_accessed_longest_ago);
    tcase_add_test(t, pinned_entries_stay_and_the_demand_waits);
    tcase_add_test(t, a_waiting_demand_ends_with_its_pin);
    tcase_add_test(t, a_demand_cancels_prefetches_that_take_its_space);
    tcase_add_test(t, a_load_that_fails_three_times_is_given_up);
    tcase_add_test(t, a_demand_message_loads_and_a_wrong_entry_is_counted);
    tcase_add_test(t, hinted_experts_are_prefetched_while_space_is_free);
    tcase_add_test(t, what_a_table_names_is_read_before_the_first_layer);
    tcase_add_test(t, a_hint_for_a_layer_that_has_passed_is_dropped);
    tcase_add_test(t, a_newer_list_keeps_the_reads_of_its_place);
    tcase_add_test(t, lists_survive_another_sequence);
    tcase_add_test(t, a_hint_starts_no_sequence);
    tcase_add_test(t, lost_records_end_what_runs);
    tcase_add_test(t, another_sequence_spares_predicted_experts);
    tcase_add_test(t, the_preload_ends_when_the_capacity_is_used);
    tcase_add_test(t, the_default_fills_the_space_for_most_experts);
    tcase_add_test(t, the_default_leaves_less_space_free);
    tcase_add_test(t, a_successor_keeps_what_is_ready_and_resets_what_was_loading);
    tcase_add_test(t, the_next_pair_starts_when_the_last_is_done);
    tcase_add_test(t, the_token_bell_rings_for_plans);
    tcase_add_test(t, broken_sets_are_repaired);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    remove_dir();
    return failed != 0;
}
