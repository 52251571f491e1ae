/* SPDX-License-Identifier: Apache-2.0 */
/* kv and the process table. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "shm/kv/kv.h"
#include "shm/table/counters.h"
#include "shm/table/process_table.h"
#include "tests/unit/shm/shm_test.h"

static const struct model_hparams shape = {.layers = 3, .kv_heads = 2, .head_size = 20};
#define CONTEXT  1000
#define WHOLE    1024         /* positions of whole tiles */
#define POSITION (2 * 20 * 2) /* bytes of K (or V) of one position and layer */

static struct kv kv_of(const struct kv_shape *kv_shape)
{
    struct segment s = test_segment(SEGMENT_KV, kv_bytes(kv_shape));
    struct kv kv;
    struct error e = {.text = ""};
    kv_format(s.base, kv_shape);
    int fd = dup(s.fd);
    segment_detach(&s);
    ck_assert_msg(kv_attach(fd, true, BOOT, &kv, &e) == 0, "%s", e.text);
    return kv;
}

static const struct kv_counts one = {.sequences = 1, .kept = 1};

static struct kv kv_open(enum kv_type type)
{
    struct kv_shape kv_shape = kv_shape_of(&shape, type, CONTEXT, 256, &one);
    return kv_of(&kv_shape);
}

/* A ring of 192 positions in layer 1: 128 + 65 - 1. */
static struct kv kv_with_rings(struct model_hparams *h)
{
    *h = shape;
    h->window = 128;
    h->layer_kind[1] = LAYER_WINDOW;
    struct kv_counts counts = {.sequences = 1, .kept = 1, .checkpoints = 1};
    struct kv_shape kv_shape = kv_shape_of(h, KV_TYPE_F16, CONTEXT, 65, &counts);
    ck_assert_uint_eq(kv_shape.ring, 192);
    return kv_of(&kv_shape);
}

/* Running sequences, and kept ones. */
static const struct kv_counts counts_of[] = {{1, 0, 0, 0, 0},
                                             {1, 1, 0, 0, 0},
                                             {2, 0, 0, 0, 0},
                                             {1, 2, 0, 0, 0},
                                             {2, 6, 0, 0, 0},
                                             {8, 0, 0, 0, 0},
                                             {1, KV_SLOTS_MAX - 1, 0, 0, 0},
                                             {KV_SEQUENCES_MAX, 0, 0, 0, 0}};
#define COUNTS ((int)(sizeof counts_of / sizeof *counts_of))

START_TEST(kv_regions_do_not_overlap)
{
    const struct kv_counts *counts = &counts_of[_i];
    struct kv_shape kv_shape = kv_shape_of(&shape, KV_TYPE_F16, CONTEXT, 256, counts);
    struct kv kv = kv_of(&kv_shape);
    uint32_t slots = counts->sequences + counts->kept;
    ck_assert_uint_eq(kv.slots, slots);
    ck_assert_uint_eq(kv.sequences, counts->sequences);
    ck_assert((const char *)&kv.head->slot[slots] <= (const char *)kv_log(&kv, 0));
    /* however many run, they share the memory of one */
    ck_assert_uint_eq(kv.pool_bytes, kv_sequence_bytes(&kv_shape, CONTEXT));
    ck_assert_uint_eq(kv_reserved_bytes(&kv_shape), kv.pool_bytes);
    const char *at = (const char *)kv_log(&kv, 0);
    for (uint32_t row = 0; row < KV_REQUESTS_MAX; row++, at += PAGE_BYTES)
        ck_assert_ptr_eq((const char *)kv_log(&kv, row), at);
    for (uint32_t row = 0; row < KV_REQUESTS_MAX; row++, at += PAGE_BYTES)
        ck_assert_ptr_eq((const char *)kv_logprobs(&kv, row), at);
    const uint64_t tops = align_up(CONTEXT * KV_TOPS_MAX * sizeof(struct kv_top), PAGE_BYTES);
    for (uint32_t row = 0; row < KV_REQUESTS_MAX; row++, at += tops)
        ck_assert_ptr_eq((const char *)kv_tops(&kv, row, 0), at);
    for (uint32_t row = 0; row < KV_REQUESTS_MAX; row++)
        ck_assert_ptr_eq((const char *)kv_extra(&kv, row),
                         at + row * align_up(sizeof(struct kv_extra), PAGE_BYTES));
    at += KV_REQUESTS_MAX * align_up(sizeof(struct kv_extra), PAGE_BYTES);
    for (uint32_t slot = 0; slot < slots; slot++, at += PAGE_BYTES)
        ck_assert_ptr_eq((const char *)kv_slot_log(&kv, slot), at);
    uint64_t region = (WHOLE * POSITION + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    for (uint32_t slot = 0; slot < slots; slot++)
        for (uint32_t layer = 0; layer < 3; layer++, at += 2 * region) {
            ck_assert_ptr_eq((const char *)kv_keys(&kv, slot, layer), at);
            ck_assert_ptr_eq((const char *)kv_values(&kv, slot, layer), at + region);
        }
    ck_assert_uint_le((uint64_t)(at - (const char *)kv.segment.base), kv.segment.bytes);
    segment_detach(&kv.segment);
}
END_TEST

START_TEST(kv_slots_have_the_stated_size)
{
    struct kv kv = kv_open((enum kv_type)_i);
    struct error e;
    uint32_t slot = kv.slots - 1;
    uint64_t empty = segment_allocated_bytes(kv.segment.fd);
    struct kv_shape kv_shape = kv_shape_of(&shape, (enum kv_type)_i, CONTEXT, 256, &one);
    static const uint32_t sizes[] = {1, 112, 1000, 999, 52, 51, 600, 0, 7};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t tokens = sizes[i];
        ck_assert_int_eq(kv_slot_resize(&kv, slot, tokens, NULL, NULL, &e), 0);
        uint64_t bytes = segment_allocated_bytes(kv.segment.fd) - empty;
        ck_assert_uint_eq(bytes, kv_sequence_bytes(&kv_shape, tokens));
        for (uint32_t layer = 0; layer < 3; layer++) {
            size_t tiles =
                (size_t)model_kv_bytes(&shape, layer, KV_SIDE_KEYS, (enum kv_type)_i, tokens);
            memset(kv_keys(&kv, slot, layer), 1, tiles);
            memset(kv_values(&kv, slot, layer), 2, tiles);
        }
        ck_assert_uint_eq(segment_allocated_bytes(kv.segment.fd) - empty, bytes);
    }
    kv_slot_release(&kv, slot, NULL, NULL);
    ck_assert_uint_eq(segment_allocated_bytes(kv.segment.fd), empty);
    ck_assert_int_eq(kv_log_allocate(&kv, 63, CONTEXT, &e), 0);
    ck_assert_uint_eq(segment_allocated_bytes(kv.segment.fd) - empty, 2 * PAGE_BYTES);
    kv_log_release(&kv, 63);
    ck_assert_int_eq(kv_slot_log_allocate(&kv, slot, CONTEXT, &e), 0);
    ck_assert_uint_eq(segment_allocated_bytes(kv.segment.fd) - empty, PAGE_BYTES);
    kv_slot_log_cut(&kv, slot, 0);
    ck_assert_uint_eq(segment_allocated_bytes(kv.segment.fd), empty);
    segment_detach(&kv.segment);
}
END_TEST

static void count(void *arg)
{
    ++*(unsigned *)arg;
}

/* Gigabytes take seconds, to free as well. */
START_TEST(kv_memory_reports_progress)
{
    struct kv kv = kv_open(KV_TYPE_F16);
    struct error e;
    unsigned calls = 0, regions = 2 * shape.layers;
    ck_assert_int_eq(kv_slot_resize(&kv, 0, CONTEXT, count, &calls, &e), 0);
    ck_assert_uint_eq(calls, regions);
    ck_assert_int_eq(kv_slot_resize(&kv, 0, 100, count, &calls, &e), 0);
    ck_assert_uint_eq(calls, 2 * regions);
    kv_slot_release(&kv, 0, count, &calls);
    ck_assert_uint_eq(calls, 3 * regions);
    segment_detach(&kv.segment);
}
END_TEST

START_TEST(kv_bad_shape)
{
    struct kv kv = kv_open(KV_TYPE_F16), other;
    struct error e;
    kv.head->context = CONTEXT * 8;
    ck_assert_int_eq(kv_attach(kv.segment.fd, true, BOOT, &other, &e), -1);
    ck_assert_msg(strstr(e.text, "shape does not match") != NULL, "%s", e.text);
    kv.head->context = CONTEXT;
    kv.head->kv_type = KV_TYPE__COUNT;
    ck_assert_int_eq(kv_attach(kv.segment.fd, true, BOOT, &other, &e), -1);
    segment_detach(&kv.segment);
}
END_TEST

/* Two slots of 2^63 - logs / 2 bytes: in 64 bits they end where the logs begin. */
START_TEST(kv_sizes_overflow)
{
    struct kv kv = kv_open(KV_TYPE_F16), other;
    struct kv_head *h = kv.head;
    struct error e;
    h->context = 1u << 31;
    h->layers = MODEL_LAYERS_MAX;
    memset(h->layer_kind, LAYER_FULL, sizeof h->layer_kind);
    h->layer_kind[0] = LAYER_WINDOW; /* has the rest of the sum of all tiles */
    const uint64_t log = (uint64_t)h->context * 4, extras = h->slot_logs_offset - h->extras_offset;
    const uint64_t tops = log * KV_TOPS_MAX * 2;
    const uint64_t logs = (2 * KV_REQUESTS_MAX + 2) * log + KV_REQUESTS_MAX * tops + extras;
    const uint64_t slot = (UINT64_MAX - logs + 1) / 2, sum = slot / (h->context / KV_TILE);
    const uint64_t tile = sum / MODEL_LAYERS_MAX / 2, rest = sum - (h->layers - 1) * 2 * tile;
    for (int side = 0; side < 2; side++) {
        h->tile_bytes[LAYER_FULL][side] = (uint32_t)tile;
        h->tile_bytes[LAYER_WINDOW][side] = (uint32_t)(side ? rest - rest / 2 : rest / 2);
    }
    h->logprobs_offset = h->logs_offset + KV_REQUESTS_MAX * log;
    h->tops_offset = h->logprobs_offset + KV_REQUESTS_MAX * log;
    h->extras_offset = h->tops_offset + KV_REQUESTS_MAX * tops;
    h->slot_logs_offset = h->extras_offset + extras;
    h->kv_offset = h->logs_offset + logs;
    h->kv_slot_bytes = slot;
    h->states_offset = h->kv_offset + 2 * slot;
    ck_assert_uint_eq(h->states_offset, h->logs_offset);
    ck_assert_int_eq(kv_attach(kv.segment.fd, true, BOOT, &other, &e), -1);
    segment_detach(&kv.segment);
}
END_TEST

/* A state that no pass could write next to the one that it reads. */
START_TEST(kv_too_few_states)
{
    struct kv kv = kv_open(KV_TYPE_F16), other;
    struct error e;
    ck_assert_uint_ge(kv.segment.bytes, kv.head->states_offset);
    kv.head->kv_slot_bytes = 0;
    memset(kv.head->tile_bytes, 0, sizeof kv.head->tile_bytes);
    kv.head->states_offset = kv.head->kv_offset;
    kv.head->states = kv.head->states_reserved = KV_STATES_WORKING;
    kv.head->windows_offset = 64;
    kv.head->state_bytes = PAGE_BYTES;
    ck_assert_int_eq(kv_attach(dup(kv.segment.fd), true, BOOT, &other, &e), 0);
    segment_detach(&other.segment);
    kv.head->states = KV_STATES_WORKING - 1;
    ck_assert_int_eq(kv_attach(kv.segment.fd, true, BOOT, &other, &e), -1);
    segment_detach(&kv.segment);
}
END_TEST

/* Tiles of no bytes, so that no other size depends on the rings. */
START_TEST(kv_rings_that_do_not_fit)
{
    static const struct {
        uint32_t ring, window;
        int rc;
    } rows[] = {{192, 128, 0},        {0, 0, 0},
                {192, 192, 0},        {0, 128, -1},
                {193, 128, -1},       {192, 0, -1},
                {192, 193, -1},       {1024, 128, -1},
                {64, 128, -1},        {UINT32_MAX - 63, 1, -1},
                {192, UINT32_MAX, -1}};
    struct model_hparams h;
    struct kv kv = kv_with_rings(&h), other;
    struct error e;
    memset(kv.head->tile_bytes, 0, sizeof kv.head->tile_bytes);
    kv.head->kv_slot_bytes = kv.head->state_bytes = 0;
    kv.head->states_offset = kv.head->kv_offset;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv.head->ring = rows[i].ring;
        kv.head->window = rows[i].window;
        ck_assert_msg(kv_attach(dup(kv.segment.fd), true, BOOT, &other, &e) == rows[i].rc,
                      "a ring of %u, a window of %u", rows[i].ring, rows[i].window);
        if (rows[i].rc == 0)
            segment_detach(&other.segment);
    }
    segment_detach(&kv.segment);
}
END_TEST

/* Of the header, which another process wrote. */
START_TEST(kv_slots_that_do_not_fit)
{
    static const struct {
        uint32_t slots, sequences;
    } rows[] = {{0, 0},         {0, 1}, {1, 2},
                {2, 0},         {2, 3}, {2, UINT32_MAX},
                {3, 1},         {1, 1}, {KV_SLOTS_MAX + 1, 1},
                {UINT32_MAX, 1}};
    struct kv kv = kv_open(KV_TYPE_F16), other;
    struct error e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kv.head->slots = rows[i].slots;
        kv.head->sequences = rows[i].sequences;
        ck_assert_msg(kv_attach(dup(kv.segment.fd), true, BOOT, &other, &e) == -1,
                      "%u slots, %u sequences", rows[i].slots, rows[i].sequences);
    }
    segment_detach(&kv.segment);
}
END_TEST

/* The size of the whole agrees with a number of slots that is not allowed. */
START_TEST(kv_more_slots_than_there_may_be)
{
    struct kv_counts counts = {.sequences = 1, .kept = KV_SLOTS_MAX - 1};
    struct kv_shape most = kv_shape_of(&shape, KV_TYPE_F16, CONTEXT, 256, &counts), more = most;
    struct kv kv, other;
    struct error e;
    more.slots++;
    struct segment s = test_segment(SEGMENT_KV, kv_bytes(&more));
    kv_format(s.base, &most);
    ck_assert_int_eq(kv_attach(dup(s.fd), true, BOOT, &kv, &e), 0);
    struct kv_head *h = kv.head;
    uint64_t log = h->kv_offset - h->slot_logs_offset;
    log /= most.slots;
    uint64_t head = kv_head_bytes(&more) - kv_head_bytes(&most);
    h->slots = more.slots;
    h->logs_offset += head;
    h->logprobs_offset += head;
    h->tops_offset += head;
    h->extras_offset += head;
    h->slot_logs_offset += head;
    h->kv_offset += head + log;
    h->states_offset += head + log + h->kv_slot_bytes;
    ck_assert_int_eq(kv_attach(dup(s.fd), true, BOOT, &other, &e), -1);
    segment_detach(&kv.segment);
    segment_detach(&s);
}
END_TEST

/* Every running sequence reads one version and writes another. */
START_TEST(kv_states_of_several_sequences)
{
    struct model_hparams h = shape;
    h.conv_taps = 4;
    h.hidden = 64;
    h.layer_kind[1] = LAYER_RECURRENT;
    h.layer_mixer[1] = MIXER_SHORTCONV;
    static const uint32_t tried[] = {1, 2, 3, 8, KV_SEQUENCES_MAX};
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
        uint32_t sequences = tried[i];
        struct kv_counts counts = {.sequences = sequences, .kept = 0, .checkpoints = 3};
        struct kv_shape kv_shape = kv_shape_of(&h, KV_TYPE_F16, CONTEXT, 256, &counts);
        ck_assert_uint_eq(kv_shape.states, 2 * sequences + 3);
        ck_assert_uint_eq(kv_shape.states_reserved, 2 + 3);
        counts.reserved = sequences;
        ck_assert_uint_eq(kv_shape_of(&h, KV_TYPE_F16, CONTEXT, 256, &counts).states_reserved,
                          2 * sequences + 3);
        ck_assert_uint_eq(kv_reserved_bytes(&kv_shape),
                          kv_sequence_bytes(&kv_shape, CONTEXT) + kv_states_bytes(&kv_shape, 5));
        struct kv kv = kv_of(&kv_shape), other;
        struct error e;
        ck_assert_uint_eq(kv.pool_bytes, kv_reserved_bytes(&kv_shape));
        static const struct {
            uint32_t states, reserved;
            int rc;
        } heads[] = {{0, 2, 0}, {1, 2, 0}, {0, 1, -1}, {0, 200, -1}, {1, UINT32_MAX, -1}};
        for (size_t j = 0; j < sizeof heads / sizeof *heads; j++) {
            kv.head->states = 2 * sequences + heads[j].states;
            kv.head->states_reserved = heads[j].reserved;
            ck_assert_int_eq(kv_attach(dup(kv.segment.fd), true, BOOT, &other, &e), heads[j].rc);
            if (heads[j].rc == 0)
                segment_detach(&other.segment);
        }
        kv.head->states_reserved = 2;
        kv.head->states = 2 * sequences - 1;
        ck_assert_int_eq(kv_attach(kv.segment.fd, true, BOOT, &other, &e), -1);
        segment_detach(&kv.segment);
    }
}
END_TEST

START_TEST(kv_logs_elsewhere)
{
    struct kv kv = kv_open(KV_TYPE_F16), other;
    struct error e;
    uint64_t *offsets[] = {&kv.head->logs_offset, &kv.head->logprobs_offset,
                           &kv.head->slot_logs_offset, &kv.head->tops_offset,
                           &kv.head->extras_offset};
    *offsets[_i] += PAGE_BYTES;
    ck_assert_int_eq(kv_attach(kv.segment.fd, true, BOOT, &other, &e), -1);
    segment_detach(&kv.segment);
}
END_TEST

START_TEST(kv_of_another_model)
{
    struct model_hparams h, other[6];
    struct kv kv = kv_with_rings(&h);
    struct error e;
    ck_assert_int_eq(kv_check(&kv, &h, 65, &e), 0);
    ck_assert_int_eq(kv_check(&kv, &h, 66, &e), -1);
    ck_assert_str_eq(e.text, "kv segment: rings of 192 positions, chunks of 66 tokens need 193");
    for (size_t i = 0; i < 6; i++)
        other[i] = h;
    other[0].layers = 4;
    other[1].head_size = 64;
    other[2].kv_heads = 3;
    other[3].window = 127;
    other[4].layer_kind[0] = LAYER_WINDOW;
    other[5].head_size_window = 64;
    for (size_t i = 0; i < 6; i++) {
        ck_assert_msg(kv_check(&kv, &other[i], 65, &e) == -1, "model %zu", i);
        ck_assert_str_eq(e.text, "kv segment: the shape is not that of the model");
    }
    segment_detach(&kv.segment);
}
END_TEST

/* A ring has whole chunks; a model with chunks may have no layer that attends to them. */
START_TEST(kv_of_chunks)
{
    struct model_hparams h, none = shape;
    struct kv kv = kv_with_rings(&h), all = kv_open(KV_TYPE_F16);
    struct error e;
    h.window_chunks = none.window_chunks = 1;
    ck_assert_uint_eq(kv_shape_of(&h, KV_TYPE_F16, CONTEXT, 65, &one).ring, 256);
    ck_assert_int_eq(kv_check(&kv, &h, 65, &e), -1);
    ck_assert_msg(strstr(e.text, "rings of 192 positions") != NULL, "%s", e.text);
    ck_assert_int_eq(kv_check(&all, &none, 65, &e), 0);
    segment_detach(&kv.segment);
    segment_detach(&all.segment);
}
END_TEST

START_TEST(procs_processes)
{
    bool used[SERVICE_PROCESSES_MAX] = {false};
    for (int s = 0; s < SERVICE__COUNT; s++)
        for (uint32_t n = 0; n < (s == SERVICE_LOADER ? SERVICE_LOADERS_MAX : 1u); n++) {
            uint32_t row = procs_index_of((enum service)s, n);
            ck_assert_uint_lt(row, SERVICE_PROCESSES_MAX);
            ck_assert(!used[row]);
            used[row] = true;
        }
    ck_assert_uint_eq(procs_index_of(SERVICE_SUPERVISOR, 0), 0);
}
END_TEST

START_TEST(procs_table)
{
    struct segment s = test_segment(SEGMENT_PROCS, procs_bytes());
    struct params params;
    struct procs p;
    struct error e = {.text = ""};
    params_defaults(&params);
    params.queue_depth = 33;
    procs_format(s.base, &params, 3);
    ck_assert_msg(procs_attach(dup(s.fd), true, BOOT, &p, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(p.head->params.queue_depth, 33);
    ck_assert_uint_eq(p.head->processes, SERVICE__COUNT - 1 + 3);
    const struct process *process = &p.head->process[procs_index_of(SERVICE_LOADER, 2)];
    ck_assert(process->service == SERVICE_LOADER && process->number == 2 &&
              process->incarnation == 0);
    counter_add(&p.head->process[0], CTR_SUPERVISOR_spawns, 2);
    ck_assert_uint_eq(
        counter_get(&((struct procs_head *)s.base)->process[0], CTR_SUPERVISOR_spawns), 2);
    segment_detach(&p.segment);
    ((struct procs_head *)s.base)->processes = 1000;
    ck_assert_int_eq(procs_attach(s.fd, true, BOOT, &p, &e), -1);
    segment_detach(&s);
}
END_TEST

START_TEST(counters_have_descriptions)
{
    size_t count;
    const struct counter_desc *c = counters_of(SERVICE_LOADER, &count);
    ck_assert_uint_eq(count, CTR_LOADER__COUNT);
    ck_assert_str_eq(c[CTR_LOADER_inflight].name, "inflight");
    ck_assert_str_eq(c[CTR_LOADER_inflight].kind, "GAUGE");
    ck_assert_str_eq(c[CTR_LOADER_inflight].unit, "reads");
    counters_of(SERVICE_CACHE, &count);
    ck_assert_uint_eq(count, CTR_CACHE__COUNT);
    counters_of(SERVICE_PREDICTOR, &count);
    ck_assert_uint_eq(count, CTR_PREDICTOR__COUNT);
    counters_of(SERVICE_COMPUTE, &count);
    ck_assert_uint_eq(count, CTR_COMPUTE__COUNT);
    c = counters_of(SERVICE_SUPERVISOR, &count);
    ck_assert_uint_eq(count, CTR_SUPERVISOR__COUNT);
    ck_assert_str_eq(c[CTR_SUPERVISOR_spawns].kind, "COUNTER");
}
END_TEST

START_TEST(texts)
{
    ck_assert_str_eq(proc_wait_text(WAIT_EXPERT), "waiting for an expert");
    ck_assert_str_eq(proc_wait_text(WAIT__COUNT), "?");
    ck_assert_str_eq(proc_state_text(PROC_FAILED), "failed");
    ck_assert_str_eq(proc_state_text(99), "?");
}
END_TEST

START_TEST(shared_texts)
{
    static struct shared_text t;
    char got[SHARED_TEXT_BYTES], text[SHARED_TEXT_BYTES + 10];
    shared_text_get(&t, got);
    ck_assert_str_eq(got, "");
    shared_text_set(&t, "signal 11");
    shared_text_get(&t, got);
    ck_assert_str_eq(got, "signal 11");
    memset(text, 'x', sizeof text);
    memcpy(text + SHARED_TEXT_BYTES - 2, "\xe2\x82\xac", 4); /* the cut would be inside of it */
    shared_text_set(&t, text);
    shared_text_get(&t, got);
    ck_assert_uint_eq(strlen(got), SHARED_TEXT_BYTES - 2);
    shared_text_set(&t, "");
    shared_text_get(&t, got);
    ck_assert_str_eq(got, "");
}
END_TEST

static void *rewrite(void *arg)
{
    char text[SHARED_TEXT_BYTES];
    for (int i = 0; i < 200000; i++) {
        memset(text, 'a' + i % 26, 60 + (size_t)i % 100);
        text[60 + i % 100] = 0;
        shared_text_set(arg, text);
    }
    return NULL;
}

/* Every text that is read is one that was written: one letter, repeated. */
START_TEST(shared_text_is_whole)
{
    static struct shared_text t;
    pthread_t writer;
    char got[SHARED_TEXT_BYTES];
    ck_assert_int_eq(pthread_create(&writer, NULL, rewrite, &t), 0);
    for (int i = 0; i < 200000; i++) {
        shared_text_get(&t, got);
        ck_assert_uint_eq(strspn(got, (char[]){got[0], 0}), strlen(got));
    }
    pthread_join(writer, NULL);
}
END_TEST

START_TEST(failing)
{
    static struct procs_head head;
    struct error e = {.code = ERR_NONE};
    ck_assert_int_eq(procs_check(&head, &e), 0);
    shared_text_set(&head.failing, "cache crashed 6 times in a row");
    ck_assert_int_eq(procs_check(&head, &e), -1);
    ck_assert_int_eq(e.code, ERR_UNAVAILABLE);
    ck_assert_str_eq(e.text, "cache crashed 6 times in a row");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tables");
    TCase *t = tcase_create("kv");
    tcase_add_loop_test(t, kv_regions_do_not_overlap, 0, COUNTS);
    tcase_add_loop_test(t, kv_slots_have_the_stated_size, 0, KV_TYPE__COUNT);
    tcase_add_test(t, kv_memory_reports_progress);
    tcase_add_test(t, kv_bad_shape);
    tcase_add_test(t, kv_slots_that_do_not_fit);
    tcase_add_test(t, kv_more_slots_than_there_may_be);
    tcase_add_test(t, kv_states_of_several_sequences);
    tcase_add_test(t, kv_sizes_overflow);
    tcase_add_test(t, kv_too_few_states);
    tcase_add_test(t, kv_rings_that_do_not_fit);
    tcase_add_loop_test(t, kv_logs_elsewhere, 0, 5);
    tcase_add_test(t, kv_of_another_model);
    tcase_add_test(t, kv_of_chunks);
    suite_add_tcase(suite, t);
    t = tcase_create("procs");
    tcase_add_test(t, procs_processes);
    tcase_add_test(t, procs_table);
    tcase_add_test(t, counters_have_descriptions);
    tcase_add_test(t, texts);
    tcase_add_test(t, shared_texts);
    tcase_add_test(t, shared_text_is_whole);
    tcase_add_test(t, failing);
    suite_add_tcase(suite, t);
    return test_run(suite);
}
