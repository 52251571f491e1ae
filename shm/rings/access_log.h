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
#define USES_RECORDS (1u << 14)

enum use_kind {
    USE_EXPERT = 1,
    USE_CHOICE,
    USE_SEQUENCE_BEGIN,
    USE_SEQUENCE_END,
    USE_TOKEN_END,
    USE_LOGITS
};
enum use_outcome { USE_HIT = 1, USE_LATE, USE_MISS, USE_SKIPPED };

#define USE_VALUES_HALF 8u /* the values of a LOGITS record stand in two places */
#define USE_VALUES      (2 * USE_VALUES_HALF)

/* What a reader gets; 32 bytes, no padding. LOGITS: values of `rank` experts of the layer, `expert`
 * the first, as residency_logits takes them (policy/residency.h); decode only, all of a layer
 * before its uses, and only where the eviction looks at them. */
struct use_record {
    uint32_t sequence;
    uint32_t position; /* of the token; first of the chunk in prefill */
    union {
        struct {
            uint32_t tokens; /* 1 in decode; tokens of the chunk that use the expert in prefill */
            float weight;    /* gate weight (largest of the chunk in prefill); CHOICE: G * |x| */
        };
        uint8_t values[USE_VALUES_HALF]; /* LOGITS: the first ones */
    };
    uint16_t layer, expert;
    uint8_t kind;    /* enum use_kind */
    uint8_t outcome; /* enum use_outcome */
    uint8_t rank, need;
    union {
        struct {
            uint8_t tier, prefill;
            uint16_t system; /* SEQUENCE_BEGIN: the system in force from here (policy/systems.h) */
            float before;    /* EXPERT in prefill: sum of the better gate weights
                                (policy/precision.h) */
        };
        uint8_t more_values[USE_VALUES_HALF]; /* LOGITS: the others */
    };
};
_Static_assert(sizeof(struct use_record) == 32, "half a cache line");

struct uses_slot { /* a record as four relaxed words and the position it was written for */
    _Atomic uint64_t position; /* record number + 1 when complete, 0 while written */
    _Atomic uint64_t word[4];
};

struct uses_head {
    struct segment_head segment;
    _Atomic uint64_t written; /* records published; release after the slot */
    uint64_t reserved[7];
    struct uses_slot slot[USES_RECORDS];
};

struct uses {
    struct segment segment;
    struct uses_head *head;
};

struct uses_reader {
    uint64_t next; /* record number to read next */
    uint64_t lost; /* records skipped by resynchronising */
    uint64_t resyncs;
};

uint64_t uses_bytes(void);
int uses_attach(int fd, bool writable, uint64_t boot, struct uses *out, struct error *error);

/* compute: appends; never waits, no system call. */
void uses_append(struct uses *u, const struct use_record *record);
uint64_t uses_written(struct uses *u);

/* A reader that starts at the newest record. */
void uses_reader_start(struct uses *u, struct uses_reader *reader);

/* Next record below `limit` (UINT64_MAX: all there is); false when there is none. */
bool uses_read(struct uses *u, struct uses_reader *reader, uint64_t limit, struct use_record *out);

#endif
