/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as a device: its memory, and the kernels of lib/cuda. Submissions are in one stream, so operations take
 * effect in their order; nothing waits but `read`, `wait`, and what the README lists. A failure of the driver
 * while operations run is fatal. */
#ifndef SLUICE_DEVICE_CUDA_CUDA_H
#define SLUICE_DEVICE_CUDA_CUDA_H

#include "lib/cuda/cuda.h"
#include "lib/device/device.h"

/* kernels: of the module, on its current GPU. NULL with *error. Freed by ops->destroy. */
struct device *cuda_device(const struct gpu_kernels *kernels, struct error *error);

#endif
