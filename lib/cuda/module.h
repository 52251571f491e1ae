/* SPDX-License-Identifier: Apache-2.0 */
/* The NVIDIA driver and the module with the kernels, both opened with dlopen, so a program starts
 * without either. Nothing here makes a context: no memory of a GPU is used. */
#ifndef SLUICE_CUDA_MODULE_H
#define SLUICE_CUDA_MODULE_H

#include <stdint.h>

#include "lib/base/error.h"
#include "lib/cuda/cuda.h"

#define GPU_DRIVER "libcuda.so.1" /* of the driver, not of the CUDA Toolkit */
#define GPU_MODULE "libsluice_cuda.so"

struct gpu_device {
    char name[128];
    uint64_t memory_bytes;
    uint32_t major, minor; /* compute capability */
};

/* The GPUs that the driver has, in its order, the first `most` of them in `out`. Returns their
 * number; -1 with *error (ERR_NOT_FOUND: there is no driver). */
int gpu_devices(struct gpu_device *out, int most, struct error *error);

/* The kernels of the module in the file; it stays open. NULL with *error: there is no such file
 * (ERR_NOT_FOUND), it is not loadable, or it is of another version. */
const struct gpu_kernels *gpu_module_open(const char *file, struct error *error);

#endif
