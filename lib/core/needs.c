/* SPDX-License-Identifier: Apache-2.0 */
/* Computes how much of a device's memory a core takes: a core is created on a device that counts,
 * and has neither memory nor operations. */
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/core/core.h"
#include "lib/device/pointers.h"

#define FIRST ((uint64_t)1 << 40) /* an address that nothing reads */

struct counting {
    struct device device;
    const struct device *like;
    uint64_t at;
};

static struct counting *counting_of(struct device *d)
{
    return (struct counting *)(void *)d;
}

static int allocate(struct device *d, size_t bytes, struct device_at *out, struct error *error)
{
    (void)error;
    struct counting *c = counting_of(d);
    *out = (struct device_at){c->at};
    c->at += align_up(bytes, DEVICE_ALIGN);
    return 0;
}

static void release(struct device *d, struct device_at at)
{
    (void)d, (void)at;
}

static void write_bytes(struct device *d, struct device_at to, const void *from, size_t bytes)
{
    (void)d, (void)to, (void)from, (void)bytes;
}

static void read_bytes(struct device *d, struct device_at from, void *to, size_t bytes)
{
    (void)d, (void)from, (void)to, (void)bytes;
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
    const struct device *like = ((const struct counting *)(const void *)d)->like;
    return like->ops->computes(like, type);
}

static void wait_for_all(struct device *d)
{
    (void)d;
}

static size_t workspace(const struct device *d, const struct device_limits *limits)
{
    const struct device *like = ((const struct counting *)(const void *)d)->like;
    return like->ops->workspace(like, limits);
}

static void use_workspace(struct device *d, const struct device_limits *limits, struct device_at at)
{
    (void)d, (void)limits, (void)at;
}

#define OP(name)                                                                                   \
    static void nothing_##name(struct device *d, const struct op_##name *a)                        \
    {                                                                                              \
        (void)d, (void)a;                                                                          \
    }
#include "lib/device/ops.tbl.h"

static const struct device_ops table = {
    .allocate = allocate,
    .release = release,
    .write = write_bytes,
    .read = read_bytes,
    .matrix = matrix,
    .share = share,
    .computes = computes,
    .wait = wait_for_all,
    .workspace = workspace,
    .use_workspace = use_workspace,
#define OP(name) .name = nothing_##name,
#include "lib/device/ops.tbl.h"
};

static const void *dense(void *self, uint32_t entry)
{
    (void)self, (void)entry;
    return (const void *)(uintptr_t)FIRST;
}

int core_device_bytes(const struct core_config *config, uint64_t *bytes, struct error *error)
{
    struct device_ops ops = table;
    struct counting c = {.device = {.ops = &ops,
                                    .is_host = false,
                                    .lacks_ngrams = config->device->lacks_ngrams,
                                    .lacks_choice = config->device->lacks_choice,
                                    .lacks_mixing = config->device->lacks_mixing,
                                    .lacks_window = config->device->lacks_window,
                                    .lacks_tables = config->device->lacks_tables},
                         .like = config->device,
                         .at = FIRST};
    struct core_config counted = *config;
    ops.name = config->device->ops->name;
    counted.device = &c.device;
    counted.source = (struct weights_source){.dense = dense};
    struct core *core = core_create(&counted, error);
    if (!core)
        return -1;
    core_destroy(core);
    *bytes = c.at - FIRST;
    return 0;
}
