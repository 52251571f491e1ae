/* SPDX-License-Identifier: Apache-2.0 */
/* Runs equal passes on the host device and on the CUDA device (kernels as host code), whose
 * sequences stay on it: logits, routes, and everything that the sequences have in host memory must
 * be the same. */
#ifndef SLUICE_TESTS_UNIT_LIB_DEVICE_CUDA_PAIR_H
#define SLUICE_TESTS_UNIT_LIB_DEVICE_CUDA_PAIR_H

#include "lib/core/core.h"
#include "lib/device/cuda/cuda.h"
#include "tests/golden/image.h"

#define PAIR_CONTEXT 576
#define PAIR_CHUNK   8
#define ROUTES_MAX   2048

/* A sequence in host memory. Passes write another state than they read, as an engine does. */
struct memory {
    void *keys[MODEL_LAYERS_MAX], *values[MODEL_LAYERS_MAX];
    uint8_t *state[3]; /* of the last pass, of the next, a checkpoint */
    uint32_t now;
};

/* Routes of a pass, layer by layer. */
struct noted {
    struct route route[ROUTES_MAX];
    uint32_t count;
};

/* A device with its core, and two sequences. */
struct side {
    struct noted noted;
    struct image image;
    struct device *device;
    struct core *core;
    struct memory memory[2];
};

struct pair {
    struct side host, cuda;
    uint32_t ring;
};

/* With the parts of so many layers on the device, of all layers of UINT32_MAX. alone: tokens may be
 * computed so, while pair_agreed, with experts of pair_served. */
extern bool pair_agreed;
extern enum precision pair_served;
void pair_open(struct pair *p, const char *file, enum kv_type type, uint32_t ring, uint32_t layers,
               bool alone);
void pair_close(struct pair *p);

struct step {
    uint32_t sequence, position, rows;
    uint64_t content;
    uint32_t log;    /* which tokens */
    uint32_t layers; /* 0: all; else it ends after so many */
};

/* A pass on one of both; on both, compared: bytes that were copied to the device. */
void pair_run_side(struct side *s, const struct pair *p, const struct step *t);
uint64_t pair_run(struct pair *p, struct step t);

size_t pair_side_bytes(const struct side *s, uint32_t layer, enum kv_side side);
size_t pair_state_bytes(const struct side *s);
void pair_copy_memory(const struct side *s, struct memory *to, const struct memory *from);

#endif
