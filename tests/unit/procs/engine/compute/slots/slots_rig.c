/* SPDX-License-Identifier: Apache-2.0 */
/* Makes slots over their own kv segment, without a core. */
#include "tests/unit/procs/engine/compute/slots/slots_rig.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOOT 9u

struct rig w;

void rig_open(const struct model_hparams *h, uint32_t context, uint32_t chunk, uint32_t checkpoints)
{
    struct kv_counts counts = {.sequences = 1, .kept = 1, .checkpoints = checkpoints};
    rig_open_counts(h, context, chunk, &counts);
}

void rig_open_counts(const struct model_hparams *h, uint32_t context, uint32_t chunk,
                     const struct kv_counts *counts)
{
    struct segment s;
    struct error error;
    memset(&w, 0, sizeof w);
    w.model.hparams = *h;
    w.shape = kv_shape_of(&w.model.hparams, KV_TYPE_F16, context, chunk, counts);
    ck_assert_msg(segment_create(SEGMENT_KV, "slots", BOOT, kv_bytes(&w.shape), &s, &error) == 0,
                  "%s", error.text);
    kv_format(s.base, &w.shape);
    int fd = dup(s.fd);
    segment_detach(&s);
    ck_assert_msg(kv_attach(fd, true, BOOT, &w.child.kv, &error) == 0, "%s", error.text);
    ck_assert_msg(kv_check(&w.child.kv, h, chunk, &error) == 0, "%s", error.text);
    w.procs = calloc(1, sizeof *w.procs);
    ck_assert_ptr_nonnull(w.procs);
    params_defaults(&w.params);
    w.child.model = &w.model;
    w.child.params = &w.params;
    w.child.process = &w.row;
    w.child.procs.head = w.procs;
    w.slots.child = &w.child;
    w.slots.beat_ns = &w.beat_ns;
    w.head = w.child.kv.head;
}

void rig_close(void)
{
    segment_detach(&w.child.kv.segment);
    free(w.procs);
}

struct kv_request *rig_submit(uint32_t row, uint64_t id, uint32_t tokens, uint32_t differs,
                              uint32_t shift)
{
    struct error error;
    struct kv_request *q = &w.head->request[row];
    uint32_t context = w.head->context;
    ck_assert_int_eq(kv_log_allocate(&w.child.kv, row, context, &error), 0);
    _Atomic uint32_t *log = kv_log(&w.child.kv, row);
    for (uint32_t i = 0; i < context; i++)
        atomic_store(&log[i], (i + (i >= differs ? shift : 0)) % w.model.hparams.vocab);
    memset(&q->stats, 0, sizeof q->stats);
    q->flags = 0;
    atomic_store(&q->id, id);
    atomic_store(&q->prompt_tokens, tokens);
    atomic_store(&q->log_tokens, tokens);
    atomic_store(&q->kv_valid, 0);
    atomic_store(&q->state, KV_RUNNING);
    return q;
}

uint32_t rig_start(uint32_t row, struct kv_request *q, uint32_t tokens)
{
    uint32_t slot = kept_take(&w.slots, q, kv_log(&w.child.kv, row));
    rig_extend(slot, q, tokens);
    return slot;
}

void rig_extend(uint32_t slot, struct kv_request *q, uint32_t tokens)
{
    struct error error;
    atomic_store(&q->log_tokens, tokens);
    ck_assert_int_eq(kept_resize(&w.slots, slot, tokens, &error), 0);
}

void rig_leave(uint32_t row, uint64_t id, uint32_t tokens, uint32_t rows)
{
    uint32_t has = KV_TILE;
    uint64_t both = kv_tokens_bytes(&w.child.kv, rows) + kept_bytes_beside(&w.slots, tokens, rows);
    uint32_t slot = rig_start(row, rig_submit(row, id, has, 0, 55), has);
    for (; kept_has_room(&w.slots, both); has += KV_TILE / 2)
        rig_extend(slot, &w.head->request[row], has);
    ck_assert(kept_has_room(&w.slots, kv_tokens_bytes(&w.child.kv, tokens)));
}

void rig_end(uint32_t row, uint32_t slot, struct kv_request *q, bool keep)
{
    kept_end(&w.slots, slot, q, kv_log(&w.child.kv, row), keep);
    atomic_store(&q->state, KV_DONE);
}

int rig_main(const char *name, TCase *t)
{
    Suite *s = suite_create(name);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
