/* SPDX-License-Identifier: Apache-2.0 */
/* Options of programs that simulate: numbers, sizes, bandwidths, and a GPU. Each function returns
 * 0, or -1 with ERR_BAD_INPUT and the option's name in *error. */
#ifndef SLUICE_SIM_OPTIONS_H
#define SLUICE_SIM_OPTIONS_H

#include "lib/sim/sim.h"

/* A number from min to max, also with a % after it. */
int sim_option_number(const char *name, const char *text, double min, double max, double *value,
                      struct error *error);
/* "500MB/s" or a size. */
int sim_option_bandwidth(const char *name, const char *text, double *bytes_per_s,
                         struct error *error);
/* Above 0 bytes, or a percentage: *percent is above 0, else 0. */
int sim_option_share(const char *name, const char *text, uint64_t *bytes, double *percent,
                     struct error *error);

/* X(ID, name) */
#define SIM_GPU_OPTIONS(X)                                                                         \
    X(SLOTS, "gpu-slots")                                                                          \
    X(LAYERS, "gpu-layers")                                                                        \
    X(BUDGET, "gpu-budget")                                                                        \
    X(BANDWIDTH, "gpu-bandwidth")                                                                  \
    X(POLICY, "gpu-policy")                                                                        \
    X(EVICTION, "gpu-eviction")                                                                    \
    X(EXPERT_US, "gpu-expert-us")

enum sim_gpu_option {
#define X(id, name) SIM_GPU_##id,
    SIM_GPU_OPTIONS(X)
#undef X
        SIM_GPU__COUNT
};

/* The options that were given; all 0 at first. */
struct sim_gpu_options {
    bool given[SIM_GPU__COUNT];
    uint32_t slots[SIM_GPUS_MAX], gpus;          /* of each GPU */
    uint32_t layers[SIM_GPUS_MAX], layer_counts; /* of each, from the first layer on */
    uint64_t budget_bytes;                       /* of memory for experts */
    double budget_percent; /* above 0: instead, of all experts at their best precision */
    double bytes_per_s, expert_us;
    enum gpu_policy policy;
    enum eviction eviction;
};

int sim_gpu_option(struct sim_gpu_options *o, enum sim_gpu_option option, const char *text,
                   struct error *error);
/* Whether they go together. */
int sim_gpu_options_check(const struct sim_gpu_options *o, struct error *error);
/* The GPUs for a model, linked from the first one on; without options one without places. Also -1
 * with ERR_BUDGET_TOO_SMALL: fewer than top_k. */
int sim_gpu_of(const struct sim_gpu_options *o, const struct trace_header *h,
               struct sim_gpu out[SIM_GPUS_MAX], struct error *error);

#endif
