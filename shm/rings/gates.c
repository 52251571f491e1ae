/* SPDX-License-Identifier: Apache-2.0 */
/* Publishes, reads and awaits rows of the gates ring. */
#include "shm/rings/gates.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"

_Static_assert((GATES_ROWS & (GATES_ROWS - 1)) == 0, "numbers wrap at a multiple of it");
_Static_assert(sizeof(struct gates_head) % 64 == 0, "rows start on a cache line");

static uint32_t width_of(uint32_t hidden, uint32_t experts)
{
    return (uint32_t)align_up(hidden > 2 * experts ? hidden : 2 * experts, 16);
}

static uint64_t row_bytes_of(uint32_t width)
{
    return sizeof(struct gates_row_head) + (uint64_t)width * sizeof(uint32_t);
}

static struct gates_row_head *row_of(const struct gates *g, uint32_t number)
{
    return (void *)(g->rows + number % GATES_ROWS * g->row_bytes);
}

static _Atomic uint32_t *values_of(struct gates_row_head *row)
{
    return (void *)(row + 1);
}

uint64_t gates_bytes(uint32_t hidden, uint32_t experts)
{
    return align_up(sizeof(struct gates_head) +
                        GATES_ROWS * row_bytes_of(width_of(hidden, experts)),
                    PAGE_BYTES);
}

void gates_format(void *base, uint32_t layers, uint32_t hidden, uint32_t experts)
{
    struct gates_head *head = base;
    head->layers = layers;
    head->width = width_of(hidden, experts);
}

int gates_attach(int fd, bool writable, uint64_t boot, struct gates *out, struct error *error)
{
    struct segment s;
    if (segment_attach(fd, SEGMENT_GATES, writable, boot, &s, error) != 0)
        return -1;
    struct gates_head *head = s.base;
    /* Copied once: compute may write there later. */
    uint32_t layers = head->layers, width = head->width;
    uint64_t row_bytes = row_bytes_of(width);
    if (layers == 0 || width == 0 || GATES_ROWS > (s.bytes - sizeof *head) / row_bytes) {
        error_set(error, ERR_FAILED,
                  "gates segment: %u rows of %" PRIu32 " values for %" PRIu32
                  " layers do not fit %" PRIu64 " bytes",
                  GATES_ROWS, width, layers, s.bytes);
        s.fd = -1; /* stays the caller's */
        segment_detach(&s);
        return -1;
    }
    *out = (struct gates){.segment = s,
                          .head = head,
                          .rows = (char *)(head + 1),
                          .row_bytes = row_bytes,
                          .layers = layers,
                          .width = width};
    return 0;
}

void gates_repair(struct gates *g)
{
    for (uint32_t i = 0; i < GATES_ROWS; i++) {
        struct gates_row_head *row = row_of(g, i);
        uint32_t lock = atomic_load_explicit(&row->lock, memory_order_relaxed);
        if (lock % 2 == 0)
            continue;
        /* Half a row is invalid: readers reject kind 0. */
        atomic_store_explicit(&row->kind, 0, memory_order_relaxed);
        atomic_store_explicit(&row->lock, lock + 1, memory_order_release);
    }
}

void gates_publish(struct gates *g, const struct gates_place *of, enum gates_kind kind,
                   const float *values, uint32_t count)
{
    sl_assert(count <= g->width && of->layer < g->layers);
    uint32_t number = atomic_load_explicit(&g->head->news, memory_order_relaxed); /* one writer */
    struct gates_row_head *row = row_of(g, number);
    _Atomic uint32_t *to = values_of(row);
    uint32_t lock = atomic_load_explicit(&row->lock, memory_order_relaxed);
    sl_assert(lock % 2 == 0); /* gates_repair has run, and there is one writer */
    atomic_store_explicit(&row->lock, lock + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* odd before the first value */
    atomic_store_explicit(&row->kind, (uint32_t)kind, memory_order_relaxed);
    atomic_store_explicit(&row->sequence, of->sequence, memory_order_relaxed);
    atomic_store_explicit(&row->position, of->position, memory_order_relaxed);
    atomic_store_explicit(&row->count, count, memory_order_relaxed);
    atomic_store_explicit(&row->token, of->token, memory_order_relaxed);
    atomic_store_explicit(&row->layer, of->layer, memory_order_relaxed);
    atomic_store_explicit(&row->number, number, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        atomic_store_explicit(&to[i], bits, memory_order_relaxed);
    }
    atomic_store_explicit(&row->lock, lock + 2, memory_order_release);
    /* seq_cst on news and waiters on both sides: either the waiter sees the news or we see the
     * waiter. */
    atomic_fetch_add_explicit(&g->head->news, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&g->head->waiters, memory_order_seq_cst) != 0)
        syscall(SYS_futex, &g->head->news, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

bool gates_read(struct gates *g, uint32_t number, struct gates_read *out, float *values)
{
    struct gates_row_head *row = row_of(g, number);
    _Atomic uint32_t *from = values_of(row);
    uint32_t lock = atomic_load_explicit(&row->lock, memory_order_acquire);
    if (lock % 2 != 0 ||
        atomic_load_explicit(&row->number, memory_order_relaxed) != number) /* a newer one */
        return false;
    out->kind = (enum gates_kind)atomic_load_explicit(&row->kind, memory_order_relaxed);
    out->sequence = atomic_load_explicit(&row->sequence, memory_order_relaxed);
    out->position = atomic_load_explicit(&row->position, memory_order_relaxed);
    out->token = atomic_load_explicit(&row->token, memory_order_relaxed);
    out->count = atomic_load_explicit(&row->count, memory_order_relaxed);
    out->layer = atomic_load_explicit(&row->layer, memory_order_relaxed);
    /* Written by another process: checked against our buffers. */
    if (out->count > g->width || out->layer >= g->layers || out->kind < GATES_INPUT ||
        out->kind > GATES_ROUTES)
        return false;
    for (uint32_t i = 0; values && i < out->count; i++) {
        uint32_t bits = atomic_load_explicit(&from[i], memory_order_relaxed);
        memcpy(&values[i], &bits, sizeof bits);
    }
    atomic_thread_fence(memory_order_acquire); /* values before the second read of the lock */
    return atomic_load_explicit(&row->lock, memory_order_relaxed) == lock;
}

uint32_t gates_wait(struct gates *g, uint32_t seen, uint64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    atomic_store_explicit(&g->head->waiters, 1, memory_order_seq_cst);
    uint32_t news = atomic_load_explicit(&g->head->news, memory_order_seq_cst);
    if (news == seen)
        syscall(SYS_futex, &g->head->news, FUTEX_WAIT, seen, &timeout, NULL, 0);
    atomic_store_explicit(&g->head->waiters, 0, memory_order_seq_cst);
    return atomic_load_explicit(&g->head->news, memory_order_acquire);
}
