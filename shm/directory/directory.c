/* SPDX-License-Identifier: Apache-2.0 */
/* Lays out, formats and attaches the directory, and sends and awaits its signals. */
#include "shm/directory/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "shm/arena/arena.h"

_Static_assert(sizeof(struct directory_head) % 64 == 0, "counters start on a cache line");

static uint64_t entries_offset(const struct model_index *model)
{
    return sizeof(struct directory_head) +
           ((uint64_t)model->hparams.layers + 1) * sizeof(struct directory_counter);
}

uint64_t directory_bytes(const struct model_index *model)
{
    return align_up(entries_offset(model) +
                        (uint64_t)model->entry_count * sizeof(struct directory_entry),
                    PAGE_BYTES);
}

void directory_format(void *base, const struct model_index *model,
                      const struct arena_layout *layout, uint32_t loader_count)
{
    sl_assert(loader_count >= 1 && loader_count <= ENTRY_PENDING_BITS);
    struct directory_head *head = base;
    head->entry_count = model->entry_count;
    head->layer_count = model->hparams.layers;
    head->loader_count = loader_count;
    head->dense_count = model->dense_count;
    head->entries_offset = entries_offset(model);
    atomic_store_explicit(&head->experts_payload_max, UINT64_MAX, memory_order_relaxed);

    const struct model_entry *from = model_index_entries(model);
    struct directory_entry *to = (void *)((char *)base + head->entries_offset);
    for (uint32_t i = 0; i < model->entry_count; i++) {
        bool fixed = from[i].kind != ENTRY_EXPERT, absent = from[i].extents == 0;
        to[i].slot_pages = (uint32_t)(from[i].slot_bytes / PAGE_BYTES);
        to[i].layer = from[i].layer;
        to[i].expert = from[i].expert;
        to[i].kind = (uint8_t)from[i].kind;
        to[i].precision = (uint8_t)from[i].precision;
        to[i].size_class =
            fixed || absent ? UINT16_MAX : (uint16_t)arena_class_of(layout, from[i].slot_bytes);
        atomic_store_explicit(&to[i].arena_offset, fixed ? arena_dense_offset(model, layout, i) : 0,
                              memory_order_relaxed);
    }
}

int directory_attach(int fd, bool writable, uint64_t boot, const struct model_index *model,
                     struct directory *out, struct error *error)
{
    struct segment s;
    if (segment_attach(fd, SEGMENT_DIRECTORY, writable, boot, &s, error) != 0)
        return -1;
    struct directory_head *head = s.base;
    if (s.bytes != directory_bytes(model) || head->entry_count != model->entry_count ||
        head->layer_count != model->hparams.layers || head->dense_count != model->dense_count ||
        head->entries_offset != entries_offset(model) || head->loader_count < 1 ||
        head->loader_count > ENTRY_PENDING_BITS) {
        error_set(error, ERR_FAILED,
                  "directory segment: %" PRIu32 " entries in %" PRIu32
                  " layers, the model has %" PRIu32 " in %" PRIu32,
                  head->entry_count, head->layer_count, model->entry_count, model->hparams.layers);
        s.fd = -1; /* stays the caller's */
        segment_detach(&s);
        return -1;
    }
    *out = (struct directory){.segment = s,
                              .head = head,
                              .entries = (void *)((char *)s.base + head->entries_offset),
                              .counters = (void *)(head + 1)};
    return 0;
}

void directory_signal(struct directory *d, uint32_t counter)
{
    sl_assert(counter <= d->head->layer_count);
    struct directory_counter *c = &d->counters[counter];
    atomic_fetch_add_explicit(&c->ready, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&c->waiters, memory_order_seq_cst) != 0)
        syscall(SYS_futex, &c->ready, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Never below 0: a sweep may have zeroed it, and a wrapped count would cause a wake on every
 * signal. */
static void leave(struct directory_counter *c)
{
    uint32_t seen = atomic_load_explicit(&c->waiters, memory_order_relaxed);
    while (seen != 0 && !atomic_compare_exchange_weak(&c->waiters, &seen, seen - 1))
        ;
}

void directory_wait(struct directory *d, uint32_t counter, uint32_t seen, uint64_t timeout_ns)
{
    sl_assert(counter <= d->head->layer_count);
    struct directory_counter *c = &d->counters[counter];
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    atomic_fetch_add_explicit(&c->waiters, 1, memory_order_seq_cst);
    syscall(SYS_futex, &c->ready, FUTEX_WAIT, seen, &timeout, NULL, 0);
    leave(c);
}

void directory_sweep(struct directory *d, enum entry_pinner pinner)
{
    for (uint32_t i = 0; i < d->head->entry_count; i++)
        entry_sweep(&d->entries[i].word, pinner);
    if (pinner != PINNER_COMPUTE)
        return;
    /* only compute waits here; a count left by an exited compute would cost a system call per
     * signal */
    for (uint32_t i = 0; i <= d->head->layer_count; i++)
        atomic_store_explicit(&d->counters[i].waiters, 0, memory_order_seq_cst);
}
