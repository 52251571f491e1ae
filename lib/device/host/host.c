/* SPDX-License-Identifier: Apache-2.0 */
/* The host device: its creation, memory, and table of operations. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/host/internal.h"

/* Multiplications between two reports of progress. Portable: for a CPU without fused multiply-adds,
 * where they are estimated (not measured) to make some 10^8 per second. */
#define STEP_WORK          ((uint64_t)1 << 28)
#define STEP_WORK_PORTABLE ((uint64_t)1 << 25)
/* Fewer outputs would have the AMX kernels transpose the rows more often. */
#define STEP_OUTPUTS 128

static void destroy(struct device *d)
{
    struct host *h = host_of(d);
    pool_destroy(h->pool);
    free(h->thread);
    h->magic = 0;
    free(h);
}

static int allocate(struct device *d, size_t bytes, struct device_at *out, struct error *error)
{
    (void)d;
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu bytes)", bytes);
    *out = device_address(memory);
    return 0;
}

static void release(struct device *d, struct device_at at)
{
    (void)d;
    free(device_pointer(at));
}

static void write_bytes(struct device *d, struct device_at to, const void *from, size_t bytes)
{
    (void)d;
    memcpy(device_pointer(to), from, bytes);
}

static void read_bytes(struct device *d, struct device_at from, void *to, size_t bytes)
{
    (void)d;
    memcpy(to, device_pointer(from), bytes);
}

static struct device_matrix matrix(struct device *d, const struct kernel_matrix *m,
                                   uint64_t content)
{
    (void)d, (void)content;
    return device_matrix_at(m, device_address(m->data));
}

static struct device_at share(struct device *d, const void *memory, size_t bytes)
{
    (void)d, (void)bytes;
    return device_address(memory);
}

static bool computes(const struct device *d, enum tensor_type type)
{
    (void)d;
    return tensor_type_info((uint32_t)type)->computed;
}

static void wait_for_all(struct device *d)
{
    (void)d; /* operations have run when they return */
}

static const struct device_ops table = {
    .name = "host",
    .destroy = destroy,
    .allocate = allocate,
    .release = release,
    .write = write_bytes,
    .read = read_bytes,
    .matrix = matrix,
    .share = share,
    .computes = computes,
    .wait = wait_for_all,
    .workspace = host_workspace,
    .use_workspace = host_use_workspace,
#define OP(name) .name = host_op_##name,
#include "lib/device/ops.tbl.h"
};

struct device *host_device(const struct kernel_ops *kernels, uint32_t threads, int nice,
                           struct error *error)
{
    struct host *h = calloc(1, sizeof *h);
    struct host_thread *thread = calloc(threads, sizeof *thread);
    const bool portable = kernels->isa == ISA_GENERIC;
    const uint64_t step_work = portable ? STEP_WORK_PORTABLE : STEP_WORK;
    struct pool *pool =
        h && thread ? pool_create(threads, nice, STEPS_PER_PART * step_work, error) : NULL;
    if (!pool) {
        if (!h || !thread)
            error_set(error, ERR_NO_MEMORY, "out of memory (threads of the model core)");
        free(thread);
        free(h);
        return NULL;
    }
    *h = (struct host){.device = {.ops = &table, .is_host = true},
                       .magic = HOST_MAGIC,
                       .kernels = kernels,
                       .pool = pool,
                       .threads = threads,
                       .thread = thread,
                       .step_work = step_work,
                       .step_outputs = portable ? COLUMN_UNIT : STEP_OUTPUTS};
    return &h->device;
}
