/* SPDX-License-Identifier: Apache-2.0 */
/* The access log: an ordered ring of records. One producer (compute) that never waits; several
 * readers with separate positions (cache, recorder, tests). A reader that falls behind by the
 * ring's size resynchronises at the newest record and counts the loss. A recorded log is the trace
 * that `sluice sim` replays. */
#ifndef SLUICE_SHM_RINGS_ACCESS_LOG_H
#define SLUICE_SHM_RINGS_ACCESS_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shm/segment/segment.h"

/* A power of two, 16,384: history of 51 tokens of 40 layers x 8 experts; with the logits of 128
 * experts per layer, 21 tokens of 48 layers; with 24 candidates per layer as well, 8 of them; with
 * their logits as floats (--trace-logits) 7, with gate inputs of 2,048 elements 1. */
#define ACCESS_LOG_RECORDS (1u << 14)

/* While a trace is recorded, there are also the kinds from TRACE_PREDICTED on (lib/trace/trace.h),
 * which only the recorder reads. */
enum access_kind {
    ACCESS_EXPERT = 1,
    ACCESS_CHOICE,
    ACCESS_SEQUENCE_START,
    ACCESS_SEQUENCE_END,
    ACCESS_TOKEN_END,
    ACCESS_LOGITS
};
enum access_outcome { ACCESS_HIT = 1, ACCESS_INFLIGHT, ACCESS_MISS, ACCESS_SKIPPED };

#define ACCESS_VALUES_HALF 8u /* the values of a LOGITS record are split over two fields */
#define ACCESS_VALUES      (2 * ACCESS_VALUES_HALF)

/* A record; 32 bytes, no padding. LOGITS: values of `rank` experts of the layer, starting at
 * `expert`, as passed to residency_logits (lib/policy/residency/residency.h); in decode only, all
 * of a layer before its accesses, and only if the eviction policy uses them. */
struct access_record {
    uint32_t sequence;
    uint32_t position; /* of the token; first of the chunk in prefill */
    union {
        struct {
            uint32_t tokens; /* EXPERT: rows of the sequence in this pass that access the expert: 1
                              * in decode. CHOICE: of all rows of the pass. TOKEN_END: rows */
            float weight;    /* gate weight (largest of the chunk in prefill); CHOICE: G * |x| */
        };
        uint8_t values[ACCESS_VALUES_HALF]; /* LOGITS: first half */
    };
    uint16_t layer, expert;
    uint8_t kind;    /* enum access_kind */
    uint8_t outcome; /* enum access_outcome */
    uint8_t rank, need;
    union {
        struct {
            uint8_t precision, prefill;
            union {
                uint16_t preset; /* SEQUENCE_START: the preset in effect from here
                                  * (lib/policy/presets/presets.h) */
                uint16_t pass; /* EXPERT, CHOICE, TOKEN_END: low bits of compute's count of passes:
                                  * a pass of several sequences has records of each of them */
                uint16_t from_layer; /* predictions (lib/trace/trace.h) */
            };
            float before; /* EXPERT in prefill: sum of the larger gate weights
                              * (lib/policy/access/precision.h) */
        };
        uint8_t more_values[ACCESS_VALUES_HALF]; /* LOGITS: second half */
    };
};
_Static_assert(sizeof(struct access_record) == 32, "half a cache line");

struct access_log_cell { /* a record as four relaxed words, and the position it was written for */
    _Atomic uint64_t position; /* record number + 1 when complete, 0 during the write */
    _Atomic uint64_t word[4];
};

struct access_log_head {
    struct segment_head segment;
    _Atomic uint64_t written; /* records published; release after the cell */
    _Atomic uint64_t tokens;  /* tokens completed, after their TOKEN_END record */
    uint64_t reserved[6];
    struct access_log_cell cell[ACCESS_LOG_RECORDS];
};

struct access_log {
    struct segment segment;
    struct access_log_head *head;
};

struct access_log_reader {
    uint64_t next; /* record number to read next */
    uint64_t lost; /* records skipped when resynchronising */
    uint64_t resyncs;
};

uint64_t access_log_bytes(void);
int access_log_attach(int fd, bool writable, uint64_t boot, struct access_log *out,
                      struct error *error);

/* compute: appends a record; never waits, no system call. */
void access_log_append(struct access_log *u, const struct access_record *record);
uint64_t access_log_written(struct access_log *u);

/* compute: `tokens` were completed; their TOKEN_END record was appended. Returns the new count,
 * which continues after a restart of compute. */
uint64_t access_log_add_tokens(struct access_log *u, uint32_t tokens);
/* Tokens whose records can be read. */
uint64_t access_log_tokens(struct access_log *u);

/* Starts a reader at the newest record. */
void access_log_reader_start(struct access_log *u, struct access_log_reader *reader);

/* Reads the next record below `limit` (UINT64_MAX: no limit); false when there is none. */
bool access_log_read(struct access_log *u, struct access_log_reader *reader, uint64_t limit,
                     struct access_record *out);

#endif
