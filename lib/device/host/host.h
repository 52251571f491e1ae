/* SPDX-License-Identifier: Apache-2.0 */
/* The host as a device: its memory is that of the process, its operations are the kernels of
 * lib/kernels on a pool of threads. An operation has run when it returns; `read`, `write` and
 * `share` need no second copy, and no operation allocates. */
#ifndef SLUICE_DEVICE_HOST_HOST_H
#define SLUICE_DEVICE_HOST_HOST_H

#include "lib/device/device.h"

/* threads: including the caller of operations (one at a time). nice: of the others. NULL with
 * *error. Freed by ops->destroy. */
struct device *host_device(const struct kernel_ops *kernels, uint32_t threads, int nice,
                           struct error *error);

/* Parts of operations, for one row in host memory. The norm of n floats; bias NULL: none; y may be
 *  x. And y = activation(gate) * up within the limit; y may be gate. */
void host_norm(const struct kernel_ops *kernels, enum norm_kind kind, float eps, const float *x,
               const float *weight, const float *bias, uint32_t n, float *y);
void host_activate(const struct kernel_ops *kernels, enum ffn_activation activation,
                   struct ffn_limit limit, const float *gate, const float *up, uint32_t n,
                   float *y);

/* For one row x of n floats and its logits (op importance), adds |x| * weight to each expert that
 * the rule chooses. The weights are not normalised. scratch: ROUTING_SCRATCH floats. */
void host_add_importance(const struct model_router *rule, const float *logits, const float *x,
                         uint32_t n, float *scratch, float *importance);

/* Whether none of n floats is NaN or infinite. */
bool host_finite(const float *x, size_t n);

/* The logarithm of the sum of n exponentials. */
double host_log_sum_exp(const float *x, uint32_t n);
/* Log-probability of `token` under one row of logits. */
float host_log_probability(const float *logits, uint32_t vocab, uint32_t token);

#endif
