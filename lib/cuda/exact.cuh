/* SPDX-License-Identifier: Apache-2.0 */
/* lib/exact as device functions: its source, compiled for the device. */
#ifndef SLUICE_CUDA_EXACT_CUH
#define SLUICE_CUDA_EXACT_CUH

#include "lib/cuda/device.cuh"

namespace
{
BOTH double power_of_two(int64_t n);
BOTH double series_exp(double x, double n);
BOTH double series_log(double m, double n);
#define MAYBE __host__ __device__ __attribute__((unused))
MAYBE double exact_exp(double x);
MAYBE double exact_log(double x);
MAYBE double exact_softplus(double x);
MAYBE void exact_sin_cos(double x, double *sine, double *cosine);
#include "lib/exact/elementary.c"
} // namespace

#endif
