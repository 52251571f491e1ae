/* SPDX-License-Identifier: Apache-2.0 */
/* A model file in memory (lib/offline) as a source of weights with the difficulties of an engine:
 * little capacity, and some experts reported as not resident. */
#ifndef SLUICE_TESTS_GOLDEN_IMAGE_H
#define SLUICE_TESTS_GOLDEN_IMAGE_H

#include "lib/offline/offline.h"

/* Experts that a chunk pins: few, so that it pins them in many steps. */
#define IMAGE_PIN_SLOTS 5

struct image {
    struct offline_model *file;
    const struct model_index *model; /* the file's */
    void **keys, **values, **index;  /* per layer, `context` positions of any type */
    void *state;                     /* recurrent, of one sequence */
    enum kv_type kv_type;            /* F16; may be changed */
    uint32_t context;
    /* hook for tests of routing: called for every layer of every forward pass when set */
    void (*routed)(void *arg, const struct expert_step *step, const struct route *routes);
    void *routed_arg;
    struct device *device; /* of image_source_on */
};

/* A failure is fatal: no test works without its model. */
void image_open(struct image *image, const char *path, uint32_t context);
void image_close(struct image *image);

struct weights_source image_source(struct image *image);
/* The same for a core on a device; NULL: the host. Pointers that the core shares with another
 * device are tagged (tests/harness/tagged.h). Its experts are in slots whose memory is used again,
 * as in an arena: after `unpin` they have NaN. */
struct weights_source image_source_on(struct image *image, struct device *device);
struct core_sequence image_sequence(const struct image *image);

/* A core on the image. */
struct core *image_core(struct image *image, const struct kernel_ops *ops, uint32_t threads,
                        uint32_t chunk);

#endif
