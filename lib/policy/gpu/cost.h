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

/* Types whose products are measured; the others are those of the slowest. */
#define COST_TYPES        4
#define COST_TYPE_CLASSES (COST_TYPES + 1)
extern const enum tensor_type cost_types[COST_TYPES];
/* COST_TYPES: another one. */
unsigned cost_class(enum tensor_type type);

struct cost_gpu { /* per second: */
    double
        product[COST_TYPES]; /* bytes of weights that a product with one row reads; 0: no kernels */
    double pinned, pageable; /* bytes copied to it from such memory */
    double wait_s;           /* of a small copy, and the wait for it */
};

struct cost_cpu { /* bytes of weights per second in decode, with all threads */
    double dense, experts;
};

struct cost_bytes { /* of weights, by class of their type */
    uint64_t of[COST_TYPE_CLASSES];
};

struct cost_layer {
    struct cost_bytes dense, expert; /* of one expert; none: a layer without experts */
    uint64_t kv;                     /* that an operation copies if it is not on the GPU */
};

struct cost_model {
    uint32_t layers, experts, top_k;
    const struct cost_layer *layer; /* [layers] */
    struct cost_bytes output;       /* with the last layer */
    const double
        *hits; /* [experts + 1]: share of uses, by the slots of a layer (lib/sim/routing.h) */
    enum gpu_policy policy; /* GPU_POLICY__COUNT: the faster one. prefetch counts as gpu-centric */
};

struct cost_part {
    const struct cost_gpu *gpu; /* NULL: the CPU */
    uint32_t first, end;        /* layers [first, end) */
    uint32_t kv_layers;         /* so many of them, from the first on, have keys and values there */
    uint64_t slots;
};

struct cost { /* seconds */
    double weights_s, experts_s, kv_s, waits_s;
};

static inline double cost_sum(const struct cost *c)
{
    return c->weights_s + c->experts_s + c->kv_s + c->waits_s;
}

/* Whether all rates that a part needs are known. */
bool cost_gpu_known(const struct cost_gpu *g);
bool cost_cpu_known(const struct cost_cpu *c);

/* Seconds for these weights: on a GPU, by a rate. */
double cost_on_gpu(const struct cost_bytes *b, const struct cost_gpu *g);
uint64_t cost_bytes_sum(const struct cost_bytes *b);
/* Of the layers [first, end), with the output if `end` is the last one. */
double cost_dense_on_gpu(const struct cost_model *m, const struct cost_gpu *g, uint32_t first,
                         uint32_t end);
/* One expert, the mean of the layers [first, end) that have some. */
double cost_expert_on_gpu(const struct cost_model *m, const struct cost_gpu *g, uint32_t first,
                          uint32_t end);
uint32_t cost_expert_layers(const struct cost_model *m, uint32_t first, uint32_t end);
/* Share of the uses of a part that have a slot. */
double cost_hits(const struct cost_model *m, const struct cost_part *p);

/* kv and waits of a part on a GPU. */
void cost_overhead(const struct cost_model *m, const struct cost_part *p, struct cost *out);
struct cost cost_of_part(const struct cost_model *m, const struct cost_cpu *cpu,
                         const struct cost_part *p);
/* Of all parts, which have all layers. */
double cost_of_token(const struct cost_model *m, const struct cost_cpu *cpu,
                     const struct cost_part *part, uint32_t parts);

#endif
