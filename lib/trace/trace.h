/* SPDX-License-Identifier: Apache-2.0 */
/* Traces: the routing decisions of a model, token by token, as recorded in the access log;
 * `sluice sim` replays them under any policy. A trace holds no addresses, no times and no text.
 *
 * File: struct trace_header | records to the end of the file. Little-endian. docs/trace.md
 * describes it for other programs.
 * The records are byte for byte those of the access log (struct access_record of
 * shm/rings/access_log.h has this layout), in its order; compute logs the kinds from
 * TRACE_PREDICTED on for a trace only.
 *
 * Every record names its sequence. Records of several sequences may be mixed: by tokens, if passes
 * compute one sequence each, or by layers, if a pass computes several. Of one sequence, they are in
 * the order of its computation. A pass has a TOKEN_END for each of its sequences, all of them after
 * its last layer.
 *
 *   TRACE_SEQUENCE_START  position, tokens: of the prompt; rank, weight: exact_ranks (at most 255)
 *                         and nats, if it is routed resident-first; rank 0: it is not, or unknown
 *   TRACE_LOGITS          decode: margins (routing.h) of `rank` experts of the layer, `expert` the
 *                         first, in the form of residency_logits. Before the experts of that
 *                         sequence and layer, in several records; only if the recorded eviction
 *                         reads logits
 *   TRACE_EXPERT          one expert of one layer, once per layer and token (decode) or layer and
 *                         chunk (prefill != 0); in order of rank in decode; skipped ones included
 *                           weight  gate weight as routed (maximum over the chunk)
 *                           tokens  of the chunk that access it
 *                           before  prefill only: sum of the gate weights ranked before it, over
 *                                   the sum of the top-k (minimum over the chunk's tokens), see
 *                                   precision.h; in decode it follows from the weights
 *   TRACE_PREDICTED       a predicted expert of `layer`; weight: its probability, for a chunk its
 *                         predicted tokens; before: as of an expert, from the predicted weights (in
 *                         decode 0 for all of a list: from the probabilities); from_layer: the
 *                         layer whose gate input was used. Directly after the sequence's experts of
 *                         from_layer, as the predictor runs concurrently with them; descending
 *                         probability
 *   TRACE_GPU_PREDICTED   decode with --gpu-policy prefetch: what the router of `layer` chose on
 *                         the gate input of from_layer, in order of rank, with weight and before as
 *                         an expert's. Where TRACE_PREDICTED is
 *   TRACE_CANDIDATE       decode with routing resident-first: an expert that could be chosen, in
 *                         the order of resident_first_candidates, within nats of the recorded run
 *                         or 1, whichever is more: at most resident_first_recorded, then up to
 *                         top-k resident ones; for a text without an engine as many as the first
 *                         number. before: its margin; weight: its gate weight
 *                         before normalisation (routing_shares). Where LOGITS are. The first top-k
 *                         are the exact choice; TRACE_EXPERT has what was chosen
 *   TRACE_ROUTER          decode with --trace-logits: router logits of `rank` experts of the layer,
 *                         `expert` the first, as floats. Where LOGITS are; a layer in full
 *   TRACE_BIAS            the router's bias of `rank` experts of the layer, likewise; once in a
 *                         layer after each start of a sequence, before its first ROUTER
 *   TRACE_INPUT           decode with --trace-inputs: `rank` elements of the layer's gate input
 *                         (lib/core/weights.h) as IEEE halves; `expert` counts the records of the
 *                         row, so the first element is TRACE_HALVES times that. Before the ROUTER
 *                         records of the layer
 *   TRACE_ROWS            with --trace-rows: `rank` numbers of rows of the table on storage that
 *                         the token reads in the layer, as u32; `expert` counts the numbers before
 *                         them. Before all layers of the pass, of all its tokens, each of them with
 *                         its own position, also in a chunk
 *   TRACE_CHOICE          masked routing: an expert of the unmasked top-k, weight = |x| G(x)
 *   TRACE_TOKEN_END       the sequence's token or chunk is complete; tokens: its number of tokens
 *   TRACE_SEQUENCE_END    the sequence has no more records
 *
 * outcome, need and precision are those of the recorded run; the simulator decides again and only
 * compares. A file is untrusted input: trace_read checks every record against the header. */
#ifndef SLUICE_TRACE_TRACE_H
#define SLUICE_TRACE_TRACE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/model/expert_layers.h"
#include "lib/model/limits.h"
#include "lib/model/table_pages.h"
#include "lib/tensor/precision.h"

#define TRACE_MAGIC       0x4543415254434c53ull /* "SLCTRACE" */
#define TRACE_VERSION     4u
#define TRACE_RECORDS_MAX ((uint64_t)1 << 28) /* 8 GiB */

/* 1..6 are enum access_kind of shm/rings/access_log.h. */
enum trace_kind {
    TRACE_EXPERT = 1,
    TRACE_CHOICE,
    TRACE_SEQUENCE_START,
    TRACE_SEQUENCE_END,
    TRACE_TOKEN_END,
    TRACE_LOGITS,
    TRACE_PREDICTED = 16,
    TRACE_GPU_PREDICTED,
    TRACE_CANDIDATE,
    TRACE_ROUTER,
    TRACE_BIAS,
    TRACE_INPUT,
    TRACE_ROWS
};

/* enum access_outcome of shm/rings/access_log.h; 0: unknown */
enum trace_outcome { TRACE_UNKNOWN, TRACE_HIT, TRACE_INFLIGHT, TRACE_MISS, TRACE_SKIPPED };

#define TRACE_VALUES_HALF 8u /* as in the access log */
#define TRACE_VALUES      (2 * TRACE_VALUES_HALF)
#define TRACE_FLOATS      (TRACE_VALUES / 4) /* of ROUTER, BIAS; numbers of ROWS */
#define TRACE_HALVES      (TRACE_VALUES / 2) /* of INPUT */

#define TRACE_TABLE_ROWS_MAX 64u /* of a token */

struct trace_record {
    uint32_t sequence;
    uint32_t position; /* of the token; first of the chunk in prefill */
    union {
        struct {
            uint32_t tokens;
            float weight;
        };
        uint8_t values[TRACE_VALUES_HALF]; /* LOGITS, ROUTER, BIAS, INPUT, ROWS: the first ones */
    };
    uint16_t layer, expert;
    uint8_t kind;    /* enum trace_kind */
    uint8_t outcome; /* enum trace_outcome */
    uint8_t rank, need;
    union {
        struct {
            uint8_t precision, prefill;
            union {
                uint16_t from_layer; /* PREDICTED, GPU_PREDICTED */
                uint16_t pass;       /* EXPERT, CHOICE, TOKEN_END of the recorded run: its number */
            };
            float before; /* EXPERT in prefill, PREDICTED, GPU_PREDICTED, CANDIDATE */
        };
        uint8_t more_values[TRACE_VALUES_HALF]; /* the others */
    };
};
_Static_assert(sizeof(struct trace_record) == 32, "as in the access log");

/* The router of all layers, as in struct model_router (lib/model/router.h). */
struct trace_router {
    uint32_t gating; /* enum router_gating; 0: unknown, and the others are 0 */
    uint32_t normalise;
    float scale;
    uint32_t groups, groups_used;
};

/* Rows that tokens read of a table on storage, and its page slots (lib/model/table_pages.h). */
struct trace_table {
    uint32_t tables; /* 0: none, and the others are 0; else 1 */
    uint32_t rows_of_token;
    uint64_t rows;                         /* of the table */
    uint32_t row_bytes, head_bytes, slots; /* as in struct table_pages */
    uint32_t layer;                        /* that reads them; it need not have experts */
};

struct trace_header {
    uint64_t magic;
    uint32_t version;      /* 4; 3: without `table`; 2: without what follows expert_layers */
    uint32_t header_bytes; /* sizeof this, or of its version; offset of the records */
    uint32_t record_bytes; /* 32 */
    uint32_t layers, experts, top_k;
    uint32_t precision_mask; /* precisions of the model: 1 << enum precision */
    uint32_t table_layers;   /* in so many first layers, a table names the experts of a token */
    uint64_t precision_bytes
        [PRECISION__COUNT]; /* payload bytes of one expert, mean over all; 0: absent */
    uint8_t model_hash[16]; /* XXH3-128 of the model file; all 0: unknown */
    struct expert_layers expert_layers;
    uint32_t hidden; /* elements of a gate input; 0: unknown */
    struct trace_router router;
    struct trace_table table;
};
#define TRACE_HEADER_2_BYTES 152u
#define TRACE_HEADER_3_BYTES 176u
_Static_assert(sizeof(struct trace_header) == 208, "trace header layout");
_Static_assert(offsetof(struct trace_header, hidden) == TRACE_HEADER_2_BYTES, "the same of 2");
_Static_assert(offsetof(struct trace_header, table) == TRACE_HEADER_3_BYTES, "the same of 3");

/* How many layers have experts. */
static inline uint32_t trace_expert_layers(const struct trace_header *h)
{
    return expert_layers_count(&h->expert_layers, 0, h->layers);
}

/* Reads, writes the 16 bytes of values of a record. */
static inline void trace_values(const struct trace_record *r, void *to)
{
    memcpy(to, r->values, TRACE_VALUES_HALF);
    memcpy((uint8_t *)to + TRACE_VALUES_HALF, r->more_values, TRACE_VALUES_HALF);
}

static inline void trace_set_values(struct trace_record *r, const void *from)
{
    memcpy(r->values, from, TRACE_VALUES_HALF);
    memcpy(r->more_values, (const uint8_t *)from + TRACE_VALUES_HALF, TRACE_VALUES_HALF);
}

static inline struct table_pages trace_table_pages(const struct trace_header *h)
{
    return (struct table_pages){.row_bytes = h->table.row_bytes,
                                .head_bytes = h->table.head_bytes,
                                .slots = h->table.slots};
}

struct trace {
    struct trace_header header;
    struct trace_record *records; /* owned */
    uint64_t count;
};

/* Fills magic, version, sizes; zeroes the rest, which the caller fills. */
void trace_header_init(struct trace_header *h);

/* Checks the header and the first `count` records as they would be in a file: every number in
 * range, expert sizes for the precisions of the mask. 0, or -1 with ERR_BAD_INPUT naming the first
 * bad record. */
int trace_check(const struct trace_header *h, const struct trace_record *records, uint64_t count,
                struct error *error);

/* Read and write whole files, of which a read one may have version 2 or 3: its header becomes one
 * of this version. A truncated last record (the recorder was killed) is dropped. Release the result
 * of a read with trace_free. -1 with ERR_BAD_INPUT, ERR_IO or ERR_NO_MEMORY. */
int trace_read(const char *path, struct trace *out, struct error *error);
int trace_write(const char *path, const struct trace *t, struct error *error);
/* trace_read from memory, for tests and fuzzing. */
int trace_parse(const void *bytes, size_t count, struct trace *out, struct error *error);
void trace_free(struct trace *t);

/* A synthetic trace. Per layer the popularity of experts follows a Zipf law of exponent `skew` over
 * a private random order; a token keeps each expert of the previous token with probability
 * `locality` and draws the others. Predictions one layer ahead name every routed expert with
 * probability `recall`, otherwise another one; recall 0 writes none. A prompt of `prompt` tokens is
 * one prefill chunk. Deterministic from the seed. */
struct trace_synthetic {
    uint32_t layers, experts, top_k;
    double skew, locality, recall; /* skew >= 0; the others 0..1 */
    uint32_t prompt, tokens;       /* per sequence */
    uint32_t sequences;
    uint32_t predictions; /* per layer; 0 takes top_k */
    uint64_t expert_bytes;
    uint32_t precision_mask; /* int8, int4, int2 have 1/2, 1/4, 1/8 of the native bytes */
    uint64_t seed;
};
void trace_synthetic_defaults(struct trace_synthetic *s);
int trace_synthesise(const struct trace_synthetic *s, struct trace *out, struct error *error);

#endif
