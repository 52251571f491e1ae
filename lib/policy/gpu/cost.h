/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how long a token of decode takes with the layers of a model divided among GPUs and the
 * CPU, by measured rates. Parts compute one after the other. Experts are in the arena: what storage
 * takes is the same for every division. Pure.
 *
 *   weights   bytes / rate of products with their type
 *   experts   on the CPU bytes / rate. On a GPU, of the top_k uses of a layer the share `hits` has
 *             a slot:
 *             gpu-centric   the longer one of computing all, and of copying the others and
 *                           computing the last of them
 *             cooperative   the longer one of those with a slot, and of the others on the CPU
 *   kv        bytes of layers whose keys and values are not on the GPU / rate of copies
 *   waits     one for each layer on a GPU, and one for the part; one for all if the GPU computes
 *             tokens alone */
#ifndef SLUICE_POLICY_GPU_COST_H
#define SLUICE_POLICY_GPU_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/policy/gpu/policy.h"
#include "lib/tensor/tensor_type.h"

/* The types whose products are measured. A matrix of another type counts as one of the slowest. */
#define COST_TYPES        4
#define COST_TYPE_CLASSES (COST_TYPES + 1)
extern const enum tensor_type cost_types[COST_TYPES];
/* The place of the type in cost_types; COST_TYPES if it is not one of them. */
unsigned cost_class(enum tensor_type type);

struct cost_gpu { /* measured rates */
    /* Bytes of weights that a product with one row reads per second, by type; 0: no kernels. */
    double product[COST_TYPES];
    double pinned, pageable; /* bytes per second copied to the GPU from such memory */
    double wait_s;           /* seconds that a small copy and the wait for it take */
};

struct cost_cpu { /* bytes of weights per second in decode, with all threads */
    double dense, experts;
};

struct cost_bytes { /* bytes of weights, by the class of their type */
    uint64_t of[COST_TYPE_CLASSES];
};

struct cost_layer {
    struct cost_bytes dense, expert; /* expert: of one; all 0: the layer has no experts */
    uint64_t kv; /* bytes of keys and values that an operation copies if they are not on the GPU */
};

struct cost_model {
    uint32_t layers, experts, top_k;
    const struct cost_layer *layer; /* [layers] */
    struct cost_bytes output;       /* computed with the last layer */
    /* [experts + 1]: the share of uses that find a slot, by the number of slots of a layer
     * (lib/sim/routing.h). */
    const double *hits;
    enum gpu_policy policy; /* GPU_POLICY__COUNT: the faster one. prefetch counts as gpu-centric */
};

struct cost_part {
    const struct cost_gpu *gpu; /* NULL: the CPU */
    uint32_t first, end;        /* layers [first, end) */
    uint32_t kv_layers;         /* the first so many of them have keys and values on the GPU */
    uint64_t slots;             /* for experts, of all its layers */
};

struct cost { /* seconds per token */
    double weights_s, experts_s, kv_s, waits_s;
};

static inline double cost_sum(const struct cost *c)
{
    return c->weights_s + c->experts_s + c->kv_s + c->waits_s;
}

/* Whether all rates that a part on the GPU, or on the CPU, needs are known. */
bool cost_gpu_known(const struct cost_gpu *g);
bool cost_cpu_known(const struct cost_cpu *c);

/* Seconds in which the GPU multiplies these weights with one row. */
double cost_on_gpu(const struct cost_bytes *b, const struct cost_gpu *g);
/* The bytes of all classes together. */
uint64_t cost_bytes_sum(const struct cost_bytes *b);
/* Seconds for the dense weights of the layers [first, end), and for the output if these include
 * the last layer. */
double cost_dense_on_gpu(const struct cost_model *m, const struct cost_gpu *g, uint32_t first,
                         uint32_t end);
/* Seconds for one expert, as the mean over those of the layers [first, end) that have experts. */
double cost_expert_on_gpu(const struct cost_model *m, const struct cost_gpu *g, uint32_t first,
                          uint32_t end);
/* How many of the layers [first, end) have experts. */
uint32_t cost_expert_layers(const struct cost_model *m, uint32_t first, uint32_t end);
/* The share of the uses of experts in a part that find a slot, 0 to 1. */
double cost_hits(const struct cost_model *m, const struct cost_part *p);

/* Sets kv_s and waits_s of *out for a part on a GPU, and nothing else. */
void cost_overhead(const struct cost_model *m, const struct cost_part *p, struct cost *out);
/* What a part takes per token. All rates that it needs must be known. */
struct cost cost_of_part(const struct cost_model *m, const struct cost_cpu *cpu,
                         const struct cost_part *p);
/* Seconds per token of the parts, which together have all layers in their order. */
double cost_of_token(const struct cost_model *m, const struct cost_cpu *cpu,
                     const struct cost_part *part, uint32_t parts);

#endif
