/* SPDX-License-Identifier: Apache-2.0 */
/* The device: its creation, memory, and table of operations. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

#define SCRATCH_BYTES ((size_t)4 << 20) /* of the first block; each further one has twice that */
#define SCRATCH_ALIGN 256

void cuda_check(int status, const char *what)
{
    if (status != 0)
        log_fatal(1, "GPU: %s failed (%d)", what, status);
}

void cuda_to_device(struct cuda *c, void *to, const void *from, size_t bytes)
{
    cuda_check(c->k->upload(to, from, bytes, NULL), "a copy to the GPU");
}

void cuda_to_host(struct cuda *c, void *to, const void *from, size_t bytes)
{
    cuda_check(c->k->download(to, from, bytes, NULL), "a copy from the GPU");
}

void cuda_wait(struct cuda *c)
{
    cuda_check(c->k->wait(NULL), "an operation");
    c->kept_count = 0;
}

void *cuda_scratch(struct cuda *c, size_t bytes)
{
    size_t block = SCRATCH_BYTES;
    bytes = align_up(bytes > 0 ? bytes : 1, SCRATCH_ALIGN);
    for (int i = 0; i < SCRATCH_BLOCKS; i++, block *= 2) {
        struct scratch *s = &c->scratch[i];
        if (!s->memory && block >= bytes) {
            s->bytes = block;
            cuda_check(c->k->allocate(block, &s->memory), "an allocation of scratch memory");
        }
        if (s->memory && s->bytes - s->used >= bytes) {
            s->used += bytes;
            return (uint8_t *)s->memory + s->used - bytes;
        }
    }
    log_fatal(1, "GPU: an operation needs too much scratch memory");
}

void *cuda_upload(struct cuda *c, const void *from, size_t bytes)
{
    void *to = cuda_scratch(c, bytes);
    if (bytes > 0)
        cuda_to_device(c, to, from, bytes);
    return to;
}

static int allocate(struct device *d, size_t bytes, struct device_at *out, struct error *error)
{
    void *memory;
    int status = cuda_of(d)->k->allocate(bytes, &memory);
    if (status != 0)
        return error_set(error, ERR_NO_MEMORY, "out of GPU memory (%zu bytes, error %d)", bytes,
                         status);
    *out = device_address(memory);
    return 0;
}

static void release(struct device *d, struct device_at at)
{
    struct cuda *c = cuda_of(d);
    if (!at.address)
        return;
    cuda_wait(c);
    cuda_check(c->k->release(device_pointer(at)), "a release of memory");
}

static void write_bytes(struct device *d, struct device_at to, const void *from, size_t bytes)
{
    cuda_to_device(cuda_of(d), device_pointer(to), from, bytes);
}

static void read_bytes(struct device *d, struct device_at from, void *to, size_t bytes)
{
    struct cuda *c = cuda_of(d);
    cuda_to_host(c, to, device_pointer(from), bytes);
    cuda_wait(c);
}

static void wait_for_all(struct device *d)
{
    struct cuda *c = cuda_of(d);
    cuda_wait(c);
    cuda_end_lent(c);
}

static bool computes(const struct device *d, enum tensor_type type)
{
    return ((const struct cuda *)(const void *)d)->k->alignment(type) != 0;
}

/* Scratch is allocated when it is first needed. */
static size_t workspace(const struct device *d, const struct device_limits *limits)
{
    (void)d, (void)limits;
    return 0;
}

static void use_workspace(struct device *d, const struct device_limits *limits, struct device_at at)
{
    (void)d, (void)limits, (void)at;
}

static void destroy(struct device *d)
{
    struct cuda *c = cuda_of(d);
    cuda_wait(c);
    cuda_free_mirrors(c);
    for (int i = 0; i < SCRATCH_BLOCKS; i++)
        if (c->scratch[i].memory)
            c->k->release(c->scratch[i].memory);
    c->magic = 0;
    free(c);
}

/* ---- operations: their sequences, before and after ---- */

static struct cuda *begin(struct device *d)
{
    struct cuda *c = cuda_of(d);
    for (int i = 0; i < SCRATCH_BLOCKS; i++)
        c->scratch[i].used = 0;
    return c;
}

/* The sequences without addresses. */
static const struct device_sequence *bare(struct cuda *c, const struct device_sequence *all,
                                          uint32_t count)
{
    sl_assert(count <= DEVICE_SEQUENCES_MAX);
    for (uint32_t i = 0; i < count; i++)
        c->taken[i] = (struct device_sequence){.kv_type = all[i].kv_type, .ring = all[i].ring};
    return c->taken;
}

#define EACH_SEQUENCE(span)                                                                        \
    for (uint32_t i = 0; i < a->sequences; i++)                                                    \
        for (struct device_span span = device_span_of(a->row, a->rows, i); span.end > 0;           \
             span.end = 0)

#define OP(name)                                                                                   \
    static void keep_##name(struct cuda *c, const struct op_##name *a)                             \
    {                                                                                              \
        (void)c, (void)a;
#define OP_CACHE(field, access, heads, size, window)                                               \
    EACH_SEQUENCE(span)                                                                            \
    cuda_keep_cache(c, a->sequence[i].field, c->taken[i].field, &a->sequence[i], span, access,     \
                    heads, size);
#define OP_STATE(field, access, floats)                                                            \
    EACH_SEQUENCE(span)                                                                            \
    cuda_keep_state(c, a->sequence[i].field, c->taken[i].field, access, floats);
#define OP_END(name) }
#include "lib/device/ops.tbl.h"

#define OP(name)                                                                                   \
    static void submit_##name(struct device *d, const struct op_##name *a)                         \
    {                                                                                              \
        struct cuda *c = begin(d);                                                                 \
        struct op_##name real = *a;
#define OP_SEQUENCES(name, count) real.name = bare(c, a->name, count);
#define OP_CACHE(field, access, heads, size, window)                                               \
    EACH_SEQUENCE(span)                                                                            \
    c->taken[i].field = cuda_take_cache(c, a->sequence[i].field, &a->sequence[i], span, access,    \
                                        heads, size, window);
#define OP_STATE(field, access, floats)                                                            \
    EACH_SEQUENCE(span)                                                                            \
    c->taken[i].field = cuda_take_state(c, a->sequence[i].field, access, floats);
#define OP_END(name)                                                                               \
    cuda_op_##name(c, &real);                                                                      \
    keep_##name(c, a);                                                                             \
    }
#include "lib/device/ops.tbl.h"

static const struct device_ops table = {
    .name = "cuda",
    .destroy = destroy,
    .allocate = allocate,
    .release = release,
    .write = write_bytes,
    .read = read_bytes,
    .share = cuda_share,
    .computes = computes,
    .wait = wait_for_all,
    .workspace = workspace,
    .use_workspace = use_workspace,
#define OP(name) .name = submit_##name,
#include "lib/device/ops.tbl.h"
};

struct device *cuda_device(const struct gpu_kernels *kernels, struct error *error)
{
    struct cuda *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(error, ERR_NO_MEMORY, "out of memory (GPU)");
        return NULL;
    }
    *c = (struct cuda){.device = {.ops = &table}, .magic = CUDA_MAGIC, .k = kernels};
    return &c->device;
}
