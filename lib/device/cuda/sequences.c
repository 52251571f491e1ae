/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of sequences on the device. Keys, values and states of the first layers (kv_layers of the
 * layout) stay there from pass to pass; those of the others are copied for each operation. In both
 * cases the host has all of them after a wait: new rows are copied as floats and stored by the
 * host, with the bits that the device stores. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

#define NO_STATE UINT32_MAX

/* ---- what stays ---- */

static struct kept_part *kept_part(struct cuda *c, const struct device_sequence *s,
                                   enum sequence_part part)
{
    uint32_t layer = s->layer - c->layout.first_layer;
    return s->content > 0 && layer < c->layout.kv_layers ? &c->kept[layer].part[part] : NULL;
}

static void cut(struct kept_part *k, uint32_t position)
{
    bool all = k->valid == position || (k->valid > position && k->window == 0);
    if (k->window > 0 && !all)
        k->valid = 0; /* the window before it is another one */
    else if (k->valid > position)
        k->valid = position;
}

void cuda_begin(struct device *d, uint64_t content, uint32_t position, uint32_t rows)
{
    struct cuda *c = cuda_of(d);
    c->pass_rows = rows;
    for (uint32_t i = 0; i < c->layout.kv_layers; i++) {
        struct kept *k = &c->kept[i];
        bool same = k->content == content;
        k->content = content;
        for (int part = PART_keys; part <= PART_values; part++) {
            if (!same)
                k->part[part].valid = 0;
            cut(&k->part[part], position);
        }
        if (!same || k->part[PART_state].valid != position)
            k->part[PART_state].valid = NO_STATE;
    }
}

/* Memory until the device is destroyed: the layout has that of these layers. */
static uint8_t *kept_memory(struct cuda *c, struct kept_part *k, size_t bytes)
{
    if (!k->memory) {
        sl_assert(c->kv_area.used == c->kv_kept);
        k->memory = cuda_take(&c->kv_area, bytes);
        sl_assert(k->memory);
        c->kv_kept = c->kv_area.used;
    }
    return k->memory;
}

/* Memory until the end of the operation. */
static void *take(struct cuda *c, size_t bytes)
{
    void *memory = cuda_take(&c->kv_area, bytes);
    sl_assert(memory); /* the layout has the longest sequence */
    return memory;
}

/* ---- copies to the host ---- */

/* In the host's memory after a wait. */
static struct note *note(struct cuda *c, struct device_at host)
{
    if (c->note_count == NOTES_MAX)
        cuda_wait(c);
    struct note *n = &c->note[c->note_count++];
    *n = (struct note){.host = host};
    return n;
}

static void wait_for_noted(struct cuda *c, struct device_at host)
{
    for (uint32_t i = 0; i < c->note_count; i++)
        if (c->note[i].host.address == host.address) {
            cuda_wait(c);
            return;
        }
}

static void store_rows(const struct cuda *c, const struct note *n)
{
    const struct gpu_kv_store *s = &n->rows;
    uint8_t *tiles = c->pointer(device_pointer(n->host));
    for (uint32_t r = 0; r < s->rows; r++) {
        uint32_t at = kernel_ring_position(s->ring, s->position + r);
        for (uint32_t h = 0; h < s->kv_heads; h++)
            kernel_kv_store(c->host_kernels, s->type, s->side,
                            s->x + r * s->x_stride + (size_t)h * s->head_size, s->head_size,
                            tiles + kernel_kv_tile(s->type, s->kv_heads, s->head_size, at, h),
                            at % KV_TILE);
    }
}

void cuda_store_noted(struct cuda *c)
{
    for (uint32_t i = 0; i < c->note_count; i++)
        if (c->note[i].rows.rows > 0)
            store_rows(c, &c->note[i]);
    c->note_count = 0;
    c->landed = 0;
}

void cuda_keep_rows(struct cuda *c, struct device_at host, const struct gpu_kv_store *rows)
{
    size_t floats = (size_t)rows->head_size * rows->kv_heads;
    sl_assert(rows->x_stride == floats && floats <= c->landing_floats);
    for (uint32_t at = 0, n; at < rows->rows; at += n) {
        if (c->landing_floats - c->landed < floats || c->note_count == NOTES_MAX)
            cuda_wait(c);
        size_t fit = (c->landing_floats - c->landed) / floats;
        n = rows->rows - at < fit ? rows->rows - at : (uint32_t)fit;
        float *to = c->landing + c->landed;
        c->landed += n * floats;
        struct gpu_kv_store part = *rows;
        part.position = rows->position + at;
        part.rows = n;
        cuda_note_rows(c, host, &part, to);
        cuda_to_host(c, to, rows->x + at * floats, n * floats * sizeof *to);
    }
}

void cuda_note_rows(struct cuda *c, struct device_at host, const struct gpu_kv_store *rows,
                    float *x)
{
    struct note *one = note(c, host);
    one->rows = *rows;
    one->rows.x = x;
    c->copied.kv_to_host += rows->rows * rows->x_stride * sizeof *x;
}

/* ---- keys and values ---- */

/* Copies each tile with positions [begin, end): all heads of a tile are next to each other. */
static void upload_tiles(struct cuda *c, const struct device_sequence *s, uint32_t begin,
                         uint32_t end, size_t bytes, const uint8_t *host, uint8_t *memory)
{
    for (uint64_t p = begin / KV_TILE * KV_TILE; p < end; p += KV_TILE) {
        size_t at = kernel_ring_position(s->ring, (uint32_t)p) / KV_TILE * bytes;
        c->copied.kv_to_device += bytes;
        cuda_to_device(c, memory + at, host + at, bytes);
    }
}

struct device_at cuda_take_cache(struct cuda *c, enum sequence_part part, struct device_at host,
                                 const struct device_sequence *s, struct device_span span,
                                 unsigned access, uint32_t heads, uint32_t size, uint32_t window)
{
    struct kept_part *k = kept_part(c, s, part);
    size_t tile = heads * (size_t)kv_tile_bytes(s->kv_type, size);
    uint32_t begin = kernel_attention_begin(window, span.first + 1);
    if (!host.address)
        return host;
    if (cuda_in_token(c))
        cuda_token_uses(c, &(struct token_use){.part = part,
                                               .access = access,
                                               .layer = s->layer,
                                               .heads = heads,
                                               .size = size,
                                               .window = window});
    if (!k) {
        wait_for_noted(c, host);
        uint8_t *memory = take(c, device_cache_bytes(s, span.end, heads, size));
        upload_tiles(c, s, access & DEVICE_READS ? begin : span.first, span.end, tile,
                     device_pointer(host), memory);
        return device_address(memory);
    }
    uint8_t *memory = kept_memory(c, k, device_cache_bytes(s, c->layout.positions, heads, size));
    if (k->host != host.address)
        k->valid = 0;
    k->host = host.address;
    k->window = window;
    if (k->valid < span.first) {
        upload_tiles(c, s, k->valid > begin ? k->valid : begin, span.first, tile,
                     device_pointer(host), memory);
        k->valid = span.first;
    }
    return device_address(memory);
}

void cuda_keep_cache(struct cuda *c, enum sequence_part part, const struct device_sequence *s,
                     struct device_span span, unsigned access)
{
    struct kept_part *k = kept_part(c, s, part);
    if (k && access & DEVICE_APPENDS)
        k->valid = span.end;
}

/* ---- states ---- */

struct device_at cuda_take_state(struct cuda *c, struct device_at host,
                                 const struct device_sequence *s, struct device_span span,
                                 unsigned access, size_t floats)
{
    struct kept_part *k = kept_part(c, s, PART_state);
    size_t bytes = floats * sizeof(float);
    if (!host.address)
        return host;
    if (cuda_in_token(c))
        cuda_token_uses(
            c, &(struct token_use){
                   .part = PART_state, .access = access, .layer = s->layer, .floats = floats});
    if (!k)
        wait_for_noted(c, host);
    void *memory = k ? kept_memory(c, k, bytes) : take(c, bytes);
    if (access & DEVICE_READS && !(k && k->valid == span.first)) {
        c->copied.kv_to_device += bytes;
        cuda_to_device(c, memory, device_pointer(host), bytes);
        if (k)
            k->valid = span.first;
    }
    return device_address(memory);
}

void cuda_keep_state(struct cuda *c, struct device_at host, struct device_at memory,
                     const struct device_sequence *s, struct device_span span, unsigned access,
                     size_t floats)
{
    struct kept_part *k = kept_part(c, s, PART_state);
    if (!host.address || !(access & DEVICE_WRITES))
        return;
    if (k)
        k->valid = span.end;
    c->copied.kv_to_host += floats * sizeof(float);
    cuda_to_host(c, device_pointer(host), device_pointer(memory), floats * sizeof(float));
    note(c, host);
}
