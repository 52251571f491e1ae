/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps experts in a region of memory: threads read them, pins hold them, and the one needed last
 * is evicted. */
#include "lib/offline/slots.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/assert.h"

#define SLOTS_MAGIC 0x534c4f54u
#define READERS_MAX 16
#define TAIL_BYTES  PAGE_BYTES /* so that the last wide read of a kernel stays inside */
#define LAYER_NONE  UINT32_MAX

/* A form of an expert in the region. */
struct held {
    uint32_t expert, form, entry;
    bool ready;
    uint32_t pins;
    uint64_t offset, bytes, used; /* used: number of its last pin */
    struct held *next;            /* to be read */
};

struct slots {
    uint32_t magic;
    struct offline_files *files;
    uint32_t experts, layers, forms; /* experts: of a layer */
    uint8_t *region;
    uint64_t max_bytes, bytes;
    struct held **of;    /* [layers * experts][forms]; NULL: absent */
    struct held **order; /* [count] by offset */
    uint32_t count, capacity;
    uint64_t pin_number, changes;
    uint32_t at[SLOTS_WORKERS_MAX], from;
    struct held *first, *last; /* queue of the readers */
    bool stop, failed;
    struct error error;
    pthread_mutex_t lock;
    pthread_cond_t changed, work;
    pthread_t reader[READERS_MAX];
    uint32_t readers;
};

static struct held **cell(const struct slots *s, uint32_t expert, uint32_t form)
{
    sl_assert(form < s->forms && expert < s->layers * s->experts);
    return &s->of[(size_t)expert * s->forms + form];
}

static void change(struct slots *s)
{
    s->changes++;
    pthread_cond_broadcast(&s->changed);
}

/* ---- readers ---- */

static void *read_loop(void *arg)
{
    struct slots *s = arg;
    OBJ_CHECK(s, SLOTS_MAGIC);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->stop)
            pthread_cond_wait(&s->work, &s->lock);
        struct held *h = s->first;
        if (!h)
            break;
        s->first = h->next;
        pthread_mutex_unlock(&s->lock);
        struct error error;
        int status = files_read(s->files, h->entry, s->region + h->offset, &error);
        pthread_mutex_lock(&s->lock);
        h->ready = status == 0;
        if (status != 0 && !s->failed) {
            s->failed = true;
            s->error = error;
        }
        change(s);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void enqueue(struct slots *s, struct held *h)
{
    h->next = NULL;
    if (s->first)
        s->last->next = h;
    else
        s->first = h;
    s->last = h;
    pthread_cond_signal(&s->work);
}

/* ---- creation ---- */

struct slots *slots_create(struct offline_files *files, uint32_t experts, uint32_t layers,
                           uint32_t forms, uint64_t max_bytes, uint32_t readers,
                           struct error *error)
{
    sl_assert(readers > 0 && readers <= READERS_MAX);
    struct slots *s = calloc(1, sizeof *s);
    if (!s) {
        error_set(error, ERR_NO_MEMORY, "out of memory (experts)");
        return NULL;
    }
    *s = (struct slots){.magic = SLOTS_MAGIC,
                        .files = files,
                        .experts = experts,
                        .layers = layers,
                        .forms = forms,
                        .max_bytes = max_bytes};
    memset(s->at, 0xff, sizeof s->at);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_cond_init(&s->work, NULL);
    s->of = calloc((size_t)layers * experts * forms, sizeof(struct held *));
    void *at = mmap(NULL, max_bytes + TAIL_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    s->region = at == MAP_FAILED ? NULL : at;
    while (s->of && s->region && s->readers < readers &&
           pthread_create(&s->reader[s->readers], NULL, read_loop, s) == 0)
        s->readers++;
    if (s->readers > 0)
        return s;
    error_set(error, ERR_NO_MEMORY, "out of memory (experts)");
    slots_destroy(s);
    return NULL;
}

void slots_destroy(struct slots *s)
{
    OBJ_CHECK(s, SLOTS_MAGIC);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->readers; i++)
        pthread_join(s->reader[i], NULL);
    for (uint32_t i = 0; i < s->count; i++)
        free(s->order[i]);
    free(s->order);
    free(s->of);
    if (s->region)
        munmap(s->region, s->max_bytes + TAIL_BYTES);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    s->magic = 0;
    free(s);
}

/* ---- space ---- */

static void forget(struct slots *s, uint32_t i)
{
    struct held *h = s->order[i];
    *cell(s, h->expert, h->form) = NULL;
    memmove(s->order + i, s->order + i + 1, (--s->count - i) * sizeof(struct held *));
    free(h);
}

void slots_resize(struct slots *s, uint64_t bytes)
{
    OBJ_CHECK(s, SLOTS_MAGIC);
    sl_assert(bytes <= s->max_bytes && bytes % PAGE_BYTES == 0);
    pthread_mutex_lock(&s->lock);
    while (s->count > 0 && s->order[s->count - 1]->offset + s->order[s->count - 1]->bytes > bytes) {
        const struct held *h = s->order[s->count - 1];
        if (!h->ready && !s->failed) { /* it was not waited for */
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        sl_assert(h->pins == 0);
        forget(s, s->count - 1);
    }
    s->bytes = bytes;
    madvise(s->region + bytes, s->max_bytes + TAIL_BYTES - bytes, MADV_DONTNEED);
    pthread_mutex_unlock(&s->lock);
}

uint64_t slots_bytes(const struct slots *s)
{
    return s->bytes;
}

/* Position in the order of a gap of that size, UINT32_MAX: none. */
static uint32_t gap_for(const struct slots *s, uint64_t bytes, uint64_t *offset)
{
    *offset = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->order[i]->offset - *offset >= bytes)
            return i;
        *offset = s->order[i]->offset + s->order[i]->bytes;
    }
    return *offset + bytes <= s->bytes ? s->count : UINT32_MAX;
}

/* Layers until a layer is needed again by some worker. */
static uint32_t distance(const struct slots *s, uint32_t layer)
{
    uint32_t nearest = UINT32_MAX, cycle = s->layers - s->from;
    if (layer < s->from)
        return UINT32_MAX;
    for (uint32_t w = 0; w < SLOTS_WORKERS_MAX; w++) {
        uint32_t d = s->at[w] < s->from || s->at[w] == LAYER_NONE
                         ? UINT32_MAX
                         : (layer + cycle - s->at[w]) % cycle;
        nearest = d < nearest ? d : nearest;
    }
    return nearest;
}

/* Evicts the expert that is needed last; of those, the one that was used longest ago. */
static bool evict(struct slots *s)
{
    uint32_t victim = UINT32_MAX, farthest = 0, layer = LAYER_NONE, d = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct held *h = s->order[i];
        if (!h->ready || h->pins > 0)
            continue;
        if (h->expert / s->experts != layer) {
            layer = h->expert / s->experts;
            d = distance(s, layer);
        }
        if (victim == UINT32_MAX || d > farthest ||
            (d == farthest && h->used < s->order[victim]->used)) {
            victim = i;
            farthest = d;
        }
    }
    if (victim == UINT32_MAX)
        return false;
    forget(s, victim);
    return true;
}

/* NULL: no space without what is pinned. */
static struct held *place(struct slots *s, const struct slots_form *f)
{
    uint64_t offset;
    uint32_t at;
    sl_assert(f->bytes <= s->bytes); /* else its pin would never end */
    while ((at = gap_for(s, f->bytes, &offset)) == UINT32_MAX)
        if (!evict(s))
            return NULL;
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 64;
        s->order = realloc(s->order, s->capacity * sizeof(struct held *));
    }
    struct held *h = calloc(1, sizeof *h);
    if (!s->order || !h)
        log_fatal(1, "out of memory (experts)");
    *h = (struct held){.expert = f->expert,
                       .form = f->form,
                       .entry = f->entry,
                       .offset = offset,
                       .bytes = f->bytes};
    memmove(s->order + at + 1, s->order + at, (s->count++ - at) * sizeof(struct held *));
    s->order[at] = h;
    *cell(s, f->expert, f->form) = h;
    return h;
}

/* ---- forms ---- */

static enum slots_found pin_locked(struct slots *s, const struct slots_form *f, uint8_t **at)
{
    struct held *h = *cell(s, f->expert, f->form);
    bool is_new = !h;
    if (s->failed)
        return SLOTS_FAILED;
    if (is_new && !(h = place(s, f)))
        return SLOTS_FULL;
    h->pins++;
    h->used = ++s->pin_number;
    *at = s->region + h->offset;
    if (!is_new)
        return h->ready ? SLOTS_READY : SLOTS_COMING;
    if (f->entry == ENTRY_NONE)
        return SLOTS_MAKE;
    enqueue(s, h);
    return SLOTS_COMING;
}

enum slots_found slots_pin(struct slots *s, const struct slots_form *f, uint8_t **at)
{
    OBJ_CHECK(s, SLOTS_MAGIC);
    pthread_mutex_lock(&s->lock);
    enum slots_found found = pin_locked(s, f, at);
    pthread_mutex_unlock(&s->lock);
    return found;
}

bool slots_pin_ready(struct slots *s, uint32_t expert, uint32_t form, uint8_t **at)
{
    pthread_mutex_lock(&s->lock);
    struct held *h = *cell(s, expert, form);
    bool ready = h && h->ready;
    if (ready) {
        h->pins++;
        h->used = ++s->pin_number;
        *at = s->region + h->offset;
    }
    pthread_mutex_unlock(&s->lock);
    return ready;
}

void slots_made(struct slots *s, const struct slots_form *f, const struct error *why)
{
    pthread_mutex_lock(&s->lock);
    struct held *h = *cell(s, f->expert, f->form);
    sl_assert(h && !h->ready && h->entry == ENTRY_NONE);
    h->ready = !why;
    if (why && !s->failed) {
        s->failed = true;
        s->error = *why;
    }
    change(s);
    pthread_mutex_unlock(&s->lock);
}

void slots_unpin(struct slots *s, uint32_t expert, uint32_t form)
{
    pthread_mutex_lock(&s->lock);
    struct held *h = *cell(s, expert, form);
    sl_assert(h && h->pins > 0);
    if (--h->pins == 0)
        change(s);
    pthread_mutex_unlock(&s->lock);
}

bool slots_ready(struct slots *s, uint32_t expert, uint32_t form)
{
    pthread_mutex_lock(&s->lock);
    const struct held *h = *cell(s, expert, form);
    bool ready = h && h->ready;
    pthread_mutex_unlock(&s->lock);
    return ready;
}

int slots_wait(struct slots *s, uint64_t *seen, struct error *error)
{
    pthread_mutex_lock(&s->lock);
    while (s->changes == *seen && !s->failed)
        pthread_cond_wait(&s->changed, &s->lock);
    *seen = s->changes;
    bool failed = s->failed;
    if (failed && error)
        *error = s->error;
    pthread_mutex_unlock(&s->lock);
    return failed ? -1 : 0;
}

void slots_from(struct slots *s, uint32_t layer)
{
    sl_assert(layer < s->layers);
    pthread_mutex_lock(&s->lock);
    s->from = layer;
    pthread_mutex_unlock(&s->lock);
}

void slots_at(struct slots *s, uint32_t worker, uint32_t layer)
{
    sl_assert(worker < SLOTS_WORKERS_MAX && (layer < s->layers || layer == LAYER_NONE));
    pthread_mutex_lock(&s->lock);
    s->at[worker] = layer;
    pthread_mutex_unlock(&s->lock);
}
