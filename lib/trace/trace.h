/* Traces: what a model's routers decided, token by token, as the use log tells it; `sluice sim`
 * replays them under any policy. A trace holds no addresses, no times and no text.
 *
 * File: struct trace_header | records to the end of the file. Little-endian, as everything here.
 * The records are the use log's, byte for byte (struct access_record of shm/rings/access_log.h has this layout),
 * in its order; a recorder may add TRACE_PREDICTED records. What a reader makes of them:
 *
 *   TRACE_SEQUENCE_START  ends what came before; position, tokens: of the prompt
 *   TRACE_EXPERT          one expert of one layer, once per layer and token (decode) or layer and
 * chunk (prefill != 0); in order of rank in decode. Skipped ones are there too. weight: gate weight
 * as routed (largest of the chunk); tokens: of the chunk that use it; before: the sum of the gate
 * weights ranked before it, over the sum of the top-k (least over the chunk's tokens), see
 * precision.h: looked at in prefill only, in decode the weights say it. TRACE_PREDICTED       a
 * guess: expert of `layer`, weight its probability, from_layer the layer whose gate input it was
 * made from. It stands after the experts of from_layer - as the predictor works beside that layer's
 * experts - and before those of `layer`; descending probability. TRACE_CHOICE          masked
 * routing: an expert of the unmasked top-k, weight = |x| G(x) TRACE_TOKEN_END       the token or
 * chunk is complete; tokens: of it TRACE_SEQUENCE_END
 *   TRACE_LOGITS          decode: what the router said of `rank` experts of the layer, `expert` the
 *                         first, as residency_logits takes it. As many records as it takes, right
 *                         before the layer's experts; only where the eviction that ran looks at it
 *
 * outcome, need and tier are what happened when it was recorded; the simulator decides them anew
 * and only compares. A file is foreign bytes: trace_read checks every record against the header. */
#ifndef SLUICE_TRACE_TRACE_H
#define SLUICE_TRACE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"

#define TRACE_MAGIC       0x4543415254434c53ull /* "SLCTRACE" */
#define TRACE_VERSION     1u
#define TRACE_RECORDS_MAX ((uint64_t)1 << 28) /* 8 GiB */

/* 1..6 are enum access_kind of shm/rings/access_log.h. */
enum trace_kind {
    TRACE_EXPERT = 1,
    TRACE_CHOICE,
    TRACE_SEQUENCE_START,
    TRACE_SEQUENCE_END,
    TRACE_TOKEN_END,
    TRACE_LOGITS,
    TRACE_PREDICTED = 16
};

/* enum access_outcome of shm/rings/access_log.h; 0: not known */
enum trace_outcome { TRACE_UNKNOWN, TRACE_HIT, TRACE_INFLIGHT, TRACE_MISS, TRACE_SKIPPED };

#define TRACE_VALUES_HALF 8u /* as in the use log */
#define TRACE_VALUES      (2 * TRACE_VALUES_HALF)

struct trace_record {
    uint32_t sequence;
    uint32_t position; /* of the token; first of the chunk in prefill */
    union {
        struct {
            uint32_t tokens;
            float weight;
        };
        uint8_t values[TRACE_VALUES_HALF]; /* LOGITS: the first ones */
    };
    uint16_t layer, expert;
    uint8_t kind;    /* enum trace_kind */
    uint8_t outcome; /* enum trace_outcome */
    uint8_t rank, need;
    union {
        struct {
            uint8_t precision, prefill;
            uint16_t from_layer; /* PREDICTED */
            float before;        /* EXPERT in prefill */
        };
        uint8_t more_values[TRACE_VALUES_HALF]; /* LOGITS: the others */
    };
};
_Static_assert(sizeof(struct trace_record) == 32, "as in the use log");

struct trace_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes; /* sizeof this; records begin there */
    uint32_t record_bytes; /* 32 */
    uint32_t layers, experts, top_k;
    uint32_t precision_mask; /* tiers the model had: 1 << enum tier */
    uint32_t flags;          /* 0 */
    uint64_t precision_bytes
        [PRECISION__COUNT]; /* payload bytes of one expert, mean over all; 0: not there */
    uint8_t model_hash[16]; /* XXH3-128 of the model file; all 0: not known */
    uint8_t reserved[24];   /* 0 */
};
_Static_assert(sizeof(struct trace_header) == 112, "trace header layout");

struct trace {
    struct trace_header header;
    struct trace_record *records; /* owned */
    uint64_t count;
};

/* Fills magic, version, sizes; the rest is the caller's. */
void trace_header_init(struct trace_header *h);

/* The header and the first `count` records as they would be in a file: every number in range, tier
 * bytes given for the tiers of the mask. 0, or -1 with ERR_BAD_INPUT naming the first bad record.
 */
int trace_check(const struct trace_header *h, const struct trace_record *records, uint64_t count,
                struct error *error);

/* Whole files. A last record that is cut off (the recorder was killed) is dropped. trace_free ends
 * what these filled. */
int trace_read(const char *path, struct trace *out, struct error *error);
int trace_write(const char *path, const struct trace *t, struct error *error);
/* The same from bytes in memory, for tests and fuzzing. */
int trace_parse(const void *bytes, size_t count, struct trace *out, struct error *error);
void trace_free(struct trace *t);

/* A trace without a model. Per layer the popularity of experts is a Zipf law of exponent `skew`
 * over an order of its own; a token keeps each expert of the token before it with probability
 * `locality` and draws the others. Guesses one layer ahead name every routed expert with
 * probability `recall`, others in its place otherwise; recall 0 writes none. A prompt of `prompt`
 * tokens is one prefill chunk. Deterministic from the seed. */
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
