/* The use log: a ring of records in order. One producer (compute) that never waits; several readers
 * with positions of their own (cache, recorder, tests). A reader that falls behind by the ring's
 * size resynchronises at the newest and counts it. Recorded to a file, it is the trace `sluice sim`
 * replays. */
#ifndef SLUICE_SHM_RINGS_ACCESS_LOG_H
#define SLUICE_SHM_RINGS_ACCESS_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"

/* A power of two: 40 layers x 8 experts x 50 tokens of history; with the logits of 128 experts
 * beside them 21 tokens of 48 layers. */
#define ACCESS_LOG_RECORDS (1u << 14)

enum access_kind {
    ACCESS_EXPERT = 1,
    ACCESS_CHOICE,
    ACCESS_SEQUENCE_START,
    ACCESS_SEQUENCE_END,
    ACCESS_TOKEN_END,
    ACCESS_LOGITS
};
enum access_outcome { ACCESS_HIT = 1, ACCESS_INFLIGHT, ACCESS_MISS, ACCESS_SKIPPED };

#define ACCESS_VALUES_HALF 8u /* the values of a LOGITS record stand in two places */
#define ACCESS_VALUES      (2 * ACCESS_VALUES_HALF)

/* What a reader gets; 32 bytes, no padding. LOGITS: values of `rank` experts of the layer, `expert`
 * the first, as residency_logits takes them (policy/residency.h); decode only, all of a layer
 * before its uses, and only where the eviction looks at them. */
struct access_record {
    uint32_t sequence;
    uint32_t position; /* of the token; first of the chunk in prefill */
    union {
        struct {
            uint32_t tokens; /* 1 in decode; tokens of the chunk that use the expert in prefill */
            float weight;    /* gate weight (largest of the chunk in prefill); CHOICE: G * |x| */
        };
        uint8_t values[ACCESS_VALUES_HALF]; /* LOGITS: the first ones */
    };
    uint16_t layer, expert;
    uint8_t kind;    /* enum access_kind */
    uint8_t outcome; /* enum access_outcome */
    uint8_t rank, need;
    union {
        struct {
            uint8_t precision, prefill;
            uint16_t preset; /* SEQUENCE_BEGIN: the system in force from here (policy/systems.h) */
            float before;    /* EXPERT in prefill: sum of the better gate weights
                                (policy/precision.h) */
        };
        uint8_t more_values[ACCESS_VALUES_HALF]; /* LOGITS: the others */
    };
};
_Static_assert(sizeof(struct access_record) == 32, "half a cache line");

struct access_log_slot { /* a record as four relaxed words and the position it was written for */
    _Atomic uint64_t position; /* record number + 1 when complete, 0 while written */
    _Atomic uint64_t word[4];
};

struct access_log_head {
    struct segment_head segment;
    _Atomic uint64_t written; /* records published; release after the slot */
    uint64_t reserved[7];
    struct access_log_slot slot[ACCESS_LOG_RECORDS];
};

struct access_log {
    struct segment segment;
    struct access_log_head *head;
};

struct access_log_reader {
    uint64_t next; /* record number to read next */
    uint64_t lost; /* records skipped by resynchronising */
    uint64_t resyncs;
};

uint64_t access_log_bytes(void);
int access_log_attach(int fd, bool writable, uint64_t boot, struct access_log *out,
                      struct error *error);

/* compute: appends; never waits, no system call. */
void access_log_append(struct access_log *u, const struct access_record *record);
uint64_t access_log_written(struct access_log *u);

/* A reader that starts at the newest record. */
void access_log_reader_start(struct access_log *u, struct access_log_reader *reader);

/* Next record below `limit` (UINT64_MAX: all there is); false when there is none. */
bool access_log_read(struct access_log *u, struct access_log_reader *reader, uint64_t limit,
                     struct access_record *out);

#endif
