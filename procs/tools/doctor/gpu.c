/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs of NVIDIA, and the module with the kernels. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/cuda/module.h"
#include "procs/tools/doctor/doctor.h"

#define GPUS_MAX 16
#define USE      "used with --gpu; never run on hardware"

/* libexec/GPU_MODULE, next to this program. */
static void module_path(char *out, size_t bytes)
{
    ssize_t n = readlink("/proc/self/exe", out, bytes - 1);
    out[n > 0 ? n : 0] = 0;
    char *slash = strrchr(out, '/');
    size_t at = slash ? (size_t)(slash + 1 - out) : 0;
    snprintf(out + at, bytes - at, GPU_MODULE);
}

static void list_devices(struct findings *f)
{
    struct gpu_device device[GPUS_MAX];
    struct error error;
    int count = gpu_devices(device, GPUS_MAX, &error);
    if (count < 0) {
        finding(f, "gpu", "devices", json_integer(0), "none", "%s", error.text);
        return;
    }
    finding(f, "gpu", "devices", json_integer(count), NULL, USE);
    for (int i = 0; i < count && i < GPUS_MAX; i++) {
        char number[16], text[16];
        snprintf(number, sizeof number, "%d", i);
        finding(f, "gpu", number, json_string(device[i].name), NULL,
                "%s, compute capability %" PRIu32 ".%" PRIu32,
                bytes_format(device[i].memory_bytes, text), device[i].major, device[i].minor);
    }
}

void gpu_examine(struct findings *f)
{
    char path[4096];
    struct error error;
    list_devices(f);
    module_path(path, sizeof path);
    bool there = gpu_module_open(path, &error) != NULL;
    finding(f, "gpu", "kernels", json_boolean(there), NULL, "%s", there ? USE : error.text);
}
