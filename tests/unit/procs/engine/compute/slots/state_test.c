/* SPDX-License-Identifier: Apache-2.0 */
/* Versions of the recurrent state: a pass reads the state of the rows that are committed, wherever
 * compute was killed before; a prompt continues from a checkpoint; memory stays within what the
 * ledger reserves. */

#include "lib/base/random.h"
#include "tests/unit/procs/engine/compute/slots/slots_rig.h"

#define CONTEXT     400
#define CHECKPOINTS 3
#define STATES      (KV_STATES_WORKING + CHECKPOINTS)
#define EVERY       64
#define CHUNK       50

static struct model_hparams shape = {.layers = 3,
                                     .hidden = 64,
                                     .heads = 2,
                                     .kv_heads = 2,
                                     .head_size = 16,
                                     .vocab = 100,
                                     .conv_taps = 4,
                                     .delta_size = 16,
                                     .delta_k_heads = 2,
                                     .delta_v_heads = 4};

static void setup_of(uint32_t sequences, uint32_t states)
{
    struct kv_counts counts = {
        .sequences = sequences, .kept = 1, .checkpoints = states - sequences * KV_STATES_WORKING};
    shape.layer_kind[0] = shape.layer_kind[2] = LAYER_RECURRENT;
    shape.layer_mixer[0] = shape.layer_mixer[2] = MIXER_DELTANET;
    rig_open_counts(&shape, CONTEXT, CHUNK, &counts);
    w.params.state_checkpoints = counts.checkpoints;
    w.params.checkpoint_tokens = EVERY;
}

static void setup_with(uint32_t states)
{
    setup_of(1, states);
}

static void setup(void)
{
    setup_with(STATES);
}

static struct kv_request *submit(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs)
{
    return rig_submit(row, id, tokens, differs, (uint32_t)id);
}

static uint32_t start(uint32_t row, struct kv_request *q)
{
    return rig_start(row, q, atomic_load(&q->log_tokens));
}

/* A state of `rows` tokens of a log: a sum over them, in its first and last element. */
static uint64_t state_of(uint32_t row, uint32_t rows)
{
    uint64_t sum = 1;
    for (uint32_t i = 0; i < rows; i++)
        sum = sum * 31 + atomic_load(&kv_log(&w.child.kv, row)[i]);
    return sum;
}

enum stop { STOP_NEVER, STOP_BEGUN, STOP_HALF, STOP_WRITTEN, STOP__COUNT };

/* One pass of at most `rows` rows, which may be killed in the middle. */
static void pass(uint32_t row, uint32_t slot, struct kv_request *q, uint32_t rows, enum stop stop)
{
    struct error error;
    struct state_pass p;
    uint32_t position = atomic_load(&q->kv_valid);
    size_t last = (size_t)model_state_bytes(&shape) / sizeof(uint64_t) - 1;
    rows = state_rows(&w.slots, q, position, rows);
    ck_assert_uint_ge(rows, 1);
    ck_assert_int_eq(state_begin(&w.slots, slot, q, position, rows, &p, &error), 0);
    if (position == 0)
        ck_assert_ptr_null(p.before);
    else {
        const uint64_t *before = p.before;
        ck_assert_uint_eq(before[0], state_of(row, position));
        ck_assert_uint_eq(before[last], state_of(row, position));
        ck_assert_ptr_ne(p.before, p.after);
    }
    uint64_t *after = p.after;
    if (stop != STOP_BEGUN)
        after[0] = state_of(row, position + rows);
    if (stop == STOP_BEGUN || stop == STOP_HALF)
        return;
    after[last] = after[0];
    state_end(&w.slots, slot, q, &p, position + rows);
    if (stop == STOP_NEVER)
        atomic_store(&q->kv_valid, position + rows);
    ck_assert_uint_le(state_bytes(&w.slots, STATE_NONE), kv_states_bytes(&w.shape, w.head->states));
}

static void compute(uint32_t row, uint32_t slot, struct kv_request *q, uint32_t rows)
{
    while (atomic_load(&q->kv_valid) < rows) {
        uint32_t left = rows - atomic_load(&q->kv_valid);
        bool prompt = atomic_load(&q->kv_valid) < atomic_load(&q->prompt_tokens);
        pass(row, slot, q, !prompt ? 1 : left < CHUNK ? left : CHUNK, STOP_NEVER);
    }
}

/* A prompt and `more` tokens of a response; returns the rows that were kept. */
static uint32_t run(uint32_t row, uint64_t id, uint32_t tokens, uint32_t more, uint32_t differs)
{
    struct kv_request *q = submit(row, id, tokens, differs);
    uint32_t slot = start(row, q), reused = atomic_load(&q->kv_valid);
    ck_assert_uint_eq(q->stats.cached, reused);
    rig_extend(slot, q, tokens + more + 1);
    compute(row, slot, q, tokens + more);
    rig_end(row, slot, q, true);
    return reused;
}

START_TEST(a_prompt_continues_from_a_checkpoint)
{
    ck_assert_uint_eq(run(0, 1, 150, 20, CONTEXT), 0);
    ck_assert_uint_eq(run(1, 2, 200, 5, CONTEXT), 170); /* the end of the first */
    ck_assert_uint_eq(run(2, 3, 230, 5, 195), 192);     /* before the end of the prompt */
    ck_assert_uint_eq(run(3, 4, 230, 5, 195), 170); /* where the second began: 192 was given up */
    /* One is kept, the first: it has been used more often. Where others began stays, too. */
    ck_assert_uint_eq(run(4, 4, 230, 9, 195), 170);
    ck_assert_uint_eq(run(5, 5, 40, 5, 0), 0);
}
END_TEST

/* Long responses do not displace the checkpoint near the end of the prompt. */
START_TEST(the_prompt_keeps_its_checkpoint)
{
    run(0, 1, 60, 330, CONTEXT);
    ck_assert_uint_eq(run(1, 2, 100, 5, 60), 52);
    run(2, 3, 60, 330, 0);
    ck_assert_uint_gt(run(3, 3, 392, 2, 0), 320);
}
END_TEST

START_TEST(memory_is_what_is_reserved)
{
    uint64_t one = kv_states_bytes(&w.shape, 1),
             empty = segment_allocated_bytes(w.child.kv.segment.fd);
    ck_assert_uint_ge(one, 2 * (3 * 128 + 4 * 16 * 16) * sizeof(float));
    ck_assert_uint_eq(kv_sequence_bytes(&w.shape, 64), 2 * 4096); /* one layer has keys */
    struct kv_request *q = submit(0, 1, 300, CONTEXT);
    uint32_t slot = start(0, q);
    compute(0, slot, q, 300);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes), 0);
    /* during a sequence, too: the ledger takes other blocks of the segment for logs */
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_bytes),
                      segment_allocated_bytes(w.child.kv.segment.fd) - empty - 2 * PAGE_BYTES);
    ck_assert_uint_gt(counter_get(&w.row, CTR_COMPUTE_state_bytes), 2 * one);
    rig_end(0, slot, q, true);
    uint64_t states = counter_get(&w.row, CTR_COMPUTE_state_bytes);
    ck_assert_uint_eq(states, STATES * one); /* checkpoints, and the end */
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_bytes),
                      states + kv_sequence_bytes(&w.shape, 300));
    uint64_t logs = 3 * PAGE_BYTES;
    ck_assert_uint_eq(segment_allocated_bytes(w.child.kv.segment.fd) - empty - logs,
                      counter_get(&w.row, CTR_COMPUTE_kv_bytes));
    w.params.keep_kv = kv_sequence_bytes(&w.shape, 300) + 2 * one;
    run(1, 2, 300, 0, 0);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_state_bytes), 2 * one);
    w.params.keep_kv = one / 2;
    run(1, 3, 300, 0, 0);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_state_bytes), 0);
}
END_TEST

/* Kills at every point of passes; the state of the committed rows is always there. */
START_TEST(kills_at_every_point)
{
    static const uint32_t states[] = {STATES, KV_STATES_WORKING + 1, KV_STATES_WORKING + 32};
    struct random r;
    rig_close();
    setup_with(states[_i]);
    random_seed(&r, 7, 0);
    for (uint32_t round = 1; round < 300; round++) {
        uint32_t row = round % 8, tokens = 20 + (uint32_t)(random_u64(&r) % 300);
        uint32_t differs = random_u64(&r) % 3 ? (uint32_t)(random_u64(&r) % CONTEXT) : CONTEXT;
        struct kv_request *q = submit(row, round, tokens, differs);
        uint32_t slot = start(row, q), end = tokens + (uint32_t)(random_u64(&r) % 60);
        rig_extend(slot, q, end + 1);
        while (atomic_load(&q->kv_valid) < end) {
            enum stop stop = random_u64(&r) % 8 ? STOP_NEVER : random_u64(&r) % STOP__COUNT;
            uint32_t before = atomic_load(&q->kv_valid), left = end - before;
            uint32_t rows = before >= tokens ? 1 : 1 + (uint32_t)(random_u64(&r) % CHUNK);
            pass(row, slot, q, rows < left ? rows : left, stop);
            if (stop == STOP_NEVER)
                continue;
            kept_check(&w.slots);
            q->stats.resumes = 1;
            ck_assert_uint_eq(start(row, q), slot);
            ck_assert_uint_eq(atomic_load(&q->kv_valid), before);
        }
        rig_end(row, slot, q, true);
        if (random_u64(&r) % 4 == 0)
            kept_check(&w.slots);
        ck_assert_uint_le(state_bytes(&w.slots, STATE_NONE),
                          kv_states_bytes(&w.shape, w.head->states));
    }
}
END_TEST

/* A sequence that leaves nothing has two versions, and its passes are as long as those of other
 * models. */
START_TEST(without_use_there_are_no_checkpoints)
{
    rig_close();
    setup_with(KV_STATES_WORKING);
    w.params.keep_kv = 0;
    for (uint32_t id = 1; id <= 4; id++) {
        struct kv_request *q = submit(0, id, 300, CONTEXT);
        if (id > 1)
            w.params.keep_kv = UINT64_MAX / 4;
        q->flags = id == 2 ? KV_FLAG_NO_CACHE : id == 3 ? KV_FLAG_SCORE_PROMPT : 0;
        w.params.deterministic = id == 4;
        uint32_t slot = start(0, q);
        ck_assert_uint_eq(state_rows(&w.slots, q, 40, 280), 280);
        rig_extend(slot, q, 331);
        compute(0, slot, q, 330);
        ck_assert_uint_eq(state_bytes(&w.slots, STATE_NONE), kv_states_bytes(&w.shape, 2));
        rig_end(0, slot, q, true);
        ck_assert_uint_eq(state_bytes(&w.slots, STATE_NONE), 0);
    }
}
END_TEST

/* ---- several sequences ---- */

#define SEQUENCES 3

struct running {
    struct kv_request *q; /* NULL: none */
    uint32_t row, slot, end, rows;
    struct state_pass p;
};

/* False: the others have the memory; it waits. */
static bool begin(struct running *s, uint32_t most)
{
    struct error error;
    uint32_t position = atomic_load(&s->q->kv_valid), left = s->end - position;
    s->rows = state_rows(&w.slots, s->q, position, most < left ? most : left);
    bool fits = kept_fits(&w.slots, s->slot, position + s->rows);
    int rc = kept_resize(&w.slots, s->slot, position + s->rows, &error);
    ck_assert_int_eq(rc == 0, fits);
    if (rc != 0) {
        ck_assert_int_eq(error.code, ERR_BUSY);
        return false;
    }
    ck_assert_int_eq(state_begin(&w.slots, s->slot, s->q, position, s->rows, &s->p, &error), 0);
    ck_assert_int_eq(s->p.before == NULL, position == 0);
    return true;
}

/* After all of the pass have begun, what each reads is there, and what each writes is its own. */
static void commit(struct running *s)
{
    uint32_t position = atomic_load(&s->q->kv_valid);
    size_t last = (size_t)model_state_bytes(&shape) / sizeof(uint64_t) - 1;
    const uint64_t *before = s->p.before;
    uint64_t *after = s->p.after;
    ck_assert(position == 0 ||
              (before[0] == state_of(s->row, position) && before[last] == before[0]));
    ck_assert_uint_eq(atomic_load(&w.head->state[s->p.version].allocated), 1);
    after[0] = after[last] = state_of(s->row, position + s->rows);
    state_end(&w.slots, s->slot, s->q, &s->p, position + s->rows);
    atomic_store(&s->q->kv_valid, position + s->rows);
}

static void resume(struct running *s)
{
    uint32_t valid = atomic_load(&s->q->kv_valid);
    s->q->stats.resumes = 1;
    ck_assert_uint_eq(kept_take(&w.slots, s->q, kv_log(&w.child.kv, s->row)), s->slot);
    ck_assert_uint_eq(atomic_load(&s->q->kv_valid), valid);
}

static void finish(struct running *s, bool keep)
{
    rig_end(s->row, s->slot, s->q, keep);
    s->q = NULL;
}

static void arrive(struct running *s, uint32_t row, struct random *r)
{
    static uint64_t id;
    uint32_t tokens = 20 + (uint32_t)(random_u64(r) % 300);
    s->row = row;
    s->end = tokens + (uint32_t)(random_u64(r) % 60);
    s->q = submit(row, ++id, tokens, (uint32_t)(random_u64(r) % CONTEXT));
    s->slot = kept_take(&w.slots, s->q, kv_log(&w.child.kv, row));
    atomic_store(&s->q->log_tokens, s->end + 1);
}

/* How many passes began; of the sequences that run, only one may need all of the memory. */
static uint32_t begin_some(struct running all[SEQUENCES], uint32_t members, struct random *r,
                           uint32_t *begun)
{
    uint32_t waited = 0, running = 0;
    *begun = 0;
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        running += all[i].q != NULL;
        if (all[i].q == NULL || !(members & 1u << i))
            continue;
        if (begin(&all[i], 1 + (uint32_t)(random_u64(r) % CHUNK)))
            *begun |= 1u << i;
        else
            waited++;
    }
    ck_assert(waited == 0 || running > 1);
    return waited;
}

/* Sequences that run at the same time and share the memory of one, whose passes are one or not,
 * that end while others compute, and that are killed together: each reads its own state. */
START_TEST(sequences_run_beside_each_other)
{
    struct running all[SEQUENCES] = {0};
    struct random r;
    uint32_t reused = 0, waited = 0, ended = 0;
    rig_close();
    setup_of(SEQUENCES, SEQUENCES * KV_STATES_WORKING + (uint32_t)_i);
    random_seed(&r, 9, (uint64_t)_i);
    for (uint32_t round = 0; round < 4000; round++) {
        for (uint32_t i = 0; i < SEQUENCES; i++)
            if (all[i].q == NULL && random_u64(&r) % 4 == 0) {
                arrive(&all[i], i, &r);
                reused += atomic_load(&all[i].q->kv_valid) > 0;
            }
        uint32_t begun, members = (uint32_t)(random_u64(&r) % (1u << SEQUENCES));
        uint32_t waits = begin_some(all, members, &r, &begun);
        waited += waits;
        for (uint32_t i = 0; i < SEQUENCES; i++) /* others end while these compute */
            if (all[i].q && !(begun & 1u << i) && random_u64(&r) % (waits ? 4 : 16) == 0)
                finish(&all[i], random_u64(&r) % 2);
        bool killed = random_u64(&r) % 8 == 0;
        if (killed)
            kept_check(&w.slots);
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            if (all[i].q && killed)
                resume(&all[i]);
            else if (all[i].q && (begun & 1u << i))
                commit(&all[i]);
            if (all[i].q && atomic_load(&all[i].q->kv_valid) == all[i].end) {
                finish(&all[i], true);
                ended++;
            }
        }
        ck_assert_uint_le(counter_get(&w.row, CTR_COMPUTE_kv_bytes), kv_reserved_bytes(&w.shape));
    }
    ck_assert_uint_gt(reused, 10);
    ck_assert_uint_gt(waited, 10);
    ck_assert_uint_gt(ended, 50);
}
END_TEST

/* If the whole sequence is more than --keep-kv, its beginning up to a checkpoint is kept. */
START_TEST(a_limit_keeps_the_beginning)
{
    uint64_t one = kv_states_bytes(&w.shape, 1);
    w.params.keep_kv = kv_sequence_bytes(&w.shape, 128) + one;
    run(0, 1, 200, 0, CONTEXT);
    ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes), w.params.keep_kv);
    ck_assert_uint_eq(run(1, 2, 200, 0, CONTEXT), 128);
    w.params.keep_kv += one;
    run(2, 3, 200, 0, 0);
    ck_assert_uint_le(counter_get(&w.row, CTR_COMPUTE_kv_kept_bytes), w.params.keep_kv);
    ck_assert_uint_gt(run(3, 3, 200, 0, 0), 0);
}
END_TEST

/* Killed before the slot is kept: the successor has fewer rows, and keeps these. */
START_TEST(killed_while_the_beginning_is_kept)
{
    struct kv_request *q = submit(0, 1, 200, CONTEXT);
    uint32_t slot = start(0, q);
    compute(0, slot, q, 200);
    state_keep(&w.slots, slot, 128, kv_states_bytes(&w.shape, 1));
    kept_check(&w.slots);
    q->stats.resumes = 1;
    ck_assert_uint_eq(start(0, q), slot);
    ck_assert_uint_eq(atomic_load(&q->kv_valid), 128);
    rig_end(0, slot, q, true);
    ck_assert_uint_eq(run(1, 2, 200, 0, CONTEXT), 128);
}
END_TEST

/* A pass that failed leaves no memory behind, whether its sequence is kept or not. */
START_TEST(a_failed_pass_leaves_no_memory)
{
    for (uint32_t id = 1; id <= 3; id++) {
        struct kv_request *q = submit(0, id, 150, CONTEXT);
        uint32_t slot = start(0, q);
        compute(0, slot, q, 64);
        pass(0, slot, q, 50, STOP_HALF);
        bool keep = id == 2;
        if (!keep)
            atomic_store(&q->kv_valid, 0);
        kept_end(&w.slots, slot, q, kv_log(&w.child.kv, 0), keep);
        atomic_store(&q->state, KV_FAILED);
        ck_assert_uint_eq(state_bytes(&w.slots, STATE_NONE), kv_states_bytes(&w.shape, keep));
        ck_assert_uint_eq(counter_get(&w.row, CTR_COMPUTE_state_bytes),
                          kv_states_bytes(&w.shape, keep));
    }
}
END_TEST

/* Whatever is in the segment: a successor continues from a version that fits, or from the start. */
START_TEST(contradictory_versions_are_not_used)
{
    struct random r;
    random_seed(&r, 8, 0);
    for (int round = 0; round < 2000; round++) {
        for (uint32_t i = 0; i < KV_REQUESTS_MAX; i++)
            atomic_store(&w.head->request[i].state, KV_FREE);
        run(0, 1, 100, 0, CONTEXT);
        struct kv_request *q = submit(1, 2, 300, CONTEXT);
        uint32_t slot = start(1, q);
        compute(1, slot, q, 200);
        for (uint32_t i = 0; i < STATES; i++) {
            struct kv_version *s = &w.head->state[i];
            if (random_u64(&r) % 3 == 0)
                atomic_store(&s->tag, random_u64(&r) % 2 ? random_u64(&r)
                                                         : KV_STATE_TAG(random_u64(&r) % 3,
                                                                        random_u64(&r) % 301, 1));
            if (random_u64(&r) % 8 == 0)
                atomic_store(&s->allocated, (uint32_t)(random_u64(&r) % 2));
        }
        kept_check(&w.slots);
        q->stats.resumes = 1;
        slot = start(1, q);
        uint32_t valid = atomic_load(&q->kv_valid);
        ck_assert_uint_le(valid, 200);
        struct error error;
        struct state_pass p;
        ck_assert_int_eq(state_begin(&w.slots, slot, q, valid, 1, &p, &error), 0);
        ck_assert_int_eq(p.before != NULL, valid > 0);
        rig_end(1, slot, q, false);
    }
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("state");
    tcase_add_checked_fixture(t, setup, rig_close);
    tcase_add_test(t, a_prompt_continues_from_a_checkpoint);
    tcase_add_test(t, the_prompt_keeps_its_checkpoint);
    tcase_add_test(t, memory_is_what_is_reserved);
    tcase_add_loop_test(t, kills_at_every_point, 0, 3);
    tcase_add_loop_test(t, sequences_run_beside_each_other, 0, 5);
    tcase_add_test(t, without_use_there_are_no_checkpoints);
    tcase_add_test(t, a_limit_keeps_the_beginning);
    tcase_add_test(t, a_failed_pass_leaves_no_memory);
    tcase_add_test(t, killed_while_the_beginning_is_kept);
    tcase_add_test(t, contradictory_versions_are_not_used);
    return rig_main("state", t);
}
