/* SPDX-License-Identifier: Apache-2.0 */
/* Layout after the header: homes of pages, token logs, log-probabilities, most probable tokens,
 * struct kv_extra of each request, logs of the slots, then the keys and values of each slot: for
 * every layer a region of keys and one of values, and then for every layer one of its indexer's
 * keys, `context` positions long (or a ring) in whole tiles, page-aligned. A sequence's part of
 * each region is a prefix that can be allocated and punched separately. Last, the versions of the
 * state, each of whole pages. */
#include "shm/kv/kv.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "shm/kv/pages.h"
#include "shm/kv/regions.h"
#include "shm/kv/window.h"

_Static_assert(sizeof(float) == sizeof(uint32_t), "logs and log-probabilities have equal rows");

uint64_t kv_region_bytes(const struct kv_head *h, uint32_t region, uint64_t tokens)
{
    if (kv_region_is_ring(h, region) && tokens > h->ring)
        tokens = h->ring;
    uint64_t tiles = (tokens + KV_TILE - 1) / KV_TILE;
    return align_up(tiles * kv_region_tile_bytes(h, region), PAGE_BYTES);
}

uint64_t kv_regions_bytes(const struct kv_head *h, uint32_t regions, uint64_t tokens)
{
    uint64_t bytes = 0;
    for (uint32_t region = 0; region < regions; region++)
        bytes += kv_region_bytes(h, region, tokens);
    return bytes;
}

/* Of the windows in a version. */
static uint64_t windows_bytes(const struct kv_head *h)
{
    uint64_t bytes = 0;
    for (uint32_t layer = 0; h->ring > 0 && layer < h->layers; layer++)
        if (h->layer_kind[layer] == LAYER_WINDOW)
            bytes += ((uint64_t)h->tile_bytes[LAYER_WINDOW][KV_SIDE_KEYS] +
                      h->tile_bytes[LAYER_WINDOW][KV_SIDE_VALUES]) *
                     kv_window_tiles(h);
    return bytes;
}

static uint64_t slots_end(const struct kv_head *h)
{
    return sizeof(struct kv_head) + h->slots * sizeof(struct kv_slot);
}

static uint64_t head_bytes(const struct kv_head *h)
{
    return align_up(slots_end(h) + (uint64_t)h->slots * h->pages, PAGE_BYTES);
}

static uint64_t log_row_bytes(const struct kv_head *h)
{
    return align_up((uint64_t)h->context * sizeof(uint32_t), PAGE_BYTES);
}

static uint64_t tops_row_bytes(const struct kv_head *h)
{
    return align_up((uint64_t)h->context * KV_TOPS_MAX * sizeof(struct kv_top), PAGE_BYTES);
}

static uint64_t extra_row_bytes(void)
{
    return align_up(sizeof(struct kv_extra), PAGE_BYTES);
}

static uint64_t extras_end(const struct kv_head *h)
{
    return h->extras_offset + KV_REQUESTS_MAX * extra_row_bytes();
}

/* Derived sizes; no multiplication can overflow for a checked model (layers, heads and context are
 * bounded in lib/model/arch/arch.h). */
static void fill_shape(struct kv_head *h, const struct kv_shape *shape)
{
    const struct model_hparams *p = shape->model;
    enum kv_type type = shape->type;
    uint32_t context = shape->context;
    h->kv_type = (uint32_t)type;
    h->ring = shape->ring;
    h->window = shape->ring > 0 ? p->window : 0;
    h->layers = p->layers;
    memcpy(h->layer_kind, p->layer_kind, sizeof h->layer_kind);
    for (uint32_t layer = 0; layer < p->layers; layer++)
        for (uint32_t side = 0; side < 2; side++)
            h->tile_bytes[p->layer_kind[layer]][side] =
                (uint32_t)model_kv_bytes(p, layer, side, type, KV_TILE);
    for (uint32_t layer = 0; layer < p->layers; layer++) {
        uint32_t tile = (uint32_t)model_kv_bytes(p, layer, KV_SIDE_INDEX, type, KV_TILE);
        uint32_t size = h->index_tile_bytes[0] != 0 && h->index_tile_bytes[0] != tile;
        if (tile == 0)
            continue;
        sl_assert(h->index_tile_bytes[size] == 0 || h->index_tile_bytes[size] == tile);
        h->index_tile_bytes[size] = tile;
        h->layer_indexed[layer] = (uint8_t)(1 + size);
    }
    h->context = context;
    h->slots = shape->slots;
    h->sequences = shape->sequences;
    h->page_tokens = kv_page_tokens(h);
    h->pages = kv_page_count(h);
    h->homes_offset = slots_end(h);
    h->logs_offset = head_bytes(h);
    h->logprobs_offset = h->logs_offset + KV_REQUESTS_MAX * log_row_bytes(h);
    h->tops_offset = h->logprobs_offset + KV_REQUESTS_MAX * log_row_bytes(h);
    h->extras_offset = h->tops_offset + KV_REQUESTS_MAX * tops_row_bytes(h);
    h->slot_logs_offset = extras_end(h);
    h->kv_offset = h->slot_logs_offset + h->slots * log_row_bytes(h);
    h->kv_slot_bytes = kv_regions_bytes(h, kv_region_count(h), context);
    h->states_offset = h->kv_offset + h->slots * h->kv_slot_bytes;
    h->windows_offset = align_up(model_state_bytes(p), 64);
    h->state_bytes = align_up(h->windows_offset + windows_bytes(h), PAGE_BYTES);
    h->states = shape->states;
    h->states_reserved = shape->states_reserved;
}

/* Positions of a ring that a pass of `chunk` rows cannot spoil; 0: no layer has one. */
static uint32_t ring_for(const struct model_hparams *h, uint32_t chunk)
{
    bool windows = false;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        windows = windows || h->layer_kind[layer] == LAYER_WINDOW;
    return windows && h->window > 0 ? (uint32_t)model_ring_positions(h, chunk) : 0;
}

struct kv_shape kv_shape_of(const struct model_hparams *h, enum kv_type type, uint32_t context,
                            uint32_t chunk, const struct kv_counts *counts)
{
    bool recurrent = model_state_bytes(h) > 0;
    uint32_t working = recurrent ? KV_STATES_WORKING * counts->sequences : 0;
    struct kv_shape all = {.model = h,
                           .type = type,
                           .context = context,
                           .slots = counts->sequences + counts->kept,
                           .sequences = counts->sequences};
    struct kv_shape rings = all;
    uint32_t reserved = counts->reserved > 0 ? counts->reserved : 1;
    uint32_t least = (recurrent ? KV_STATES_WORKING * reserved : 0) + counts->checkpoints;
    sl_assert(reserved <= counts->sequences);
    uint32_t states = working + counts->checkpoints + counts->versions;
    all.states = recurrent ? states : 0;
    all.states_reserved = recurrent ? least : 0;
    rings.states = states;
    rings.states_reserved = least;
    rings.ring = ring_for(h, chunk);
    bool smaller = rings.ring > 0 && rings.ring < context &&
                   kv_reserved_bytes(&rings) < kv_reserved_bytes(&all);
    return smaller ? rings : all;
}

uint64_t kv_bytes(const struct kv_shape *shape)
{
    struct kv_head h = {0}; /* only its shape fields are used */
    fill_shape(&h, shape);
    return h.states_offset + h.states * h.state_bytes;
}

uint64_t kv_head_bytes(const struct kv_shape *shape)
{
    struct kv_head h = {0};
    fill_shape(&h, shape);
    return head_bytes(&h);
}

uint64_t kv_reserved_bytes(const struct kv_shape *shape)
{
    return kv_sequence_bytes(shape, shape->context) +
           kv_states_bytes(shape, shape->states_reserved);
}

uint64_t kv_states_bytes(const struct kv_shape *shape, uint32_t states)
{
    struct kv_head h = {0};
    fill_shape(&h, shape);
    return states * h.state_bytes;
}

uint64_t kv_sequence_bytes(const struct kv_shape *shape, uint32_t tokens)
{
    struct kv_head h = {0};
    fill_shape(&h, shape);
    return kv_regions_bytes(&h, kv_region_count(&h), tokens);
}

uint64_t kv_tokens_bytes(const struct kv *kv, uint32_t tokens)
{
    return kv_regions_bytes(kv->head, kv_region_count(kv->head), tokens);
}

uint32_t kv_tokens_within(const struct kv *kv, uint64_t bytes, uint32_t max)
{
    uint32_t low = 0, high = max;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (kv_tokens_bytes(kv, middle) <= bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void kv_format(void *base, const struct kv_shape *shape)
{
    struct kv_head *head = base;
    sl_assert(shape->states <= KV_STATES_MAX && shape->slots <= KV_SLOTS_MAX);
    sl_assert(shape->sequences > 0 && shape->sequences <= shape->slots &&
              shape->sequences <= KV_SEQUENCES_MAX && shape->states_reserved <= shape->states);
    fill_shape(head, shape);
    atomic_store_explicit(&head->next_id, 1, memory_order_relaxed);
    atomic_store_explicit(&head->next_arrival, 1, memory_order_relaxed);
}

static bool kinds_fit(const struct kv_head *h)
{
    if (h->layers > MODEL_LAYERS_MAX)
        return false;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (h->layer_kind[layer] >= LAYER_KIND__COUNT)
            return false;
    return true;
}

static bool rings_fit(const struct kv_head *h)
{
    if (h->ring == 0)
        return h->window == 0;
    return h->ring % KV_TILE == 0 && h->ring < h->context && h->window > 0 && h->window <= h->ring;
}

static bool slots_fit(const struct kv_head *h)
{
    return h->slots <= KV_SLOTS_MAX && h->sequences > 0 && h->sequences <= h->slots &&
           h->sequences <= KV_SEQUENCES_MAX;
}

static bool states_fit(const struct kv_head *h, uint64_t bytes)
{
    uint32_t working = h->windows_offset > 0 ? KV_STATES_WORKING * h->sequences : 0;
    return rings_fit(h) && h->windows_offset <= bytes && h->windows_offset % 64 == 0 &&
           h->state_bytes == align_up(h->windows_offset + windows_bytes(h), PAGE_BYTES) &&
           h->states >= working && h->states <= KV_STATES_MAX && h->states_reserved <= h->states &&
           (working == 0 || h->states_reserved >= KV_STATES_WORKING) && h->state_bytes <= bytes &&
           h->states_offset + h->states * h->state_bytes <= bytes;
}

static bool pages_fit(const struct kv_head *h)
{
    if (h->page_tokens == 0 || h->page_tokens > MODEL_CONTEXT_MAX ||
        h->page_tokens % kv_page_tokens(h) != 0)
        return false;
    return h->pages == kv_page_count(h) && h->homes_offset == slots_end(h);
}

static bool logs_fit(const struct kv_head *h)
{
    return h->logs_offset == head_bytes(h) &&
           h->logprobs_offset == h->logs_offset + KV_REQUESTS_MAX * log_row_bytes(h) &&
           h->tops_offset == h->logprobs_offset + KV_REQUESTS_MAX * log_row_bytes(h) &&
           h->extras_offset == h->tops_offset + KV_REQUESTS_MAX * tops_row_bytes(h) &&
           h->slot_logs_offset == extras_end(h) &&
           h->kv_offset == h->slot_logs_offset + h->slots * log_row_bytes(h);
}

int kv_attach(int fd, bool writable, uint64_t boot, struct kv *out, struct error *error)
{
    struct segment s;
    if (segment_attach(fd, SEGMENT_KV, writable, boot, &s, error) != 0)
        return -1;
    struct kv_head *h = s.base;
    bool fits = s.bytes >= sizeof *h && h->context > 0 && h->context <= MODEL_CONTEXT_MAX &&
                h->layers > 0 && kinds_fit(h) && kv_type_info(h->kv_type) != NULL && slots_fit(h) &&
                pages_fit(h) && logs_fit(h) &&
                h->kv_slot_bytes == kv_regions_bytes(h, kv_region_count(h), h->context) &&
                h->states_offset == h->kv_offset + h->slots * h->kv_slot_bytes &&
                states_fit(h, s.bytes);
    if (!fits) {
        error_set(error, ERR_FAILED,
                  "kv segment: the shape does not match its size of %" PRIu64 " bytes", s.bytes);
        s.fd = -1; /* stays the caller's */
        segment_detach(&s);
        return -1;
    }
    *out = (struct kv){.segment = s,
                       .head = h,
                       .slots = h->slots,
                       .sequences = h->sequences,
                       .states = h->states,
                       .pool_bytes = kv_regions_bytes(h, kv_region_count(h), h->context) +
                                     h->states_reserved * h->state_bytes};
    return 0;
}

int kv_check(const struct kv *kv, const struct model_hparams *model, uint32_t chunk,
             struct error *error)
{
    const struct kv_head *h = kv->head;
    struct kv_head want = {0};
    fill_shape(&want, &(struct kv_shape){.model = model,
                                         .type = (enum kv_type)h->kv_type,
                                         .context = h->context,
                                         .ring = h->ring,
                                         .states = kv->states,
                                         .slots = kv->slots,
                                         .sequences = kv->sequences,
                                         .states_reserved = h->states_reserved});
    bool same =
        h->layers == want.layers &&
        memcmp(h->layer_kind, want.layer_kind, sizeof want.layer_kind) == 0 &&
        memcmp(h->tile_bytes, want.tile_bytes, sizeof want.tile_bytes) == 0 &&
        memcmp(h->layer_indexed, want.layer_indexed, sizeof want.layer_indexed) == 0 &&
        memcmp(h->index_tile_bytes, want.index_tile_bytes, sizeof want.index_tile_bytes) == 0 &&
        h->windows_offset == want.windows_offset && h->window == want.window &&
        h->page_tokens == want.page_tokens;
    if (!same)
        return error_set(error, ERR_FAILED, "kv segment: the shape is not that of the model");
    uint64_t needed = (uint64_t)h->window + chunk - 1;
    bool cut = h->ring > 0 && model->window_chunks && h->ring % h->window != 0;
    if (h->ring > 0 && (h->ring < needed || cut))
        return error_set(error, ERR_FAILED,
                         "kv segment: rings of %" PRIu32 " positions, chunks of %" PRIu32
                         " tokens need %" PRIu64 "%s",
                         h->ring, chunk, needed, cut ? ", in whole chunks of attention" : "");
    return 0;
}

static void *log_row(const struct kv *kv, uint64_t offset, uint32_t row)
{
    return (char *)kv->segment.base + offset + row * log_row_bytes(kv->head);
}

_Atomic uint32_t *kv_log(const struct kv *kv, uint32_t row)
{
    sl_assert(row < KV_REQUESTS_MAX);
    return log_row(kv, kv->head->logs_offset, row);
}

_Atomic uint32_t *kv_slot_log(const struct kv *kv, uint32_t slot)
{
    sl_assert(slot < kv->slots);
    return log_row(kv, kv->head->slot_logs_offset, slot);
}

float *kv_logprobs(const struct kv *kv, uint32_t row)
{
    sl_assert(row < KV_REQUESTS_MAX);
    return log_row(kv, kv->head->logprobs_offset, row);
}

struct kv_extra *kv_extra(const struct kv *kv, uint32_t row)
{
    sl_assert(row < KV_REQUESTS_MAX);
    return (void *)((char *)kv->segment.base + kv->head->extras_offset + row * extra_row_bytes());
}

static uint64_t top_offset(const struct kv *kv, uint32_t row, uint32_t token)
{
    sl_assert(row < KV_REQUESTS_MAX && token <= kv->head->context);
    uint32_t each = kv->head->request[row].top_logprobs;
    sl_assert(each <= KV_TOPS_MAX);
    return kv->head->tops_offset + row * tops_row_bytes(kv->head) +
           (uint64_t)token * each * sizeof(struct kv_top);
}

struct kv_top *kv_tops(const struct kv *kv, uint32_t row, uint32_t token)
{
    return (void *)((char *)kv->segment.base + top_offset(kv, row, token));
}

int kv_no_space(uint64_t bytes, const char *what, int rc, struct error *error)
{
    char text[16];
    return error_set_errno(error, ERR_NO_MEMORY, -rc, "/dev/shm has no space for %s of %s",
                           bytes_format(bytes, text), what);
}

void kv_punch(const struct kv *kv, uint64_t offset, uint64_t bytes)
{
    int rc = segment_punch(kv->segment.fd, offset, bytes);
    if (rc != 0) /* memory that can no longer be accounted for */
        sl_panic("cannot punch the kv segment: %s", strerror(-rc));
}

static uint64_t state_offset(const struct kv *kv, uint32_t state)
{
    sl_assert(state < kv->states);
    return kv->head->states_offset + state * kv->head->state_bytes;
}

void *kv_state_at(const struct kv *kv, uint32_t state)
{
    return (char *)kv->segment.base + state_offset(kv, state);
}

int kv_state_allocate(const struct kv *kv, uint32_t state, struct error *error)
{
    uint64_t bytes = kv->head->state_bytes;
    atomic_store(&kv->head->state[state].allocated, 1);
    int rc = segment_allocate(kv->segment.fd, state_offset(kv, state), bytes);
    if (rc == 0)
        return 0;
    kv_state_release(kv, state);
    return kv_no_space(bytes, "a state", rc, error);
}

void kv_state_release(const struct kv *kv, uint32_t state)
{
    kv_punch(kv, state_offset(kv, state), kv->head->state_bytes);
    segment_free_tables(&kv->segment, state_offset(kv, state), kv->head->state_bytes);
    atomic_store(&kv->head->state[state].allocated, 0);
}

int kv_log_allocate(const struct kv *kv, uint32_t row, uint32_t tokens, struct error *error)
{
    sl_assert(row < KV_REQUESTS_MAX && tokens <= kv->head->context);
    uint64_t bytes = align_up((uint64_t)tokens * sizeof(uint32_t), PAGE_BYTES);
    uint64_t at = row * log_row_bytes(kv->head);
    int rc = segment_allocate(kv->segment.fd, kv->head->logs_offset + at, bytes);
    if (rc == 0)
        rc = segment_allocate(kv->segment.fd, kv->head->logprobs_offset + at, bytes);
    if (rc == 0)
        return 0;
    kv_log_release(kv, row);
    return kv_no_space(2 * bytes, "token log", rc, error);
}

int kv_extra_allocate(const struct kv *kv, uint32_t row, uint32_t text, struct error *error)
{
    sl_assert(row < KV_REQUESTS_MAX && text <= GRAMMAR_TEXT_BYTES_MAX);
    uint64_t bytes = align_up(offsetof(struct kv_extra, text) + text, PAGE_BYTES);
    int rc =
        segment_allocate(kv->segment.fd, kv->head->extras_offset + row * extra_row_bytes(), bytes);
    return rc == 0 ? 0 : kv_no_space(bytes, "grammar", rc, error);
}

int kv_tops_allocate(const struct kv *kv, uint32_t row, uint32_t from, uint32_t to,
                     struct error *error)
{
    uint64_t first = top_offset(kv, row, from) & ~(uint64_t)(PAGE_BYTES - 1);
    uint64_t end = align_up(top_offset(kv, row, to), PAGE_BYTES);
    int rc = first < end ? segment_allocate(kv->segment.fd, first, end - first) : 0;
    return rc == 0 ? 0 : kv_no_space(end - first, "log-probabilities", rc, error);
}

void kv_log_release(const struct kv *kv, uint32_t row)
{
    sl_assert(row < KV_REQUESTS_MAX);
    const struct kv_head *h = kv->head;
    kv_punch(kv, h->logs_offset + row * log_row_bytes(h), log_row_bytes(h));
    kv_punch(kv, h->logprobs_offset + row * log_row_bytes(h), log_row_bytes(h));
    kv_punch(kv, h->tops_offset + row * tops_row_bytes(h), tops_row_bytes(h));
    kv_punch(kv, h->extras_offset + row * extra_row_bytes(), extra_row_bytes());
}

int kv_slot_log_allocate(const struct kv *kv, uint32_t slot, uint32_t tokens, struct error *error)
{
    sl_assert(slot < kv->slots && tokens <= kv->head->context);
    uint64_t bytes = align_up((uint64_t)tokens * sizeof(uint32_t), PAGE_BYTES);
    int rc = segment_allocate(kv->segment.fd,
                              kv->head->slot_logs_offset + slot * log_row_bytes(kv->head), bytes);
    return rc == 0 ? 0 : kv_no_space(bytes, "token log", rc, error);
}

void kv_slot_log_cut(const struct kv *kv, uint32_t slot, uint32_t tokens)
{
    sl_assert(slot < kv->slots && tokens <= kv->head->context);
    uint64_t all = log_row_bytes(kv->head);
    uint64_t kept = align_up((uint64_t)tokens * sizeof(uint32_t), PAGE_BYTES);
    kv_punch(kv, kv->head->slot_logs_offset + slot * all + kept, all - kept);
}
