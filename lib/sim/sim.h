/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator: a modelled cache and clock, driven by a trace or, layer by layer, by a real model.
 * Decisions come from lib/policy, as in the cache process.
 *
 * ---- sim_cache: the simulated clock -------------------------------------------------------------
 * Time is a number of nanoseconds that only modelled work advances. A pass is one token, or one
 * chunk of a prompt, of one or several sequences. Calls for every layer of a pass and each of its
 * sequences, in this order:
 *
 *   sim_cache_logits    router logits, if the eviction reads them
 *   sim_cache_layer     compute enters the layer: attention and router run, loads continue
 *   sim_cache_access    for every expert the router chose, in the order of a DEMAND; the result is
 *                       hit (with its precision), in flight, miss or skipped
 *   sim_cache_hint      predictions from this layer's gate input; they take effect after the
 *                       prediction time
 *   sim_cache_compute   misses are reserved in order of access and sent; hits are computed while
 *                       loads run, then each in-flight expert as it arrives. Returns the stall time
 *
 * and sim_cache_token when the pass is complete. Where a table names the experts of the first
 * layers (table_layers), sim_cache_pass and sim_cache_known come before all of them. In a pass of
 * several sequences, all of them are in the same layer: an expert is one access for all its tokens,
 * and what is missing is requested once. sim_cache_sequence_starts and sim_cache_sequence_ends say
 * which sequences run (lib/policy/sequences.h). With prefetch off the hits are those of the
 * pipeline over the same trace (see the contract in residency.h). A driver with a real model waits
 * for the real bytes itself; its decisions follow from sim_cache_access alone, so that the same
 * trace or model, parameters and seed give the same decisions at any real speed.
 *
 * With a GPU (struct sim_gpu) an expert that is in the arena may have to be copied once more.
 *
 * The storage device: reads share `bytes_per_s`; each waits `latency_ns` before its first byte, at
 * most `depth` of them at the same time; demands take precedence over prefetches at any moment (a
 * prefetch in progress is suspended, since loaders read in chunks). While the CPU computes and
 * bytes flow, both may be slower than each alone: `slowdown`, `busy_bytes_per_s`. */
#ifndef SLUICE_SIM_SIM_H
#define SLUICE_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/error.h"
#include "lib/policy/gpu/policy.h"
#include "lib/policy/presets/planned.h"
#include "lib/policy/presets/presets.h"
#include "lib/policy/residency/residency.h"
#include "lib/tensor/precision.h"
#include "lib/trace/trace.h"

/* The machine that is modelled where nothing was measured or requested. */
#define SIM_DEFAULT_BYTES_PER_S 1e9
#define SIM_DEFAULT_LATENCY_NS  1e5
#define SIM_DEFAULT_DEPTH       16 /* the engine's: sim_main.c compares it with --queue-depth */
#define SIM_DEFAULT_WEIGHTS_PER_S                                                                  \
    20e9 /* bytes of weights read from memory in decode, which bounds its speed */
/* A GPU: copies to it over PCIe 3.0 x16; weights that it reads in decode. Of none that was
 * measured. */
#define SIM_DEFAULT_GPU_BYTES_PER_S   12e9
#define SIM_DEFAULT_GPU_WEIGHTS_PER_S 400e9
#define SIM_DEFAULT_PREDICT_NS        2e4
#define SIM_DEFAULT_BATCH             0.25 /* cost of a further token of a chunk; of the first: 1 */

/* An engine on its machine, in addition to what is measured there (docs/lab/io.md): latency of a
 * miss before its read, for the messages to cache, to a loader and back; work of all processes for
 * a read, on CPUs that compute; time until a prediction is made, without its router. */
#define SIM_MESSAGES_NS  1e5
#define SIM_LOAD_NS      95e3
#define SIM_PREDICTOR_NS 6e4

struct sim_storage {
    double bytes_per_s; /* > 0 */
    double latency_ns;
    uint32_t depth; /* >= 1 */
    /* While a read flows, the CPU computes so many times as long, and these bytes are read per
     * second. Below 1 and 0: as without the other. */
    double slowdown, busy_bytes_per_s;
};

struct sim_compute {
    double layer_ns;                       /* attention, norms and router of one layer, one token */
    double expert_ns;                      /* one expert at native precision, one token */
    double precision_ns[PRECISION__COUNT]; /* the same at each precision; 0: as expert_ns */
    double predict_ns;                     /* from the gate input to a hint in the cache */
    double batch; /* cost of every further token of a chunk, relative to the first */
};

/* A GPU that computes a range of layers, and has places for experts (lib/policy/gpu/places.h).
 * Those that are in the arena at the same time are a batch, within the limits of compute
 * (lib/core/experts.c): what has a place is computed, while the others are copied, one after the
 * other; then each of them after its copy. cooperative: in passes of one token the CPU computes
 * what has no place, at the same time, with sim_compute.expert_ns. prefetch: in such passes, after
 * the last batch of a layer, the experts that sim_cache_gpu_predicted states are copied. Copies of
 * both for later go through pinned memory for two experts, and run on while layers are computed. */
struct sim_gpu {
    uint32_t places; /* of the largest expert; 0: no GPU; at least top_k */
    uint64_t bytes;  /* of memory for experts; 0: for so many places */
    uint64_t place_bytes
        [PRECISION__COUNT]; /* of an expert there, at each precision; 0: as in the trace */
    enum gpu_policy policy;
    enum eviction eviction;
    double bytes_per_s; /* of copies to it; > 0 */
    double expert_ns;   /* one expert at the highest precision, one token; others by their bytes */
    uint32_t rows;      /* of the largest pass; 0: as the running one. set by sim_run */
    uint32_t
        end_layer; /* it has the layers up to this one, from 0 or from the one before on; 0: all */
    double layer_ns;            /* of a layer of it, as sim_compute.layer_ns; 0: that */
    const struct sim_gpu *next; /* has the following layers; NULL: the CPU has them. Borrowed */
};

#define SIM_GPUS_MAX 16

/* Time of so many tokens that are computed together, from that of one. */
double sim_compute_ns(const struct sim_compute *c, double one_ns, uint32_t tokens);

/* Prior knowledge, from a plan or from an earlier part of the trace. Arrays are borrowed; any may
 * be NULL. */
struct sim_plan {
    struct path_tables tables;       /* its frequency also serves preload and edgemoe's profile */
    const float *shares;             /* [layers] */
    struct planned_widths precision; /* of the rule of the preset */
};

struct sim_config {
    struct knobs knobs;
    uint32_t layers, experts, top_k;
    struct expert_layers expert_layers;
    uint32_t precision_mask;
    uint64_t precision_bytes[PRECISION__COUNT];
    /* of each slot (residency.h), where experts of a precision differ in size: precision_bytes is
     * their mean, and an expert computes in proportion to its bytes. Borrowed; NULL: all alike */
    const uint64_t *slot_bytes;
    uint64_t capacity;  /* bytes of experts that may be resident */
    uint32_t sequences; /* that are started in all, at most; 0: not known */
    struct sim_storage storage;
    struct sim_compute compute;
    struct sim_plan plan;
    struct sim_gpu gpu;                        /* the first one */
    double (*score)(void *arg, uint32_t slot); /* belady: replaces knobs.eviction */
    void *score_arg;
};

/* The next layer with experts; c->layers if there is none. */
static inline uint32_t sim_next_layer(const struct sim_config *c, uint32_t layer)
{
    return expert_layers_next(&c->expert_layers, layer + 1, c->layers);
}

/* Sums over a phase. Bytes of demands are counted when sent, of prefetches when read. */
struct sim_stats {
#define COUNT(name, meaning) uint64_t name;
#define REAL(name, meaning)  double name;
#include "lib/sim/results.tbl.h"
};

enum sim_phase { SIM_DECODE, SIM_PREFILL, SIM_PHASES };

struct sim_cache;

/* NULL with ERR_BAD_INPUT: a required precision is absent, the device model is invalid, or masked
 * routing (a trace cannot show what it would route); with ERR_BUDGET_TOO_SMALL: the capacity is
 * below top_k experts of the largest precision; or with ERR_NO_MEMORY. */
struct sim_cache *sim_cache_create(const struct sim_config *config, struct error *error);
void sim_cache_destroy(struct sim_cache *c);

struct sim_step { /* of one sequence */
    uint32_t sequence, position, layer;
    uint32_t tokens; /* of it in the pass: 1 is decode, unless prefill is set */
    bool prefill;
};

/* A pass begins, of these sequences in the order of their rows; their layer is the first one.
 * Before sim_cache_known; otherwise its first layer begins it. */
void sim_cache_pass(struct sim_cache *c, const struct sim_step *step, uint32_t steps);
/* Experts that a table names for one of the steps in a layer (prediction_known): they are read from
 * now on, as far as there is room. Without prefetch it does nothing. */
void sim_cache_known(struct sim_cache *c, uint32_t step, uint32_t layer,
                     const struct prediction *known, uint32_t count);

enum sim_outcome { SIM_HIT, SIM_INFLIGHT, SIM_MISS, SIM_SKIPPED };

/* Levels of a layer's experts from `first` on, as residency_logits takes them. Decode only. */
void sim_cache_logits(struct sim_cache *c, const struct residency_step *at, uint32_t first,
                      const uint8_t *levels, uint32_t count);

struct sim_part {    /* of an access: what one sequence of the pass uses of the expert */
    uint32_t step;   /* which of the steps of sim_cache_layer */
    uint32_t tokens; /* of this sequence that access it */
};

struct sim_access {
    uint32_t expert;
    uint32_t tokens;     /* of the pass that access it */
    float weight_before; /* see precision.h */
    float popularity;
    const struct sim_part *part; /* [parts], in the order of their records; borrowed */
    uint32_t parts;              /* 0: the first step has all tokens */
};

struct sim_access_result {
    enum sim_outcome outcome;
    enum precision precision; /* that serves it, or is requested; undefined for skipped */
};

/* At its START and END record. Without a start, its first layer starts a sequence. */
void sim_cache_sequence_starts(struct sim_cache *c, uint32_t sequence);
void sim_cache_sequence_ends(struct sim_cache *c, uint32_t sequence);

/* All sequences of the pass reach a layer: their steps, at most SEQUENCES_MAX, in the order of
 * their rows. */
void sim_cache_layer(struct sim_cache *c, const struct sim_step *step, uint32_t steps);
void sim_cache_access(struct sim_cache *c, const struct sim_access *access,
                      struct sim_access_result *result);
/* Whether an access to an expert of the running layer would be a hit now: for routing
 * resident-first, before the layer's accesses. weight_before: see precision.h. */
bool sim_cache_serves(const struct sim_cache *c, uint32_t expert, float weight_before);
/* So many experts of the running layer took the places of missing ones (resident_first.h). */
void sim_cache_rerouted(struct sim_cache *c, uint32_t experts);
/* Predictions of one of the steps for a later layer of this pass, in descending order; at most
 * sim_cache_predict_k of them are taken. Returns false when layers beyond need no hints: a
 * predicted expert is not resident. */
bool sim_cache_hint(struct sim_cache *c, uint32_t step, uint32_t layer,
                    const struct prediction *predictions, uint32_t count);
/* policy prefetch of a GPU: what the router of the next layer chose on this layer's gate input, in
 * order of rank; at most top_k are taken. In every layer of a pass of one token, before
 * sim_cache_compute; ends what was stated before. */
void sim_cache_gpu_predicted(struct sim_cache *c, const struct prediction *predictions,
                             uint32_t count);
/* Predictions per layer, and their method. */
uint32_t sim_cache_predict_k(const struct sim_cache *c);
const struct prediction_method *sim_cache_prediction_method(const struct sim_cache *c);
double sim_cache_compute(struct sim_cache *c); /* stall of this layer, ns */
void sim_cache_token(struct sim_cache *c);

/* Adds rows of a table on storage, the pages that they are in, and those of them that were read. */
void sim_cache_count_table(struct sim_cache *c, enum sim_phase phase, uint64_t rows, uint64_t pages,
                           uint64_t reads);

double sim_cache_now(const struct sim_cache *c); /* ns since creation */
const struct sim_stats *sim_cache_stats(const struct sim_cache *c, enum sim_phase phase);
/* Resets the statistics; residency stays. For a warm-up. */
void sim_cache_reset_stats(struct sim_cache *c);
bool sim_cache_resident(const struct sim_cache *c, uint32_t layer, uint32_t expert);
struct residency *sim_cache_residency(struct sim_cache *c);

/* ---- whole traces ---------------------------------------------------------------------------- */

struct sim_result {
    struct sim_stats phase[SIM_PHASES];
    double ns; /* modelled time of the run */
};

/* Replays records first..count-1 of the trace; statistics start at record `measure`. config's model
 * fields (layers to precision_bytes) are taken from the trace's header. belady: evicts the expert
 * whose next access is last; requires prefetch off. Errors: those of sim_cache_create, and
 * ERR_BAD_INPUT if the GPU's policy needs predictions that the trace has not. */
int sim_run(const struct trace *t, uint64_t first, uint64_t measure,
            const struct sim_config *config, bool belady, struct sim_result *out,
            struct error *error);

/* ns per token of a phase in an engine: computing, waiting, and the work for its reads, unless CPUs
 * that do not compute do that. `phase` has tokens. */
double sim_token_ns(const struct sim_stats *phase, bool spare_cpu);

/* Statistics of records from..to-1: frequency, prev1, pairs. The tables point into one block,
 * *block, which the caller frees. -1 with ERR_NO_MEMORY. */
int sim_profile(const struct trace *t, uint64_t from, uint64_t to, struct path_tables *out,
                void **block, struct error *error);

/* Number of records that contain `share` of the passes (0: 0). */
uint64_t sim_split(const struct trace *t, double share);

/* Places for the largest experts that `bytes` of a GPU's memory have space for, at most one for
 * each expert of each precision. */
uint32_t sim_gpu_places(const struct trace_header *h, uint64_t bytes);

/* Payload bytes of all experts at the highest precision present; budgets in percent refer to it. */
uint64_t sim_all_bytes(const struct trace_header *h);

#endif
