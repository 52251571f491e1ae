/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the NVIDIA driver and the module with dlopen, and lists the GPUs. */
#include "lib/cuda/module.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* Functions of the driver: their names in its library, with the version suffix, and their types
 * (cuda.h of the CUDA Toolkit, which is not needed). */
#define DRIVER_FUNCTIONS(X)                                                                        \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(count, "cuDeviceGetCount", (int *count))                                                     \
    X(device, "cuDeviceGet", (int *device, int number))                                            \
    X(name, "cuDeviceGetName", (char *name, int bytes, int device))                                \
    X(memory, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                                 \
    X(attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                  \
    X(text, "cuGetErrorString", (int status, const char **text))

#define CAPABILITY_MAJOR 75 /* enum CUdevice_attribute */
#define CAPABILITY_MINOR 76

struct driver {
#define X(field, symbol, arguments) int(*field) arguments;
    DRIVER_FUNCTIONS(X)
#undef X
};

/* POSIX has pointers to functions and to objects of one size. */
static bool find(void *library, const char *symbol, void *function)
{
    void *address = dlsym(library, symbol);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static int open_driver(struct driver *d, struct error *error)
{
    void *library = dlopen(GPU_DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        static const char missing[] = GPU_DRIVER ": cannot open shared object file: No such file";
        const char *why = dlerror(); /* begins with the file: the driver, or one that it needs */
        if (strncmp(why, missing, sizeof missing - 1) == 0)
            return error_set(error, ERR_NOT_FOUND, "no NVIDIA driver: " GPU_DRIVER " not found");
        return error_set(error, ERR_FAILED, "the NVIDIA driver cannot be loaded: %s", why);
    }
#define X(field, symbol, arguments)                                                                \
    if (!find(library, symbol, &d->field))                                                         \
        return error_set(error, ERR_FAILED,                                                        \
                         "the NVIDIA driver cannot be used: " GPU_DRIVER " has no " symbol);
    DRIVER_FUNCTIONS(X)
#undef X
    return 0;
}

static int failed(const struct driver *d, const char *what, int status, struct error *error)
{
    const char *text = NULL;
    if (d->text(status, &text) != 0 || !text)
        text = "unknown error";
    return error_set(error, ERR_FAILED, "the NVIDIA driver failed: %s: %s (%d)", what, text,
                     status);
}

static int describe(const struct driver *d, int number, struct gpu_device *out, struct error *error)
{
    int device, major, minor, status;
    size_t bytes;
    if ((status = d->device(&device, number)) != 0 ||
        (status = d->name(out->name, (int)sizeof out->name, device)) != 0 ||
        (status = d->memory(&bytes, device)) != 0 ||
        (status = d->attribute(&major, CAPABILITY_MAJOR, device)) != 0 ||
        (status = d->attribute(&minor, CAPABILITY_MINOR, device)) != 0)
        return failed(d, "properties of a GPU", status, error);
    out->name[sizeof out->name - 1] = 0;
    out->memory_bytes = bytes;
    out->major = (uint32_t)major;
    out->minor = (uint32_t)minor;
    return 0;
}

int gpu_devices(struct gpu_device *out, int most, struct error *error)
{
    struct driver d = {0};
    int count = 0, status;
    if (open_driver(&d, error) != 0)
        return -1;
    if ((status = d.init(0)) != 0)
        return failed(&d, "cuInit", status, error);
    if ((status = d.count(&count)) != 0)
        return failed(&d, "cuDeviceGetCount", status, error);
    for (int i = 0; i < count && i < most; i++)
        if (describe(&d, i, &out[i], error) != 0)
            return -1;
    return count;
}

const struct gpu_kernels *gpu_module_open(const char *file, struct error *error)
{
    gpu_kernels_fn *kernels;
    if (access(file, F_OK) != 0) {
        error_set(error, ERR_NOT_FOUND, "no CUDA module: %s does not exist (built without nvcc)",
                  file);
        return NULL;
    }
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        error_set(error, ERR_FAILED, "the CUDA module cannot be loaded: %s", dlerror());
        return NULL;
    }
    if (!find(library, "gpu_kernels", &kernels)) {
        error_set(error, ERR_FAILED, "%s is no CUDA module of sluice", file);
        dlclose(library);
        return NULL;
    }
    const struct gpu_kernels *k = kernels();
    if (k->interface != GPU_INTERFACE || k->arithmetic != KERNEL_ARITHMETIC) {
        error_set(error, ERR_FAILED,
                  "%s is of another version (interface %u, arithmetic %u; expected %u and %u)",
                  file, k->interface, k->arithmetic, GPU_INTERFACE, KERNEL_ARITHMETIC);
        dlclose(library);
        return NULL;
    }
    return k;
}
