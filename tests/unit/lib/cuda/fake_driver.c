/* SPDX-License-Identifier: Apache-2.0 */
/* A library in place of the NVIDIA driver and of the CUDA module, for module_test.c:
 * FAKE_GOOD     two GPUs; a module of this version
 * FAKE_OLD      cuInit fails, as without a GPU; a module of another version
 * FAKE_OTHER    the same GPUs; a module of another arithmetic
 * FAKE_NOTHING  a library without any of the functions
 * FAKE_PART     the same, but it needs a library that is missing */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/cuda/cuda.h"

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDeviceGet(int *device, int number);
int cuDeviceGetName(char *name, int bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuGetErrorString(int status, const char **text);

#if !defined FAKE_NOTHING && !defined FAKE_PART
#ifdef FAKE_OLD
#define INIT_STATUS 100
#define INTERFACE   (GPU_INTERFACE + 1)
#else
#define INIT_STATUS 0
#define INTERFACE   GPU_INTERFACE
#endif
#ifdef FAKE_OTHER
#define ARITHMETIC (KERNEL_ARITHMETIC + 1)
#else
#define ARITHMETIC KERNEL_ARITHMETIC
#endif

int cuInit(unsigned flags)
{
    return flags == 0 ? INIT_STATUS : 1;
}

int cuDeviceGetCount(int *count)
{
    *count = 2;
    return 0;
}

int cuDeviceGet(int *device, int number)
{
    *device = number + 40; /* a handle need not be the number */
    return number < 2 ? 0 : 101;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "Fake GPU %d", device - 40);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    *bytes = (size_t)(device - 39) << 33;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == 75 ? 7 + device - 40 : 5;
    return 0;
}

int cuGetErrorString(int status, const char **text)
{
    *text = status == 100 ? "no CUDA-capable device is detected" : NULL;
    return *text ? 0 : 1;
}

const struct gpu_kernels *gpu_kernels(void)
{
    static const struct gpu_kernels table = {.interface = INTERFACE, .arithmetic = ARITHMETIC};
    return &table;
}
#endif
