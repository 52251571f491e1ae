/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a residual of several streams that are weighed, and may be mixed. */
#ifndef SLUICE_DEVICE_MIXING_H
#define SLUICE_DEVICE_MIXING_H

#include <stddef.h>
#include <stdint.h>

/* Streams of a residual that are mixed: steps of Sinkhorn and Knopp, at least 1, that make a matrix
 * doubly stochastic, and what is added in them. steps 0: there is no matrix, and without magnitude
 * there are only weights by which the streams are read. */
struct device_mixing {
    uint32_t streams, steps;
    float eps, magnitude; /* steps 0: of a result, 0: nothing is added */
};

/* Kinds of weights of a row: `streams` of the sum that is read; as many of a result; and the
 * matrix, that of stream i for j at i * streams + j. */
static inline uint32_t device_mixing_kinds(const struct device_mixing *a)
{
    return a->steps > 0 ? 3 : a->magnitude > 0 ? 2 : 1;
}

static inline size_t device_mixing_weights(const struct device_mixing *a)
{
    uint32_t kinds = device_mixing_kinds(a);
    return a->streams * (kinds == 3 ? a->streams + (size_t)2 : kinds);
}

#endif
