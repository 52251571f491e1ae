/* SPDX-License-Identifier: Apache-2.0 */
/* The device: its creation, memory, and table of operations. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/clock.h"
#include "lib/device/cuda/internal.h"

void cuda_check(const struct cuda *c, int status, const char *what)
{
    if (status == GPU_UNSUPPORTED)
        log_fatal(1, CUDA_FAILURE "%s is not supported by its kernels", what);
    if (status != 0)
        log_fatal(1, CUDA_FAILURE "%s failed: %s (%d)", what, c->k->text(status), status);
}

void cuda_to_device(struct cuda *c, void *to, const void *from, size_t bytes)
{
    c->copied.to_device += bytes;
    cuda_check(c, c->k->upload(to, from, bytes, c->stream), "a copy to the GPU");
}

void cuda_to_host(struct cuda *c, void *to, const void *from, size_t bytes)
{
    c->copied.to_host += bytes;
    cuda_check(c, c->k->download(to, from, bytes, c->stream), "a copy from the GPU");
}

void cuda_wait(struct cuda *c)
{
    sl_assert(c->token.mode != TOKEN_RECORDED);
    cuda_check(c, c->k->wait(c->stream), "an operation");
    if (c->busy_from_ns > 0)
        c->busy_ns += clock_now_ns() - c->busy_from_ns;
    c->busy_from_ns = 0;
    cuda_store_noted(c);
}

/* ---- memory ---- */

void *cuda_take(struct area *area, size_t bytes)
{
    bytes = align_up(bytes > 0 ? bytes : 1, DEVICE_ALIGN);
    if (area->bytes - area->used < bytes)
        return NULL;
    area->used += bytes;
    return area->memory + area->used - bytes;
}

void *cuda_scratch(struct cuda *c, size_t bytes)
{
    void *memory = cuda_take(c->scratch.memory ? &c->scratch : &c->experts_area, bytes);
    sl_assert(memory); /* workspace.c has all operations, layout.c those before */
    return memory;
}

void *cuda_upload(struct cuda *c, const void *from, size_t bytes)
{
    void *to = cuda_scratch(c, bytes);
    if (bytes > 0)
        cuda_to_device(c, to, from, bytes);
    return to;
}

/* ---- host memory on the device ---- */

static void *known(const struct mirrors *m, const void *memory, size_t bytes)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->all[i].host == memory && m->all[i].bytes >= bytes)
            return m->all[i].memory;
    return NULL;
}

static void *weights(struct cuda *c, const struct kernel_matrix *from)
{
    struct mirrors *m = &c->weights;
    size_t bytes = cuda_matrix_bytes(c->k, from);
    void *to = known(m, from->data, bytes);
    if (to)
        return to;
    if (m->count == m->space) {
        m->space = m->space * 2 + 64;
        m->all = realloc(m->all, m->space * sizeof *m->all);
        sl_assert(m->all);
    }
    to = cuda_take(&c->weights_area, bytes);
    sl_assert(to); /* the layout has all of them */
    m->all[m->count++] = (struct mirror){from->data, bytes, to};
    cuda_upload_matrix(c, to, from);
    cuda_use_uploads(c);
    return to;
}

static struct device_matrix matrix(struct device *d, const struct kernel_matrix *m,
                                   uint64_t content)
{
    struct cuda *c = cuda_of(d);
    struct device_matrix there = device_matrix_at(m, (struct device_at){0});
    there.row_bytes = c->k->row_bytes(m->type, m->k);
    if (!m->data || m->n == 0)
        return there;
    there.data = device_address(content > 0 ? cuda_slot(c, content, m) : weights(c, m));
    return there.data.address ? there : device_matrix_at(m, device_address(m->data));
}

static struct device_at share(struct device *d, const void *memory, size_t bytes)
{
    (void)d, (void)bytes;
    return device_address(memory); /* of the host: for cuda_take_* */
}

/* ---- areas ---- */

static int get(struct cuda *c, size_t bytes, const char *what, void **out, struct error *error)
{
    int status = c->k->allocate(bytes, out);
    if (status == 0)
        return 0;
    return error_set(error, ERR_NO_MEMORY, "out of GPU memory (%zu bytes for %s): %s", bytes, what,
                     c->k->text(status));
}

static int get_area(struct cuda *c, struct area *area, size_t bytes, const char *what,
                    struct error *error)
{
    void *memory;
    if (bytes == 0)
        return 0;
    if (get(c, bytes, what, &memory, error) != 0)
        return -1;
    *area = (struct area){.memory = memory, .bytes = bytes};
    return 0;
}

static void drop_area(struct cuda *c, struct area *area)
{
    if (area->memory)
        cuda_check(c, c->k->release(area->memory), "a release of memory");
    *area = (struct area){0};
}

static void enter(struct device *d)
{
    struct cuda *c = cuda_of(d);
    cuda_check(c, c->k->select((int)c->layout.number), "the selection of a GPU");
}

int cuda_reserve(struct device *d, struct error *error)
{
    struct cuda *c = cuda_of(d);
    const uint64_t *bytes = c->layout.bytes;
    int status = c->k->select((int)c->layout.number);
    if (status != 0)
        return error_set(error, ERR_FAILED, "GPU %u cannot be used: %s (%d)", c->layout.number,
                         c->k->text(status), status);
    c->reserved = true;
    int failed = cuda_streams_open(c, error) != 0 ||
                 get_area(c, &c->weights_area, bytes[CUDA_WEIGHTS], "dense weights", error) != 0 ||
                 get_area(c, &c->kv_area, bytes[CUDA_KV], "keys and values", error) != 0 ||
                 get_area(c, &c->experts_area, bytes[CUDA_EXPERTS], "experts", error) != 0 ||
                 cuda_slots_open(c, error) != 0;
    if (!failed)
        c->staging = cuda_take(&c->weights_area, CUDA_STAGING_BYTES);
    if (!failed && c->layout.kv_layers == c->layout.layers)
        d->keeps = gpu_layout_precisions(&c->layout);
    return failed ? -1 : 0;
}

static int allocate(struct device *d, size_t bytes, struct device_at *out, struct error *error)
{
    struct cuda *c = cuda_of(d);
    void *memory;
    sl_assert(c->blocks < BLOCKS_MAX);
    if (get(c, bytes, "activations", &memory, error) != 0)
        return -1;
    c->block[c->blocks++] = (struct block){memory, bytes};
    *out = device_address(memory);
    return 0;
}

static void release(struct device *d, struct device_at at)
{
    struct cuda *c = cuda_of(d);
    uint32_t i = 0;
    if (!at.address)
        return;
    while (i < c->blocks && c->block[i].memory != device_pointer(at))
        i++;
    sl_assert(i < c->blocks);
    c->block[i] = c->block[--c->blocks];
    cuda_wait(c);
    cuda_check(c, c->k->release(device_pointer(at)), "a release of memory");
}

uint64_t cuda_bytes(const struct device *d, enum cuda_part part)
{
    const struct cuda *c = (const struct cuda *)(const void *)d;
    uint64_t bytes = 0;
    switch (part) {
    case CUDA_WEIGHTS: return c->weights_area.bytes;
    case CUDA_KV: return c->kv_area.bytes;
    case CUDA_EXPERTS: return c->experts_area.bytes;
    case CUDA_ACTIVATIONS:
        for (uint32_t i = 0; i < c->blocks; i++)
            bytes += align_up(c->block[i].bytes, DEVICE_ALIGN);
        return bytes;
    case CUDA_CONTEXT:
    case CUDA_PART__COUNT: break;
    }
    return 0;
}

struct places_counts cuda_slot_counts(const struct device *d)
{
    const struct cuda *c = (const struct cuda *)(const void *)d;
    return c->slots.places ? places_counts(c->slots.places) : (struct places_counts){0};
}

bool cuda_holds_all(const struct device *d)
{
    return gpu_layout_holds(&((const struct cuda *)(const void *)d)->layout, CUDA_PRECISIONS_ALL);
}

uint32_t cuda_slots_used(const struct device *d)
{
    const struct cuda *c = (const struct cuda *)(const void *)d;
    return c->slots.places ? places_used(c->slots.places) : 0;
}

uint32_t cuda_slots(const struct device *d)
{
    const struct cuda *c = (const struct cuda *)(const void *)d;
    return c->slots.places ? places_capacity(c->slots.places) : 0;
}

uint64_t cuda_graph_launches(const struct device *d)
{
    return ((const struct cuda *)(const void *)d)->token.graph_launches;
}

uint64_t cuda_busy_ns(const struct device *d)
{
    return ((const struct cuda *)(const void *)d)->busy_ns;
}

struct cuda_copied cuda_copied(const struct device *d)
{
    return ((const struct cuda *)(const void *)d)->copied;
}

/* ---- the table's functions ---- */

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
    cuda_end_leases(c);
    c->pass_rows = 0; /* it ends */
}

/* Experts were copied when they were shared. */
static void give_back(struct device *d)
{
    cuda_end_leases(cuda_of(d));
}

static void prefetch(struct device *d, const struct device_expert *expert, uint32_t count)
{
    cuda_prefetch_experts(cuda_of(d), expert, count);
}

void cuda_prefetch(struct device *d)
{
    d->prefetches = cuda_of(d)->layout.slot_bytes > 0;
}

static bool computes(const struct device *d, enum tensor_type type)
{
    return ((const struct cuda *)(const void *)d)->k->alignment(type) != 0;
}

void cuda_use_workspace(struct device *d, const struct device_limits *limits, struct device_at at)
{
    struct cuda *c = cuda_of(d);
    size_t bytes = cuda_workspace(d, limits);
    sl_assert(!c->scratch.memory); /* one core */
    cuda_used(c);                  /* the experts' area, as scratch */
    c->attend = device_pointer(at);
    c->attend_bytes = cuda_attend_bytes(c, limits);
    size_t token = cuda_token_bytes(c, limits);
    c->scratch = (struct area){.memory = c->attend + c->attend_bytes + token,
                               .bytes = bytes - c->attend_bytes - token};
    c->landing_floats =
        (size_t)(limits->rows > c->layout.layers ? limits->rows : c->layout.layers) *
        limits->kv_floats;
    cuda_token_open(c, limits, c->attend + c->attend_bytes);
    cuda_cooperate_open(c, limits);
    cuda_batch_open(c, limits);
    void *landing;
    cuda_check(c, c->k->host_allocate(c->landing_floats * sizeof *c->landing, &landing),
               "pinned memory");
    c->landing = landing;
}

static void destroy(struct device *d)
{
    struct cuda *c = cuda_of(d);
    if (c->reserved) {
        enter(d);
        cuda_wait(c);
        drop_area(c, &c->weights_area);
        drop_area(c, &c->kv_area);
        drop_area(c, &c->experts_area);
        cuda_slots_close(c);
        if (c->landing)
            cuda_check(c, c->k->host_release(c->landing), "a release of memory");
        cuda_cooperate_close(c);
        cuda_token_close(c);
        cuda_streams_close(c);
    }
    if (c->cooperate.host)
        c->cooperate.host->ops->destroy(c->cooperate.host);
    cuda_batch_close(c);
    free(c->weights.all);
    free(c->kept);
    c->magic = 0;
    free(c);
}

/* ---- operations: their sequences, before and after ---- */

struct cuda *cuda_operation(struct device *d)
{
    struct cuda *c = cuda_of(d);
    if (c->busy_from_ns == 0)
        c->busy_from_ns = clock_now_ns();
    c->scratch.used = 0;
    c->kv_area.used = c->kv_kept;
    if (!c->scratch.memory)
        c->experts_area.used = 0;
    return c;
}

/* The sequences without addresses. */
static const struct device_sequence *bare(struct cuda *c, const struct device_sequence *all,
                                          uint32_t count)
{
    sl_assert(count <= DEVICE_SEQUENCES_MAX);
    c->given = all;
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
    cuda_keep_cache(c, PART_##field, &a->sequence[i], span, access);
#define OP_STATE(field, access, floats)                                                            \
    EACH_SEQUENCE(span)                                                                            \
    cuda_keep_state(c, a->sequence[i].field, c->taken[i].field, &a->sequence[i], span, access,     \
                    floats);
#define OP_END(name) }
#include "lib/device/ops.tbl.h"

#define OP(name)                                                                                   \
    static void submit_##name(struct device *d, const struct op_##name *a)                         \
    {                                                                                              \
        struct cuda *c = cuda_operation(d);                                                        \
        struct op_##name real = *a;
#define OP_SEQUENCES(name, count) real.name = bare(c, a->name, count);
#define OP_CACHE(field, access, heads, size, window)                                               \
    EACH_SEQUENCE(span)                                                                            \
    c->taken[i].field = cuda_take_cache(c, PART_##field, a->sequence[i].field, &a->sequence[i],    \
                                        span, access, heads, size, window);
#define OP_STATE(field, access, floats)                                                            \
    EACH_SEQUENCE(span)                                                                            \
    c->taken[i].field =                                                                            \
        cuda_take_state(c, a->sequence[i].field, &a->sequence[i], span, access, floats);
#define OP_END(name)                                                                               \
    cuda_op_##name(c, &real);                                                                      \
    if (!cuda_in_token(c)) /* else at its end */                                                   \
        keep_##name(c, a);                                                                         \
    }
#include "lib/device/ops.tbl.h"

static const struct device_ops table = {
    .name = "cuda",
    .destroy = destroy,
    .enter = enter,
    .allocate = allocate,
    .release = release,
    .write = write_bytes,
    .read = read_bytes,
    .matrix = matrix,
    .share = share,
    .begin = cuda_begin,
    .computes = computes,
    .wait = wait_for_all,
    .give_back = give_back,
    .prefetch = prefetch,
    .has = cuda_has,
    .lost = cuda_lost,
    .keep = cuda_keep,
    .used = cuda_use,
    .token_begins = cuda_token_begins,
    .token_ends = cuda_token_ends,
    .routed_experts = cuda_routed_experts,
    .workspace = cuda_workspace,
    .use_workspace = cuda_use_workspace,
#define OP(name) .name = submit_##name,
#include "lib/device/ops.tbl.h"
};

static void *as_shared(const void *shared)
{
    return (void *)shared;
}

void cuda_pointers(struct device *d, void *(*pointer)(const void *shared))
{
    cuda_of(d)->pointer = pointer;
}

struct device *cuda_device(const struct gpu_kernels *kernels, const struct kernel_ops *host,
                           const struct gpu_layout *layout, struct error *error)
{
    struct cuda *c = calloc(1, sizeof *c);
    if (!c) {
        error_set(error, ERR_NO_MEMORY, "out of memory (GPU)");
        return NULL;
    }
    *c = (struct cuda){.device = {.ops = &table,
                                  .lacks_ngrams = true,
                                  .lacks_choice = true,
                                  .lacks_mixing = true,
                                  .lacks_window = true,
                                  .lacks_tables = true,
                                  .lent_max = gpu_layout_lent_max(layout)},
                       .magic = CUDA_MAGIC,
                       .k = kernels,
                       .layout = *layout,
                       .kept = calloc(layout->kv_layers + 1, sizeof *c->kept),
                       .host_kernels = host,
                       .pointer = as_shared};
    sl_assert(c->kept);
    return &c->device;
}
