/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the device for tests over the host device: tagged addresses, late operations, guarded
 * copies. */
#include "tests/unit/lib/device/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/device/host/host.h"
#include "lib/device/pointers.h"
#include "lib/kernels/kv_layout.h"

#define CHECKED_MAGIC 0x43484b44u
#define AROUND        256 /* bytes before and after a copy; a multiple of 64 */

struct range {
    uint64_t base, bytes;
};

struct kept { /* a copy of an array in host memory */
    struct kept *next;
    _Alignas(16) uint8_t data[];
};

struct copy { /* memory of an operation that runs */
    void *memory, *block;
    size_t bytes;
    bool written;
};

#define COPIES_MAX (64 + 4 * DEVICE_SEQUENCES_MAX)

/* Keys or values of a sequence, [positions][heads][size] in tiles. */
struct cache {
    enum kv_type type;
    enum kv_side side;
    uint32_t heads, size, ring;
};

/* Rows of an operation that runs, which are moved from its copy to the memory of the device. */
struct appended {
    struct cache cache;
    struct device_span span;
    uint8_t *memory;
    const uint8_t *copy;
};

struct submitted {
    void (*run)(struct device *d, void *args);
    void *args;
};

struct checked {
    struct device device;
    uint32_t magic;
    struct device *host;
    struct range *range;
    size_t ranges, range_space;
    struct submitted *queue;
    uint32_t pending;
    size_t queue_space;
    struct kept *kept;
    struct copy copy[COPIES_MAX];
    uint32_t copies;
    struct appended appended[2 * DEVICE_SEQUENCES_MAX];
    uint32_t appends;
    const char *now; /* the operation that runs */
    bool bad;        /* it has a fault */
    uint32_t faults;
    char first[200];
    uint64_t count[DEVICE_OP__COUNT];
};

static struct checked *checked_of(struct device *d)
{
    struct checked *c = (struct checked *)(void *)d;
    OBJ_CHECK(c, CHECKED_MAGIC);
    return c;
}

static void *memory_of(struct device_at at)
{
    return untagged(device_pointer(at));
}

static const struct device *entered; /* NULL: none was */

static void enter(struct device *d)
{
    entered = d;
}

static void fault(struct checked *c, const char *field, uint64_t address, size_t bytes)
{
    if (c->faults++ == 0)
        snprintf(c->first, sizeof c->first, "%s of %s: %zu bytes at %llx", field, c->now, bytes,
                 (unsigned long long)address);
    c->bad = true;
}

/* The thread uses another device now. */
static void check_entered(struct checked *c, const char *what)
{
    c->now = "no operation";
    if (entered && entered != &c->device)
        fault(c, what, 0, 0);
}

static bool known(const struct checked *c, uint64_t address, size_t bytes)
{
    for (size_t i = 0; i < c->ranges; i++)
        if (address >= c->range[i].base && address + bytes <= c->range[i].base + c->range[i].bytes)
            return true;
    return false;
}

/* The address on the host, of memory that has so many bytes. */
static struct device_at direct(struct checked *c, const char *field, struct device_at at,
                               size_t bytes)
{
    if (!at.address)
        return at;
    if (!known(c, at.address, bytes)) {
        fault(c, field, at.address, bytes);
        return (struct device_at){0};
    }
    return device_address(memory_of(at));
}

/* Memory in place of these bytes, NaN everywhere. */
static struct device_at blank(struct checked *c, const char *field, struct device_at at,
                              size_t bytes, bool written)
{
    struct device_at real = direct(c, field, at, bytes);
    if (!real.address)
        return real;
    sl_assert(c->copies < COPIES_MAX);
    struct copy *copy = &c->copy[c->copies++];
    *copy = (struct copy){.memory = memory_of(at), .bytes = bytes, .written = written};
    size_t all = (2 * AROUND + bytes + 63) / 64 * 64;
    copy->block = aligned_alloc(64, all);
    sl_assert(copy->block);
    memset(copy->block, 0xff, all);
    return device_offset(device_address(copy->block), AROUND);
}

/* The address of a copy of exactly these bytes. */
static struct device_at copied(struct checked *c, const char *field, struct device_at at,
                               size_t bytes, bool written)
{
    struct device_at copy = blank(c, field, at, bytes, written);
    if (copy.address)
        memcpy(device_pointer(copy), memory_of(at), bytes);
    return copy;
}

/* Moves the bytes of a position of all heads. */
static void move_row(const struct cache *k, uint32_t position, const uint8_t *from, uint8_t *to)
{
    uint32_t padded = kv_padded(k->size), at = kernel_ring_position(k->ring, position);
    uint32_t in = at % KV_TILE, per = kv_per_byte(k->type);
    for (uint32_t h = 0; h < k->heads; h++) {
        size_t tile = kernel_kv_tile(k->type, k->heads, k->size, at, h);
        size_t row = kv_tile_bytes(k->type, k->size) / KV_TILE;
        if (!kv_is_quantised(k->type)) {
            memcpy(to + tile + in * row, from + tile + in * row, row);
            continue;
        }
        size_t values = tile + kv_value_row(k->type, padded, in);
        if (k->side == KV_SIDE_VALUES)
            memcpy(to + values, from + values, padded / per);
        for (uint32_t e = 0; k->side == KV_SIDE_KEYS && e < padded; e += 4 * per) {
            size_t word = tile + kv_key_word(k->type, padded, in, e);
            memcpy(to + word, from + word, 4);
        }
        for (uint32_t b = 0; b < padded / QK; b++) {
            size_t scale = tile + kv_scale_offset(k->type, padded, b, in);
            memcpy(to + scale, from + scale, 2);
        }
    }
}

static void end_copies(struct checked *c)
{
    for (uint32_t i = 0; i < c->appends; i++) {
        const struct appended *a = &c->appended[i];
        for (uint32_t p = a->span.first; p < a->span.end; p++)
            move_row(&a->cache, p, a->copy, a->memory);
    }
    c->appends = 0;
    for (uint32_t i = 0; i < c->copies; i++) {
        if (c->copy[i].written)
            memcpy(c->copy[i].memory, (uint8_t *)c->copy[i].block + AROUND, c->copy[i].bytes);
        free(c->copy[i].block);
    }
    c->copies = 0;
}

static void check_matrix(struct checked *c, const char *field, struct device_matrix *m)
{
    m->data = direct(c, field, m->data, (size_t)m->row_bytes * m->n);
}

static void copy_rows(struct checked *c, const char *field, struct device_rows *r, uint32_t rows,
                      bool written)
{
    for (int form = 0; form < FORM__COUNT; form++)
        r->base[form] = copied(c, field, r->base[form], rows * r->stride[form], written);
}

static void *keep(struct checked *c, const void *data, size_t bytes)
{
    struct kept *k = malloc(sizeof *k + bytes);
    sl_assert(k);
    k->next = c->kept;
    c->kept = k;
    if (bytes > 0)
        memcpy(k->data, data, bytes);
    return k->data;
}

/* So many bytes of keys or values of a sequence, which has the rows `span`. */
static struct device_at cache_of(struct checked *c, const char *field, struct device_at at,
                                 size_t bytes, struct device_span span, const struct cache *cache,
                                 unsigned access, uint32_t window)
{
    uint32_t begin = kernel_attention_begin(window, span.first + 1);
    uint32_t end = access & DEVICE_APPENDS ? span.first : span.end;
    struct device_at copy = blank(c, field, at, bytes, false);
    if (!copy.address)
        return copy;
    uint8_t *memory = device_pointer(copy);
    for (uint32_t p = begin; access & DEVICE_READS && p < end; p++)
        move_row(cache, p, memory_of(at), memory);
    if (access & DEVICE_APPENDS) {
        sl_assert(c->appends < 2 * DEVICE_SEQUENCES_MAX);
        c->appended[c->appends++] = (struct appended){*cache, span, memory_of(at), memory};
    }
    return copy;
}

/* Keys of the indexer; a row has a unit if it ends there. */
static struct device_at index_of(struct checked *c, struct device_at at,
                                 const struct device_sequence *s, struct device_span span,
                                 const struct device_index *shape, unsigned access)
{
    size_t bytes = device_index_bytes(shape, s->index_type, span.end);
    span = (struct device_span){span.first / shape->unit, span.end / shape->unit};
    struct cache cache = {s->index_type, KV_SIDE_KEYS, 1, shape->size, 0};
    if (span.end == 0)
        return (struct device_at){0};
    return cache_of(c, "index", at, bytes, span, &cache, access, 0);
}

/* Entries and their keys; those that are there before may be written with what they have. */
static struct device_at entries_of(struct checked *c, struct device_at at,
                                   const struct device_sequence *s, struct device_span span,
                                   const struct device_entries *shape, unsigned access)
{
    if (shape->unit == 0)
        return (struct device_at){0};
    return copied(c, "index", at, device_entry_bytes(shape, s->index_type, span.end),
                  access & DEVICE_APPENDS);
}

static void check_chosen(struct checked *c, struct device_chosen *chosen, uint32_t rows)
{
    size_t lists = (size_t)rows * (chosen->lists > 1 ? chosen->lists : 1);
    if (!chosen->count.address)
        return;
    chosen->at =
        copied(c, "chosen.at", chosen->at, lists * chosen->stride * sizeof(uint32_t), false);
    chosen->count = copied(c, "chosen.count", chosen->count, lists * sizeof(uint32_t), false);
}

static struct device_at state_of(struct checked *c, const char *field, struct device_at at,
                                 unsigned access, size_t floats)
{
    return access == DEVICE_WRITES ? blank(c, field, at, floats * sizeof(float), true)
                                   : copied(c, field, at, floats * sizeof(float), false);
}

/* The sequences of an operation, without addresses. */
static struct device_sequence *bare_sequences(struct checked *c, const struct device_sequence *all,
                                              size_t count)
{
    struct device_sequence *s = keep(c, all, count * sizeof *all);
    for (size_t i = 0; i < count; i++)
        s[i].keys = s[i].values = s[i].index = s[i].state = s[i].next_state = (struct device_at){0};
    return s;
}

static void check_products(struct checked *c, const struct device_product *all, size_t count,
                           uint32_t rows)
{
    struct device_product *p = (struct device_product *)all;
    for (size_t i = 0; i < count; i++) {
        size_t floats = (rows - 1) * p[i].y_stride + p[i].w.n;
        check_matrix(c, "matrix", &p[i].w);
        p[i].scale = direct(c, "scale", p[i].scale, sizeof(float));
        p[i].y = direct(c, "y", p[i].y, floats * sizeof(float));
    }
}

static void check_jobs(struct checked *c, const struct device_job *all, size_t count)
{
    struct device_job *job = (struct device_job *)all;
    for (size_t i = 0; i < count; i++)
        for (int m = 0; m < EXPERT__COUNT; m++) {
            uint32_t n = job[i].matrix[m].n;
            check_matrix(c, "matrix", &job[i].matrix[m]);
            job[i].scale[m] = direct(c, "scale", job[i].scale[m], sizeof(float));
            job[i].bias[m] = direct(c, "bias", job[i].bias[m], n * sizeof(float));
        }
}

/* ---- queue ---- */

static void enqueue(struct checked *c, void (*run)(struct device *d, void *args), void *args)
{
    check_entered(c, "a submission");
    if (c->pending == c->queue_space) {
        c->queue_space = c->queue_space * 2 + 16;
        c->queue = realloc(c->queue, c->queue_space * sizeof *c->queue);
        sl_assert(c->queue);
    }
    c->queue[c->pending++] = (struct submitted){run, args};
}

static void wait_for_all(struct device *d)
{
    struct checked *c = checked_of(d);
    check_entered(c, "a wait");
    c->host->alive = d->alive;
    c->host->alive_self = d->alive_self;
    for (uint32_t i = 0; i < c->pending; i++)
        c->queue[i].run(d, c->queue[i].args);
    c->pending = 0;
    for (struct kept *k = c->kept, *next; k; k = next) {
        next = k->next;
        free(k);
    }
    c->kept = NULL;
}

static enum kv_side side_of(const char *field)
{
    return strcmp(field, "keys") == 0 ? KV_SIDE_KEYS : KV_SIDE_VALUES;
}

/* run_NAME: arguments for the host, the operation, results. `a`: as they were submitted. */
#define OP(name)                                                                                   \
    static void run_##name(struct device *d, void *args)                                           \
    {                                                                                              \
        struct checked *c = checked_of(d);                                                         \
        const struct op_##name *a = args;                                                          \
        struct op_##name real = *a;                                                                \
        c->now = #name;                                                                            \
        c->bad = false;
#define OP_READ(name, bytes)      real.name = copied(c, #name, a->name, bytes, false);
#define OP_WRITE(name, bytes)     real.name = copied(c, #name, a->name, bytes, true);
#define OP_MATRIX(name)           check_matrix(c, #name, &real.name);
#define OP_READ_ROWS(name, rows)  copy_rows(c, #name, &real.name, rows, false);
#define OP_WRITE_ROWS(name, rows) copy_rows(c, #name, &real.name, rows, true);
#define OP_CHOSEN(name, rows)     check_chosen(c, &real.name, rows);
#define OP_SEQUENCES(name, count)                                                                  \
    struct device_sequence *bare = bare_sequences(c, a->name, count);                              \
    real.name = bare;
#define EACH_SEQUENCE(span)                                                                        \
    for (uint32_t i = 0; i < a->sequences; i++)                                                    \
        for (struct device_span span = device_span_of(a->row, a->rows, i); span.end > 0;           \
             span.end = 0)
#define OP_CACHE(field, access, heads, size, window)                                               \
    EACH_SEQUENCE(span)                                                                            \
    bare[i].field = cache_of(c, #field, a->sequence[i].field,                                      \
                             device_cache_bytes(&a->sequence[i], span.end, heads, size), span,     \
                             &(struct cache){a->sequence[i].kv_type, side_of(#field), heads, size, \
                                             a->sequence[i].ring},                                 \
                             access, window);
#define OP_INDEX(access, shape)                                                                    \
    EACH_SEQUENCE(span)                                                                            \
    bare[i].index = index_of(c, a->sequence[i].index, &a->sequence[i], span, shape, access);
#define OP_ENTRIES(access, shape)                                                                  \
    EACH_SEQUENCE(span)                                                                            \
    bare[i].index = entries_of(c, a->sequence[i].index, &a->sequence[i], span, shape, access);
#define OP_STATE(field, access, floats)                                                            \
    EACH_SEQUENCE(span)                                                                            \
    bare[i].field = state_of(c, #field, a->sequence[i].field, access, floats);
#define OP_PRODUCTS(name, count) check_products(c, a->name, count, a->rows);
#define OP_JOBS(name, count)     check_jobs(c, a->name, count);
#define OP_END(name)                                                                               \
    if (!c->bad) {                                                                                 \
        c->host->ops->name(c->host, &real);                                                        \
        c->count[DEVICE_OP_##name]++;                                                              \
    }                                                                                              \
    end_copies(c);                                                                                 \
    }
#include "lib/device/ops.tbl.h"

/* submit_NAME: copies of the arguments. */
#define OP(name)                                                                                   \
    static void submit_##name(struct device *d, const struct op_##name *a)                         \
    {                                                                                              \
        struct checked *c = checked_of(d);                                                         \
        struct op_##name *own = keep(c, a, sizeof *a);
#define OP_HOST(type, name, count) own->name = keep(c, a->name, (count) * sizeof *a->name);
#define OP_SEQUENCES(name, count)  own->name = keep(c, a->name, (count) * sizeof *a->name);
#define OP_PRODUCTS(name, count)   own->name = keep(c, a->name, (count) * sizeof *a->name);
#define OP_JOBS(name, count)       own->name = keep(c, a->name, (count) * sizeof *a->name);
#define OP_END(name)                                                                               \
    enqueue(c, run_##name, own);                                                                   \
    }
#include "lib/device/ops.tbl.h"

/* ---- memory ---- */

static void add_range(struct checked *c, uint64_t base, uint64_t bytes)
{
    for (size_t i = 0; i < c->ranges; i++)
        if (c->range[i].base == base) {
            c->range[i].bytes = bytes > c->range[i].bytes ? bytes : c->range[i].bytes;
            return;
        }
    if (c->ranges == c->range_space) {
        c->range_space = c->range_space * 2 + 16;
        c->range = realloc(c->range, c->range_space * sizeof *c->range);
        sl_assert(c->range);
    }
    c->range[c->ranges++] = (struct range){base, bytes};
}

static int allocate(struct device *d, size_t bytes, struct device_at *out, struct error *error)
{
    struct checked *c = checked_of(d);
    struct device_at real;
    check_entered(c, "memory");
    if (c->host->ops->allocate(c->host, bytes, &real, error) != 0)
        return -1;
    memset(device_pointer(real), 0xff, bytes);
    *out = (struct device_at){real.address + HOST_TAG};
    add_range(c, out->address, bytes);
    return 0;
}

static void release(struct device *d, struct device_at at)
{
    struct checked *c = checked_of(d);
    if (!at.address)
        return;
    wait_for_all(d);
    for (size_t i = 0; i < c->ranges; i++)
        if (c->range[i].base == at.address)
            c->range[i] = c->range[--c->ranges];
    c->host->ops->release(c->host, device_address(memory_of(at)));
}

struct written {
    struct device_at to;
    void *from;
    size_t bytes;
};

static void run_write(struct device *d, void *args)
{
    struct checked *c = checked_of(d);
    const struct written *w = args;
    c->now = "write";
    struct device_at real = direct(c, "to", w->to, w->bytes);
    if (real.address)
        memcpy(device_pointer(real), w->from, w->bytes);
}

static void write_bytes(struct device *d, struct device_at to, const void *from, size_t bytes)
{
    struct checked *c = checked_of(d);
    struct written w = {to, keep(c, from, bytes), bytes};
    enqueue(c, run_write, keep(c, &w, sizeof w));
}

static void read_bytes(struct device *d, struct device_at from, void *to, size_t bytes)
{
    struct checked *c = checked_of(d);
    wait_for_all(d);
    c->now = "read";
    struct device_at real = direct(c, "from", from, bytes);
    if (real.address)
        memcpy(to, device_pointer(real), bytes);
}

static struct device_at share(struct device *d, const void *memory, size_t bytes)
{
    struct checked *c = checked_of(d);
    c->now = "share";
    if ((uintptr_t)memory < HOST_TAG) /* the core must not have had a pointer to it */
        fault(c, "memory", (uintptr_t)memory, bytes);
    add_range(c, (uintptr_t)memory, bytes);
    return device_address(memory);
}

static struct device_matrix matrix(struct device *d, const struct kernel_matrix *m,
                                   uint64_t content)
{
    (void)content;
    return device_matrix_at(m, share(d, m->data, (size_t)m->row_bytes * m->n));
}

static bool computes(const struct device *d, enum tensor_type type)
{
    const struct checked *c = (const struct checked *)(const void *)d;
    return c->host->ops->computes(c->host, type);
}

static size_t workspace(const struct device *d, const struct device_limits *limits)
{
    const struct checked *c = (const struct checked *)(const void *)d;
    return c->host->ops->workspace(c->host, limits);
}

static void use_workspace(struct device *d, const struct device_limits *limits, struct device_at at)
{
    struct checked *c = checked_of(d);
    c->now = "use_workspace";
    c->host->ops->use_workspace(c->host, limits, direct(c, "at", at, workspace(d, limits)));
}

static void destroy(struct device *d)
{
    struct checked *c = checked_of(d);
    wait_for_all(d);
    entered = entered == d ? NULL : entered;
    c->host->ops->destroy(c->host);
    free(c->queue);
    free(c->range);
    free(c);
}

static const struct device_ops table = {
    .name = "checked",
    .destroy = destroy,
    .enter = enter,
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
#define OP(name) .name = submit_##name,
#include "lib/device/ops.tbl.h"
};

struct device *checked_device(const struct kernel_ops *kernels, uint32_t threads)
{
    struct error error;
    struct checked *c = calloc(1, sizeof *c);
    sl_assert(c);
    c->device.ops = &table;
    c->magic = CHECKED_MAGIC;
    c->host = host_device(kernels, threads, 0, &error);
    sl_assert(c->host);
    return &c->device;
}

uint32_t checked_pending(const struct device *d)
{
    return ((const struct checked *)(const void *)d)->pending;
}

uint32_t checked_faults(const struct device *d)
{
    return ((const struct checked *)(const void *)d)->faults;
}

const char *checked_fault(const struct device *d)
{
    return ((const struct checked *)(const void *)d)->first;
}

uint64_t checked_count(const struct device *d, enum device_op op)
{
    return ((const struct checked *)(const void *)d)->count[op];
}
