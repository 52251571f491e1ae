/* SPDX-License-Identifier: Apache-2.0 */
/* Kept keys and values: how much of a kept sequence serves a prompt, who gets which slot, and what
 * a successor of compute does with slots in any state. */

#include "lib/base/random.h"
#include "procs/engine/compute/slots/alike.h"
#include "procs/engine/compute/slots/room.h"
#include "tests/unit/procs/engine/compute/slots/slots_rig.h"

#define CONTEXT 400

/* A position has 64 bytes in each of 6 regions: 64 positions are a page of each. */
static const struct model_hparams shape = {
    .layers = 3, .kv_heads = 2, .head_size = 16, .vocab = 100};

static void setup(void)
{
    rig_open(&shape, CONTEXT, 256, 0);
}

static uint64_t slots_bytes(void)
{
    return counter_get(&w.row, CTR_COMPUTE_kv_bytes);
}

static uint64_t shared_bytes(void)
{
    return counter_get(&w.row, CTR_COMPUTE_kv_shared_bytes);
}

static struct kv_request *submit(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs)
{
    return rig_submit(row, id, tokens, differs, 50);
}

static uint32_t start(uint32_t row, struct kv_request *q)
{
    return rig_start(row, q, atomic_load(&q->log_tokens));
}

static void finish(uint32_t row, uint32_t slot, struct kv_request *q, bool keep)
{
    atomic_store(&q->kv_valid, atomic_load(&q->log_tokens) - 1);
    rig_end(row, slot, q, keep);
}

static uint32_t run(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs)
{
    struct kv_request *q = submit(row, id, tokens, differs);
    uint32_t slot = start(row, q), reused = atomic_load(&q->kv_valid);
    ck_assert_uint_eq(q->stats.cached, reused);
    finish(row, slot, q, true);
    return reused;
}

/* A sequence of a conversation of its own from position `differs` on; returns the rows that were
 * reused. */
static uint32_t converse(uint64_t id, uint32_t tokens, uint32_t differs, uint32_t conversation)
{
    struct kv_request *q = rig_submit(id % 8, 100 + id, tokens, differs, 10 * conversation);
    uint32_t slot = start(id % 8, q), reused = atomic_load(&q->kv_valid);
    finish(id % 8, slot, q, true);
    return reused;
}

START_TEST(prefix_ends_at_the_first_difference)
{
    static const _Atomic uint32_t kept[] = {5, 6, 7, 8}, log[] = {5, 6, 9, 8, 5, 6, 7, 8};
    ck_assert_uint_eq(alike_prefix(kept, 4, log, 8), 2);
    ck_assert_uint_eq(alike_prefix(kept, 1, log, 8), 1);
    ck_assert_uint_eq(alike_prefix(kept, 0, log, 8), 0);
    ck_assert_uint_eq(alike_prefix(kept + 1, 3, log, 8), 0);
    /* the last token is always computed */
    ck_assert_uint_eq(alike_prefix(kept, 4, log + 4, 4), 3);
    ck_assert_uint_eq(alike_prefix(kept, 4, log + 4, 1), 0);
    ck_assert_uint_eq(alike_prefix(kept, 4, log, 2), 1);
}
END_TEST

START_TEST(a_longer_prompt_reuses_all)
{
    static const struct kv_counts counts = {.sequences = 1, .kept = 3};
    rig_close();
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    ck_assert_uint_eq(run(0, 1, 100, CONTEXT), 0);
    ck_assert_uint_eq(slots_bytes(), kv_sequence_bytes(&w.shape, 99));
    ck_assert_uint_eq(run(1, 2, 150, CONTEXT), 99);
    ck_assert_uint_eq(run(2, 3, 150, CONTEXT), 149);
    ck_assert_uint_eq(run(3, 4, 150, 70), 70);       /* diverges: a copy */
    ck_assert_uint_eq(run(4, 5, 150, 70), 149);      /* and is itself kept */
    ck_assert_uint_eq(run(5, 6, 40, CONTEXT), 39);   /* shorter: a copy */
    ck_assert_uint_eq(run(6, 7, 150, CONTEXT), 149); /* of what stayed as it was */
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_sequences_reused), 6);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_sequences_copied), 2);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_tokens_reused), 99 + 3 * 149 + 70 + 39);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_entries), 3);
    ck_assert_uint_eq(slots_bytes(), counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes));
}
END_TEST

/* With more slots, more conversations are kept; of equal ones, that used longest ago goes first. */
START_TEST(several_are_kept)
{
    static const struct kv_counts counts = {.sequences = 1, .kept = 3};
    rig_close();
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    for (uint32_t i = 1; i <= 3; i++)
        ck_assert_uint_eq(converse(i, 50 + i, 0, i), 0);
    for (uint32_t i = 1; i <= 3; i++)
        ck_assert_uint_eq(converse(i, 70 + i, 0, i), 49 + i);
    ck_assert_uint_eq(converse(4, 90, 0, 4), 0); /* instead of 1 */
    ck_assert_uint_eq(converse(5, 74, 0, 3), 72);
    ck_assert_uint_eq(converse(6, 74, 0, 2), 71);
    ck_assert_uint_eq(converse(7, 74, 0, 1), 0); /* instead of 4 */
    ck_assert_uint_eq(converse(8, 74, 0, 4), 0); /* instead of 1, which nobody continued */
    ck_assert_uint_eq(slots_bytes(), counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes));
    kept_check(&w.slots); /* a successor */
    ck_assert_uint_eq(converse(9, 74, 0, 2), 73);
    ck_assert_uint_eq(converse(10, 390, 0, 5), 0); /* has the memory of all */
    ck_assert_uint_eq(converse(11, 74, 0, 2), 0);
    w.params.keep_kv = kv_sequence_bytes(&w.shape, 64) * 2;
    for (uint32_t i = 6; i <= 8; i++)
        ck_assert_uint_eq(converse(i, 60, 0, i), 0);
    ck_assert_uint_eq(slots_bytes(), w.params.keep_kv);
    ck_assert_uint_eq(converse(9, 60, 0, 7), 59);
    ck_assert_uint_eq(converse(10, 60, 0, 8), 59);
    ck_assert_uint_eq(converse(11, 60, 0, 6), 0);
}
END_TEST

/* Compute is killed before the owner of a copy is stored: what has no log is not kept. */
START_TEST(a_copy_without_owner_is_not_kept)
{
    static const struct kv_counts counts = {.sequences = 2, .kept = 1};
    rig_close();
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    struct kv_request *a = submit(0, 1, 150, CONTEXT), *b = submit(1, 2, 180, 128);
    uint32_t from = start(0, a);
    atomic_store(&a->kv_valid, 149);
    uint32_t to = start(1, b);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_sequences_copied), 1);
    atomic_store(&w.child.kv.head->slot[to].owner, 0);
    kept_check(&w.slots);
    ck_assert_uint_eq(atomic_load(&w.child.kv.head->slot[to].rows), 0);
    ck_assert_uint_eq(atomic_load(&w.child.kv.head->slot[to].allocated), 0);
    ck_assert_uint_eq(kept_owned(&w.slots, a), from);
}
END_TEST

/* A paused sequence finds more rows than its prompt has: those of its answer are not cached. */
START_TEST(rows_of_an_answer_are_not_cached)
{
    ck_assert_uint_eq(run(0, 1, 150, CONTEXT), 0);
    struct kv_request *b = submit(1, 2, 150, CONTEXT);
    atomic_store(&b->prompt_tokens, 100);
    uint32_t slot = start(1, b);
    ck_assert_uint_eq(atomic_load(&b->kv_valid), 149);
    ck_assert_uint_eq(b->stats.cached, 100);
    rig_end(1, slot, b, true);
}
END_TEST

/* What is kept has memory that experts do not need, running ones have not; and gives it back. */
START_TEST(spare_memory_is_given_back)
{
    static const struct kv_counts counts = {.sequences = 2, .kept = 4};
    _Atomic uint64_t spare = kv_sequence_bytes(&w.shape, 600);
    uint64_t pool = kv_reserved_bytes(&w.shape);
    rig_close();
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    w.slots.spare_bytes = &spare;
    for (uint32_t i = 1; i <= 4; i++)
        converse(i, 200, 0, i);
    uint64_t all = slots_bytes();
    ck_assert_uint_eq(all, 4 * kv_sequence_bytes(&w.shape, 200));
    ck_assert(all > pool && all <= pool + spare);
    for (uint32_t i = 1; i <= 4; i++)
        ck_assert_uint_eq(converse(i, 201, 0, i), 199);
    ck_assert(!kept_fits(&w.slots, KEPT_NONE, CONTEXT + KV_TILE));
    room_return(&w.slots);
    ck_assert_uint_eq(slots_bytes(), all);
    spare /= 2;
    room_return(&w.slots);
    ck_assert(slots_bytes() <= pool + spare && slots_bytes() > pool);
    spare = 0;
    room_return(&w.slots);
    ck_assert(slots_bytes() <= pool && slots_bytes() > pool / 2);
}
END_TEST

/* What a side request borrows, it gives back however it ends: paused, failed or cancelled, also if
 * compute is killed before it has. */
START_TEST(borrowed_rows_are_given_back)
{
    for (int how = 0; how < 3; how++) {
        bool keep = how == 1, killed = how == 2;
        rig_close();
        setup();
        run(0, 1, 380, CONTEXT);
        struct kv_request *q = rig_submit(5, 2, 395, 380, 70);
        q->flags = KV_FLAG_SIDE;
        uint32_t slot = start(5, q);
        ck_assert_uint_eq(atomic_load(&q->kv_valid), 379);
        atomic_store(&q->kv_valid, keep ? 390 : 0);
        if (killed) {
            kept_check(&w.slots);
            ck_assert_uint_eq(start(5, q), slot);
            ck_assert_uint_eq(atomic_load(&q->kv_valid), 379);
        }
        rig_end(5, slot, q, keep);
        ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_entries), 1);
        kept_check(&w.slots);
        ck_assert_uint_eq(run(1, 3, 390, CONTEXT), 379);
    }
}
END_TEST

/* What a request that must not leave anything computes, no other one gets. */
START_TEST(a_private_prefix_is_not_copied)
{
    static const struct kv_counts counts = {.sequences = 2, .kept = 1};
    rig_close();
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    struct kv_request *a = submit(0, 1, 150, CONTEXT), *b = submit(1, 2, 180, CONTEXT);
    a->flags = KV_FLAG_NO_CACHE;
    start(0, a);
    atomic_store(&a->kv_valid, 149);
    start(1, b);
    ck_assert_uint_eq(atomic_load(&b->kv_valid), 0);
}
END_TEST

/* Running sequences share the pool: one that cannot grow is told so, and nothing kept is lost by
 * the attempt. */
START_TEST(running_ones_share_the_memory)
{
    static const struct kv_counts counts = {.sequences = 2, .kept = 2};
    struct error error;
    rig_close();
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    ck_assert_uint_eq(converse(1, 60, 0, 1), 0);
    struct kv_request *a = rig_submit(0, 1, 200, 0, 20), *b = rig_submit(1, 2, 100, 0, 30);
    uint32_t first = start(0, a), second = start(1, b);
    ck_assert(!kept_fits(&w.slots, second, 250) && kept_fits(&w.slots, second, 190));
    ck_assert(!kept_fits(&w.slots, KEPT_NONE, 100) && kept_fits(&w.slots, KEPT_NONE, 64));
    ck_assert_int_eq(kept_resize(&w.slots, second, 250, &error), -1);
    ck_assert_int_eq(error.code, ERR_BUSY);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_entries), 1);
    ck_assert_int_eq(kept_resize(&w.slots, second, 190, &error), 0); /* kept ones yield */
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_entries), 0);
    rig_end(0, first, a, false);
    ck_assert_int_eq(kept_resize(&w.slots, second, CONTEXT, &error), 0);
    ck_assert_uint_eq(slots_bytes(), kv_reserved_bytes(&w.shape));
}
END_TEST

/* A request that is cancelled before its first pass displaces nothing. */
START_TEST(an_empty_sequence_displaces_nothing)
{
    run(0, 1, 100, CONTEXT);
    struct kv_request *q = rig_submit(1, 2, 100, 0, 20);
    uint32_t slot = start(1, q);
    rig_end(1, slot, q, true);
    ck_assert_uint_eq(run(2, 3, 100, CONTEXT), 99);
}
END_TEST

/* What is counted is what is there; a slot's log is a page more, and less than a page of rows. */
static void check_counted(uint64_t before)
{
    uint64_t has = segment_allocated_bytes(w.child.kv.segment.fd) - before;
    ck_assert_uint_ge(has, slots_bytes());
    ck_assert_uint_le(has, slots_bytes() + w.child.kv.slots * PAGE_BYTES);
}

/* Requests of random lengths, prefixes and cancels leave memory as it was. */
START_TEST(requests_leave_no_memory)
{
    static const struct kv_counts all[] = {{.sequences = 4, .kept = 1},
                                           {.sequences = 4, .kept = 6}};
    const struct kv_counts counts = all[_i];
    struct kv_request *running[4] = {0};
    uint32_t slot[4], done = 0;
    uint64_t most_shared = 0;
    struct random r;
    struct error error;
    rig_close();
    rig_open_counts(&shape, CONTEXT, 256, &counts);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_int_eq(kv_log_allocate(&w.child.kv, i, CONTEXT, &error), 0);
    uint64_t before = segment_allocated_bytes(w.child.kv.segment.fd);
    random_seed(&r, 11, 0);
    for (uint64_t id = 1; done < 1000; id++) {
        uint32_t i = (uint32_t)(random_u64(&r) % 4), tokens = 2 + (uint32_t)(random_u64(&r) % 300);
        if (!running[i]) {
            running[i] = rig_submit(i, id, tokens, (uint32_t)(random_u64(&r) % CONTEXT),
                                    (uint32_t)(random_u64(&r) % 9));
            slot[i] = kept_take(&w.slots, running[i], kv_log(&w.child.kv, i));
        }
        struct kv_request *q = running[i];
        uint32_t valid = atomic_load(&q->kv_valid), end = atomic_load(&q->log_tokens) - 1;
        bool fits = kept_resize(&w.slots, slot[i], end + 1, &error) == 0;
        if (fits)
            atomic_store(&q->kv_valid,
                         valid + (end - valid) / 2 + 1 < end ? valid + (end - valid) / 2 + 1 : end);
        bool ends = atomic_load(&q->kv_valid) == end || !fits || random_u64(&r) % 4 == 0;
        if (ends) {
            rig_end(i, slot[i], q, random_u64(&r) % 8 > 0);
            running[i] = NULL;
            done++;
        }
        ck_assert_uint_le(slots_bytes(), kv_reserved_bytes(&w.shape));
        check_counted(before);
        if (random_u64(&r) % 32 == 0)
            kept_check(&w.slots); /* killed */
        most_shared = most_shared > shared_bytes() ? most_shared : shared_bytes();
    }
    ck_assert_uint_gt(most_shared, 0);
    for (uint32_t i = 0; i < 4; i++)
        if (running[i])
            rig_end(i, slot[i], running[i], false);
    for (uint32_t i = 0; i < w.child.kv.slots; i++)
        kept_empty(&w.slots, i);
    kept_publish(&w.slots);
    ck_assert_uint_eq(slots_bytes(), 0);
    ck_assert_uint_eq(segment_allocated_bytes(w.child.kv.segment.fd), before);
    ck_assert_uint_gt(counter_get(&w.row, CTR_COMPUTE_kv_kept_evictions), 100);
}
END_TEST

/* Two conversations in turns, with short requests between them, compute new tokens only. */
START_TEST(conversations_take_turns)
{
    static const struct kv_counts counts = {.sequences = 1, .kept = 4};
    rig_close();
    rig_open_counts(&shape, 2000, 256, &counts);
    uint32_t log[2] = {100, 120};
    for (uint64_t turn = 0; turn < 10; turn++)
        for (uint32_t c = 0; c < 2; c++) {
            uint64_t id = 10 * turn + 5 * c;
            uint32_t reused = converse(id, log[c], 40, 1 + c); /* after a common system prompt */
            ck_assert_uint_eq(reused, turn > 0 ? log[c] - 31 : c > 0 ? 40 : 0);
            log[c] += 30;
            converse(id + 1, 25, 0, (uint32_t)(3 + turn % 6)); /* a title */
        }
}
END_TEST

/* A side request; returns the rows that were reused. */
static uint32_t ask_beside(uint64_t id, uint32_t tokens, uint32_t differs)
{
    struct kv_request *q = rig_submit(5, id, tokens, differs, 70);
    q->flags = KV_FLAG_SIDE;
    uint32_t slot = start(5, q), reused = atomic_load(&q->kv_valid);
    finish(5, slot, q, true);
    return reused;
}

/* One that includes a conversation has a copy of it. */
START_TEST(a_side_request_takes_no_conversation)
{
    static const struct kv_counts counts = {.sequences = 1, .kept = 4};
    rig_close();
    rig_open_counts(&shape, 2000, 256, &counts);
    run(0, 1, 500, 2000);
    ck_assert_uint_eq(ask_beside(2, 550, 500), 499);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_entries), 2);
    /* Its copy has one row more for the next turn, which takes the conversation's slot though. */
    ck_assert_uint_eq(run(1, 3, 520, 2000), 499);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_entries), 2);
    ck_assert_uint_eq(ask_beside(4, 600, 550), 519); /* of the conversation, which is longer */
    ck_assert_uint_eq(ask_beside(5, 610, 550), 599); /* of another side request */
    ck_assert_uint_eq(run(1, 6, 530, 2000), 529);
}
END_TEST

/* Where there is no memory for both, it borrows the rows of the conversation, and gives them back;
 * of one that it does not include, it takes none. */
START_TEST(a_side_request_borrows_rows)
{
    run(0, 1, 380, CONTEXT);
    ck_assert_uint_eq(ask_beside(2, 395, 380), 379);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_entries), 1);
    ck_assert_uint_eq(run(1, 3, 385, CONTEXT), 379);
    ck_assert_uint_eq(ask_beside(4, 120, 60), 0);
    ck_assert_uint_eq(ask_beside(5, 120, 100),
                      100); /* a page is shared: there is memory for both */
    ck_assert_uint_ge(run(1, 5, 390, CONTEXT), 256);
}
END_TEST

/* However much it computed, a side request is given up before a conversation. */
START_TEST(side_requests_go_first)
{
    run(0, 1, 60, CONTEXT);
    struct kv_request *q = rig_submit(5, 2, 250, 0, 70);
    q->flags = KV_FLAG_SIDE;
    uint32_t slot = start(5, q);
    q->stats.prefill_ns = 1000000000000;
    finish(5, slot, q, true);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_entries), 1);
    ck_assert_uint_eq(run(1, 3, 70, CONTEXT), 59);
}
END_TEST

/* What is cut off a kept slot takes its part of the token log with it. */
START_TEST(a_cut_slot_has_no_more_memory_than_it_needs)
{
    rig_close();
    rig_open_counts(&shape, 8000, 256, &(struct kv_counts){.sequences = 1, .kept = 1});
    run(0, 1, 7000, 8000);
    uint64_t before = segment_allocated_bytes(w.child.kv.segment.fd);
    uint64_t rows = counter_get(&w.row, CTR_COMPUTE_kv_bytes);
    kept_cut(&w.slots, 0, rows / 2);
    kept_publish(&w.slots);
    uint64_t after = segment_allocated_bytes(w.child.kv.segment.fd);
    uint64_t cut = rows - counter_get(&w.row, CTR_COMPUTE_kv_bytes);
    ck_assert_uint_ge(cut, rows / 2);
    ck_assert_uint_eq(before - after, cut + 3 * PAGE_BYTES); /* 3,500 tokens of 7,000 */
}
END_TEST

START_TEST(some_sequences_neither_use_nor_leave)
{
    run(0, 1, 100, CONTEXT);
    static const uint32_t flags[] = {KV_FLAG_NO_CACHE, KV_FLAG_SCORE_PROMPT};
    for (uint32_t i = 0; i < 2; i++) {
        struct kv_request *q = submit(1, 10 + i, 100, CONTEXT);
        q->flags = flags[i];
        uint32_t slot = start(1, q);
        ck_assert_uint_eq(atomic_load(&q->kv_valid), 0);
        finish(1, slot, q, true);
    }
    struct kv_request *q = submit(1, 20, 100, 0); /* failed: nothing of it is kept */
    finish(1, start(1, q), q, false);
    ck_assert_uint_eq(run(2, 30, 100, CONTEXT), 99);
    w.params.deterministic = true;
    ck_assert_uint_eq(run(2, 31, 100, CONTEXT), 0);
    w.params.deterministic = false;
    w.params.keep_kv = 0;
    ck_assert_uint_eq(run(2, 32, 100, CONTEXT), 0);
}
END_TEST

START_TEST(rows_of_another_lossy_preset_are_not_used)
{
    run(0, 1, 100, CONTEXT);
    w.slots.preset = 1; /* lossless, too */
    ck_assert_uint_eq(run(0, 2, 100, CONTEXT), 99);
    w.slots.lossy = true;
    w.slots.preset = 2;
    ck_assert_uint_eq(run(0, 3, 100, CONTEXT), 0);
    ck_assert_uint_eq(run(0, 4, 100, CONTEXT), 99); /* the same lossy one */
    w.slots.lossy = false;
    w.slots.preset = 0;
    ck_assert_uint_eq(run(0, 5, 100, CONTEXT), 0);
}
END_TEST

START_TEST(memory_is_bounded_and_yields)
{
    uint64_t reserved = kv_sequence_bytes(&w.shape, CONTEXT);
    w.params.keep_kv = kv_sequence_bytes(&w.shape, 128);
    run(0, 1, 300, CONTEXT);
    ck_assert_uint_eq(slots_bytes(), kv_sequence_bytes(&w.shape, 128));
    ck_assert_uint_eq(run(1, 2, 300, CONTEXT), 128); /* its beginning */

    struct kv_request *q = submit(2, 3, 200, 0); /* both fit */
    uint32_t slot = start(2, q);
    ck_assert_uint_gt(counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes), 0);
    struct error error;
    for (uint32_t tokens = 200; tokens <= CONTEXT; tokens += 50) {
        ck_assert_int_eq(kept_resize(&w.slots, slot, tokens, &error), 0);
        ck_assert_uint_le(slots_bytes(), reserved);
    }
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes), 0); /* it yielded */
    finish(2, slot, q, true);
}
END_TEST

START_TEST(a_successor_continues)
{
    run(0, 1, 100, CONTEXT);
    kept_check(&w.slots);
    struct kv_request *q = submit(1, 2, 300, CONTEXT);
    uint32_t slot = start(1, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 99);
    atomic_store(&q->kv_valid, 200);
    memset(&w.row, 0, sizeof w.row);
    kept_check(&w.slots); /* killed here */
    q->stats.resumes = 1;
    ck_assert_uint_eq(start(1, q), slot);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 200);
    ck_assert_uint_eq(q->stats.cached, 99);
    ck_assert_uint_eq(kept_owned(&w.slots, q), slot); /* to be freed if it is not computed again */

    atomic_store(&w.head->slot[slot].owner, 0); /* killed after it was kept, before the end state */
    atomic_store(&w.head->slot[slot].rows, 0);
    kept_check(&w.slots);
    ck_assert_uint_eq(slots_bytes(), 0);
    start(1, q);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 0); /* computed again */
}
END_TEST

START_TEST(contradictory_slots_are_emptied)
{
    struct random r;
    random_seed(&r, 4, 0);
    for (int round = 0; round < 2000; round++) {
        for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
            atomic_store(&w.head->request[i].state, KV_FREE);
        run(0, 1, 300, CONTEXT);
        struct kv_request *q = submit(1, 2, 300, CONTEXT);
        for (uint32_t i = 0; i < w.head->slots; i++) {
            struct kv_slot *s = &w.head->slot[i];
            if (random_u64(&r) % 2)
                atomic_store(&s->owner, random_u64(&r) % 4);
            if (random_u64(&r) % 2)
                atomic_store(&s->rows, (uint32_t)(random_u64(&r) % (2 * CONTEXT)));
            if (random_u64(&r) % 4 == 0)
                atomic_store(&s->allocated, (uint32_t)(random_u64(&r) % (2 * CONTEXT)));
        }
        atomic_store(&q->kv_valid, (uint32_t)(random_u64(&r) % (2 * CONTEXT)));
        kept_check(&w.slots);
        q->stats.resumes = 1;
        uint32_t slot = start(1, q);
        ck_assert_uint_lt(slot, w.head->slots);
        ck_assert_uint_le(atomic_load(&q->kv_valid), 300);
        ck_assert_uint_le(slots_bytes(), kv_sequence_bytes(&w.shape, CONTEXT));
        finish(1, slot, q, true);
        ck_assert_uint_le(slots_bytes(), kv_sequence_bytes(&w.shape, CONTEXT));
    }
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("kept");
    tcase_add_checked_fixture(t, setup, rig_close);
    tcase_add_test(t, prefix_ends_at_the_first_difference);
    tcase_add_test(t, a_longer_prompt_reuses_all);
    tcase_add_test(t, several_are_kept);
    tcase_add_test(t, borrowed_rows_are_given_back);
    tcase_add_test(t, spare_memory_is_given_back);
    tcase_add_test(t, a_copy_without_owner_is_not_kept);
    tcase_add_test(t, rows_of_an_answer_are_not_cached);
    tcase_add_test(t, a_private_prefix_is_not_copied);
    tcase_add_test(t, running_ones_share_the_memory);
    tcase_add_test(t, an_empty_sequence_displaces_nothing);
    tcase_add_loop_test(t, requests_leave_no_memory, 0, 2);
    tcase_add_test(t, conversations_take_turns);
    tcase_add_test(t, a_side_request_takes_no_conversation);
    tcase_add_test(t, a_side_request_borrows_rows);
    tcase_add_test(t, side_requests_go_first);
    tcase_add_test(t, a_cut_slot_has_no_more_memory_than_it_needs);
    tcase_add_test(t, some_sequences_neither_use_nor_leave);
    tcase_add_test(t, rows_of_another_lossy_preset_are_not_used);
    tcase_add_test(t, memory_is_bounded_and_yields);
    tcase_add_test(t, a_successor_continues);
    tcase_add_test(t, contradictory_slots_are_emptied);
    return rig_main("kept", t);
}
