/* A model file in memory as the model core's source of weights: no arena, no waiting. */
#ifndef SLUICE_TESTS_GOLDEN_IMAGE_H
#define SLUICE_TESTS_GOLDEN_IMAGE_H

#include "lib/core/core.h"

struct image {
    const uint8_t *bytes; /* the mapped file */
    size_t size;
    struct model_index *model;
    uint16_t **keys, **values; /* per layer, `context` positions */
    uint32_t context;
    /* tests look at routing here: called for every layer of every forward pass when set */
    void (*routed)(void *arg, const struct expert_step *step, const struct route *routes);
    void *routed_arg;
};

/* Fatal with its reason: a test cannot go on without its model. */
void image_open(struct image *image, const char *path, uint32_t context);
void image_close(struct image *image);

struct weights_source image_source(struct image *image);
struct core_sequence image_sequence(const struct image *image);

/* A core over the image; isa NULL: the best. */
struct core *image_core(struct image *image, const struct kernel_ops *ops, uint32_t threads,
                        uint32_t chunk);

#endif
