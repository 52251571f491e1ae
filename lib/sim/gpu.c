/* SPDX-License-Identifier: Apache-2.0 */
/* The third tier: places on a GPU, after the arena. Which expert has one is decided by the code of
 * lib/device/cuda (lib/policy/gpu/places.h); here are only the times. */
#include <math.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/policy/gpu/places.h"
#include "lib/sim/internal.h"

struct late { /* an expert that may still be copied */
    double arrived, ns;
};

struct sim_gpu_run {
    const struct sim_gpu *k;
    uint32_t first, end;       /* its layers */
    struct sim_gpu_run *after; /* of the following layers */
    struct places *places;
    struct places_counts counted;
    double *arrived; /* by place: when what it has is there */
    double copied;   /* end of the last copy */
    double *piece;   /* of pinned memory: unused from then on */
    uint32_t pieces, next;
    uint32_t lent_max; /* experts of a batch */
    uint32_t pinned;   /* items of the layer that compute has requested */
    struct late *late; /* of the batch */
    uint32_t lates;
    double gpu_ns, cpu_ns; /* of the batch: experts that are there, and those of the host */
    struct prediction predicted[MODEL_TOP_K_MAX]; /* for the next layer */
    uint32_t predictions;
    uint32_t ahead[MODEL_TOP_K_MAX]; /* slots of those that can serve */
};

static uint64_t place_bytes(const struct sim_config *k)
{
    uint64_t most = 0;
    for (int t = 0; t < PRECISION__COUNT; t++)
        if (k->precision_mask >> t & 1 && k->precision_bytes[t] > most)
            most = k->precision_bytes[t];
    return most;
}

/* All pieces that an expert may have are unused. */
static bool ring_has_space(void *arg)
{
    const struct sim_cache *c = arg;
    const struct sim_gpu_run *g = c->gpu;
    for (uint32_t i = 0; i < places_pieces(place_bytes(&c->config)); i++)
        if (g->piece[(g->next + i) % g->pieces] > c->now)
            return false;
    return true;
}

static bool has_arrived(void *arg, uint32_t place)
{
    const struct sim_cache *c = arg;
    return c->gpu->arrived[place] <= c->now;
}

/* As lib/device/cuda has them, as far as they are known: of its layers. */
static struct expert_sizes sizes_of(const struct sim_cache *c, const struct sim_gpu_run *g)
{
    const struct sim_config *k = &c->config;
    struct expert_sizes sizes = {.experts = k->experts};
    uint32_t first = expert_layers_next(&k->expert_layers, g->first, k->layers);
    uint32_t end = g->end > first ? g->end : k->layers; /* without experts: any */
    for (uint32_t i = 0; i < c->precisions; i++)
        for (uint32_t l = first; l < end; l++)
            for (uint32_t e = 0; e < k->experts && expert_layers_has(&k->expert_layers, l); e++) {
                uint32_t slot = (i * k->layers + l) * k->experts + e;
                uint64_t stated = g->k->place_bytes[c->precision_of[i]];
                expert_sizes_add(&sizes, c->precision_of[i], l,
                                 stated > 0 ? stated : sim_bytes(c, slot));
            }
    return sizes;
}

/* Without an amount of memory, or where a place of one size is for any, that of so many of the
 * largest. */
static uint64_t bytes_of(const struct sim_config *k, const struct sim_gpu *gpu,
                         const struct expert_sizes *sizes)
{
    uint64_t largest = align_up(expert_sizes_largest(sizes), SLABS_ALIGN);
    uint64_t minimum = k->top_k * largest;
    bool alike = slabs_divide(sizes, minimum, k->top_k).classes == 1;
    if (alike || gpu->bytes == 0)
        return gpu->places * largest;
    return gpu->bytes > minimum ? gpu->bytes : minimum;
}

static struct places *make_places(struct sim_cache *c, const struct sim_gpu_run *g)
{
    const struct sim_config *k = &c->config;
    const struct expert_sizes sizes = sizes_of(c, g);
    return places_create(&(struct places_config){.layers = k->layers,
                                                 .experts = k->experts,
                                                 .top_k = k->top_k,
                                                 .sizes = &sizes,
                                                 .bytes = bytes_of(k, g->k, &sizes),
                                                 .eviction = g->k->eviction,
                                                 .cooperative = g->k->policy == GPU_COOPERATIVE,
                                                 .space = ring_has_space,
                                                 .arrived = has_arrived,
                                                 .arg = c});
}

static uint32_t end_of(const struct sim_config *k, const struct sim_gpu *g)
{
    return g->end_layer > 0 ? g->end_layer : k->layers;
}

static int check_one(const struct sim_config *k, const struct sim_gpu *g, struct error *error)
{
    if (g->places < k->top_k)
        return error_set(error, ERR_BUDGET_TOO_SMALL,
                         "%u slots of the GPU are below the %u experts of a token", g->places,
                         k->top_k);
    if (!(g->bytes_per_s > 0) || !(g->expert_ns >= 0))
        return error_set(error, ERR_BAD_INPUT, "GPU: the bandwidth of copies must be above 0");
    return 0;
}

int sim_gpu_check(const struct sim_config *k, struct error *error)
{
    uint32_t first = 0;
    if (k->gpu.places == 0)
        return 0;
    for (const struct sim_gpu *g = &k->gpu; g; g = g->next) {
        uint32_t end = end_of(k, g);
        if (end <= first || end > k->layers)
            return error_set(error, ERR_BAD_INPUT, "a GPU has the layers from %u to %u of %u",
                             first, end, k->layers);
        if (check_one(k, g, error) != 0)
            return -1;
        first = end;
    }
    return 0;
}

static bool create_one(struct sim_cache *c, struct sim_gpu_run *g)
{
    g->pieces = places_ring(place_bytes(&c->config));
    g->places = make_places(c, g);
    g->lent_max = g->places ? places_lent_max(g->places) : 0;
    g->arrived = calloc(g->places ? places_count(g->places) : 1, sizeof *g->arrived);
    g->piece = calloc(g->pieces, sizeof *g->piece);
    g->late = calloc(c->config.experts, sizeof *g->late);
    return g->places && g->arrived && g->piece && g->late;
}

bool sim_gpu_create(struct sim_cache *c)
{
    struct sim_gpu_run **at = &c->gpus;
    uint32_t first = 0;
    if (c->config.gpu.places == 0)
        return true;
    for (const struct sim_gpu *k = &c->config.gpu; k; k = k->next, at = &(*at)->after) {
        struct sim_gpu_run *g = *at = calloc(1, sizeof *g);
        if (!g)
            return false;
        g->k = k;
        g->first = first;
        g->end = first = end_of(&c->config, k);
        if (!create_one(c, g))
            return false;
    }
    return true;
}

void sim_gpu_destroy(struct sim_cache *c)
{
    for (struct sim_gpu_run *g = c->gpus, *after; g; g = after) {
        after = g->after;
        places_destroy(g->places);
        free(g->arrived);
        free(g->piece);
        free(g->late);
        free(g);
    }
    c->gpus = c->gpu = NULL;
}

/* ---- batches: the rules of lib/core/experts.c ---- */

/* Experts of a chunk that compute asks for at the same time. */
static double pin_limit(const struct sim_cache *c)
{
    double half = (double)c->config.capacity / 2 / (double)place_bytes(&c->config);
    return c->rows == 1 ? INFINITY : fmin(half, c->gpu->lent_max);
}

static void fill_window(struct sim_cache *c)
{
    struct sim_gpu_run *g = c->gpu;
    double limit = pin_limit(c);
    uint32_t held = 0;
    for (uint32_t i = 0; i < g->pinned; i++)
        held += c->item[i].state != SIM_ITEM_DONE;
    if (held > limit / 4 * 3)
        return;
    for (; g->pinned < c->items && (held == 0 || held + 1 <= limit); held++)
        g->pinned++;
}

static double layer_ns(const struct sim_cache *c, const struct sim_gpu *k)
{
    return k && k->layer_ns > 0 ? k->layer_ns : c->config.compute.layer_ns;
}

double sim_gpu_layer(struct sim_cache *c, uint32_t layer)
{
    c->gpu = c->gpus;
    while (c->gpu && layer >= c->gpu->end)
        c->gpu = c->gpu->after;
    struct sim_gpu_run *g = c->gpu;
    if (!g)
        return layer_ns(c, NULL);
    g->pinned = 0;
    g->predictions = 0;
    return layer_ns(c, g->k);
}

void sim_gpu_sequence(struct sim_cache *c)
{
    for (struct sim_gpu_run *g = c->gpus; g; g = g->after)
        places_sequence(g->places);
}

double sim_gpu_mean_layer(const struct sim_cache *c)
{
    const struct sim_config *k = &c->config;
    double ns = 0;
    uint32_t first = 0;
    const struct expert_layers *e = &k->expert_layers;
    for (const struct sim_gpu_run *g = c->gpus; g; first = g->end, g = g->after)
        ns += expert_layers_count(e, first, g->end) *
              (layer_ns(c, g->k) + k->top_k * g->k->expert_ns);
    ns += expert_layers_count(e, first, k->layers) *
          (layer_ns(c, NULL) + k->top_k * k->compute.expert_ns);
    return ns / expert_layers_count(e, 0, k->layers);
}

uint32_t sim_gpu_take(struct sim_cache *c)
{
    uint32_t n = 0, rows = 0, most = c->config.gpu.rows;
    most = most > c->rows ? most : c->rows;
    most = most > c->config.top_k ? most : c->config.top_k;
    fill_window(c);
    for (uint32_t i = 0; i < c->gpu->pinned && n < c->gpu->lent_max; i++) {
        struct sim_item *item = &c->item[i];
        if (item->state != SIM_ITEM_READY || (n > 0 && rows + item->tokens > most))
            continue;
        rows += item->tokens;
        c->taken[n++] = item;
    }
    return n;
}

/* ---- copies and computing ---- */

/* One copy after the other, matrix by matrix, in pieces. The end of the last. */
static double copy(struct sim_cache *c, uint64_t bytes)
{
    struct sim_gpu_run *g = c->gpu;
    double rate = g->k->bytes_per_s / 1e9;
    for (uint64_t m = 0; m < PLACES_MATRICES; m++) {
        uint64_t left = bytes * (m + 1) / PLACES_MATRICES - bytes * m / PLACES_MATRICES;
        for (uint64_t n; left > 0; left -= n) {
            n = left < PLACES_PIECE ? left : PLACES_PIECE;
            g->copied = fmax(g->copied, c->now) + (double)n / rate;
            g->piece[g->next] = g->copied;
            g->next = (g->next + 1) % g->pieces;
        }
    }
    c->f->gpu_upload_bytes += bytes;
    c->f->gpu_upload_ns += (double)bytes / rate;
    return g->copied;
}

/* The same expert of the model at the same precision, as lib/device/cuda numbers it. */
static uint32_t number_of(const struct sim_cache *c, uint32_t slot)
{
    uint32_t all = c->config.layers * c->config.experts;
    return (uint32_t)c->precision_of[slot / all] * all + slot % all;
}

/* Decides where an expert is computed, and starts its copy. */
static void use(struct sim_cache *c, const struct sim_item *item)
{
    struct sim_gpu_run *g = c->gpu;
    struct place_result r = places_use(g->places, number_of(c, item->slot), c->rows);
    if (r.taken)
        g->arrived[r.place] = copy(c, sim_bytes(c, item->slot));
    if (r.use == PLACE_ON_HOST) {
        g->cpu_ns += sim_for_tokens(c, sim_expert_ns(c, item->slot), item->tokens);
        return;
    }
    double high = (double)c->config.precision_bytes[c->precision_of[0]];
    double one = g->k->expert_ns * (double)sim_bytes(c, item->slot) / high;
    double ns = sim_for_tokens(c, one, item->tokens);
    if (g->arrived[r.place] > c->now)
        g->late[g->lates++] = (struct late){.arrived = g->arrived[r.place], .ns = ns};
    else
        g->gpu_ns += ns;
}

/* ---- copies ahead: the rules of lib/core/experts.c ---- */

void sim_cache_gpu_predicted(struct sim_cache *c, const struct prediction *predictions,
                             uint32_t count)
{
    struct sim_gpu_run *g = c->gpu;
    sl_assert(c->gpus && c->config.top_k <= MODEL_TOP_K_MAX);
    if (!g)
        return;
    g->predictions = count < c->config.top_k ? count : c->config.top_k;
    for (uint32_t i = 0; i < g->predictions; i++)
        g->predicted[i] = predictions[i];
}

/* Whether an expert of the layer is to be computed after the batch. */
static bool any_left(const struct sim_cache *c)
{
    for (uint32_t i = 0; i < c->items; i++)
        if (c->item[i].state == SIM_ITEM_UNRESERVED || c->item[i].state == SIM_ITEM_SENT)
            return true;
    return false;
}

static void copy_ahead(void *arg, uint32_t at, uint32_t place)
{
    struct sim_cache *c = arg;
    c->gpu->arrived[place] = copy(c, sim_bytes(c, c->gpu->ahead[at]));
}

static void prefetch_next(struct sim_cache *c)
{
    struct sim_gpu_run *g = c->gpu;
    uint32_t number[MODEL_TOP_K_MAX], n = 0, next = sim_next_layer(&c->config, c->step[0].layer);
    if (g->k->policy != GPU_PREFETCH || c->rows != 1 || next >= g->end || any_left(c))
        return;
    for (uint32_t i = 0; i < g->predictions; i++) {
        const struct prediction *p = &g->predicted[i];
        if (sim_servable(c, next, p->expert, p->weight_before, &g->ahead[n])) {
            number[n] = number_of(c, g->ahead[n]);
            n++;
        }
    }
    places_prefetch(g->places, number, n, copy_ahead, c);
}

static void count(struct sim_cache *c)
{
    struct sim_gpu_run *g = c->gpu;
    struct places_counts now = places_counts(g->places), *last = &g->counted;
    c->f->gpu_hits += now.hits - last->hits;
    c->f->gpu_uploads += now.uploaded - last->uploaded;
    c->f->gpu_evictions += now.evicted - last->evicted;
    c->f->gpu_on_cpu += now.on_host - last->on_host;
    c->f->gpu_background += now.background - last->background;
    c->f->gpu_prefetches += now.ahead - last->ahead;
    c->f->gpu_prefetches_timely += now.timely - last->timely;
    c->f->gpu_prefetches_late += now.late - last->late;
    c->f->gpu_prefetches_unused += now.unused - last->unused;
    *last = now;
}

double sim_gpu_compute(struct sim_cache *c, struct sim_item *const item[], uint32_t items)
{
    struct sim_gpu_run *g = c->gpu;
    g->lates = 0;
    g->gpu_ns = g->cpu_ns = 0;
    for (uint32_t i = 0; i < items; i++)
        use(c, item[i]);
    prefetch_next(c);
    double busy = g->gpu_ns, end = c->now + g->gpu_ns;
    for (uint32_t i = 0; i < g->lates; i++) {
        end = fmax(end, g->late[i].arrived) + g->late[i].ns;
        busy += g->late[i].ns;
    }
    end = fmax(end, c->now + g->cpu_ns);
    busy = fmax(busy, g->cpu_ns);
    double stall = fmax(0, end - c->now - busy);
    sim_advance(c, end);
    c->f->compute_ns += busy;
    c->f->gpu_stall_ns += stall;
    places_end_leases(g->places);
    count(c);
    return stall;
}
