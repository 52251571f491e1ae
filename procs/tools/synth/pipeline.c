/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the threads that generate pieces, and returns the pieces in file order. */
#include "procs/tools/synth/pipeline.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/bulk.h"

#define PIPELINE_MAGIC 0x45504950u
#define SLOTS          8u
#define THREADS_MAX    16u

struct slot {
    char *data;
    uint64_t bytes;
    bool full;
};

/* Piece n uses slot n % SLOTS: a thread takes the next number when its slot is free, the reader
 * takes pieces in order. All fields except `weights` and the slots' data are protected by the
 * lock. */
struct pipeline {
    uint32_t magic;
    const struct weights *weights;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot slots[SLOTS];
    uint64_t issued, returned; /* pieces issued to threads, returned by the reader */
    uint32_t tensor;           /* the next piece */
    uint64_t row;
    bool stop, reading;
    uint64_t waited_ns;
    pthread_t thread[THREADS_MAX];
    unsigned threads;
};

static bool at_end(const struct pipeline *p)
{
    return p->tensor == p->weights->count;
}

/* Called with the lock held. */
static struct slot *take(struct pipeline *p, uint32_t *tensor, uint64_t *row)
{
    const struct tensor *t = &p->weights->tensors[p->tensor];
    *tensor = p->tensor;
    *row = p->row;
    p->row += t->piece_rows;
    if (p->row >= t->rows) {
        p->tensor++;
        p->row = 0;
    }
    return &p->slots[p->issued++ % SLOTS];
}

static void *make(void *arg)
{
    struct pipeline *p = arg;
    OBJ_CHECK(p, PIPELINE_MAGIC);
    float *scratch = malloc(weights_scratch(p->weights) * sizeof *scratch);
    sl_assert(scratch); /* a few KiB */
    pthread_mutex_lock(&p->lock);
    while (!p->stop && !at_end(p)) {
        if (p->issued - p->returned >= SLOTS) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        uint32_t tensor;
        uint64_t row;
        struct slot *slot = take(p, &tensor, &row);
        pthread_mutex_unlock(&p->lock);
        weights_piece(p->weights, tensor, row, scratch, slot->data, &slot->bytes);
        pthread_mutex_lock(&p->lock);
        slot->full = true;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    free(scratch);
    return NULL;
}

static uint64_t longest_piece(const struct weights *w)
{
    uint64_t max = WEIGHTS_PIECE_BYTES;
    for (uint32_t i = 0; i < w->count; i++)
        max = w->tensors[i].row_bytes > max ? w->tensors[i].row_bytes : max;
    return align_up(max + sizeof(uint64_t), PAGE_BYTES);
}

static int start(struct pipeline *p, unsigned threads, struct error *error)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        p->slots[i].data = bulk_buffer(longest_piece(p->weights));
        if (!p->slots[i].data)
            return error_set(error, ERR_NO_MEMORY, "out of memory (pieces)");
    }
    for (; p->threads < threads && p->threads < THREADS_MAX; p->threads++) {
        int rc = pthread_create(&p->thread[p->threads], NULL, make, p);
        if (rc != 0)
            return error_set_errno(error, ERR_FAILED, rc, "cannot start a thread");
    }
    return 0;
}

struct pipeline *pipeline_open(const struct weights *weights, unsigned threads, struct error *error)
{
    struct pipeline *p = calloc(1, sizeof *p);
    if (!p) {
        error_set(error, ERR_NO_MEMORY, "out of memory (pieces)");
        return NULL;
    }
    p->magic = PIPELINE_MAGIC;
    p->weights = weights;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    if (start(p, threads > 0 ? threads : 1, error) == 0)
        return p;
    pipeline_close(p);
    return NULL;
}

const void *pipeline_next(struct pipeline *p, uint64_t *bytes)
{
    OBJ_CHECK(p, PIPELINE_MAGIC);
    const void *data = NULL;
    uint64_t start_ns = clock_now_ns();
    pthread_mutex_lock(&p->lock);
    if (p->reading) {
        p->slots[p->returned++ % SLOTS].full = false;
        pthread_cond_broadcast(&p->changed);
    }
    p->reading = p->returned < p->issued || !at_end(p);
    if (p->reading) {
        struct slot *slot = &p->slots[p->returned % SLOTS];
        while (!slot->full)
            pthread_cond_wait(&p->changed, &p->lock);
        data = slot->data;
        *bytes = slot->bytes;
    }
    pthread_mutex_unlock(&p->lock);
    p->waited_ns += clock_now_ns() - start_ns;
    return data;
}

uint64_t pipeline_waited_ns(const struct pipeline *p)
{
    return p->waited_ns;
}

void pipeline_close(struct pipeline *p)
{
    if (!p)
        return;
    OBJ_CHECK(p, PIPELINE_MAGIC);
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->threads; i++)
        pthread_join(p->thread[i], NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    for (unsigned i = 0; i < SLOTS; i++)
        free(p->slots[i].data);
    p->magic = 0;
    free(p);
}
