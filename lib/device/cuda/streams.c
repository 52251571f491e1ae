/* SPDX-License-Identifier: Apache-2.0 */
/* Two streams: of operations, and of weights that are uploaded. What one needs of the other it
 * waits for by events, so experts are copied while others are computed. They go through a ring of
 * pinned memory: the thread that submits waits only when all of it is in use, and their own memory
 * is free at once.
 *
 * Rows that the device has in another layout than the file are copied to the staging memory, and
 * from there a kernel in the same stream rearranges them: so the next copy does not overtake it.
 * Pieces have whole rows then. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

static int made(const struct cuda *c, int status, const char *what, struct error *error)
{
    return status == 0 ? 0
                       : error_set(error, ERR_FAILED, "no %s of the GPU: %s (%d)", what,
                                   c->k->text(status), status);
}

int cuda_streams_open(struct cuda *c, struct error *error)
{
    struct ring *r = &c->ring;
    void *memory;
    if (made(c, c->k->stream_create(&c->stream), "stream", error) != 0 ||
        made(c, c->k->stream_create(&c->uploads), "stream", error) != 0 ||
        made(c, c->k->event_create(&c->used), "event", error) != 0 ||
        made(c, c->k->event_create(&c->uploaded), "event", error) != 0)
        return -1;
    r->pieces = places_ring(c->layout.slot_bytes);
    r->piece = calloc(r->pieces, sizeof *r->piece);
    if (!r->piece)
        return error_set(error, ERR_NO_MEMORY, "out of memory (GPU)");
    for (uint32_t i = 0; i < r->pieces; i++)
        if (made(c, c->k->event_create(&r->piece[i].copied), "event", error) != 0)
            return -1;
    if (made(c, c->k->host_allocate(r->pieces * PLACES_PIECE, &memory), "pinned memory", error) !=
        0)
        return -1;
    r->memory = memory;
    return 0;
}

void cuda_streams_close(struct cuda *c)
{
    const struct gpu_kernels *k = c->k;
    for (uint32_t i = 0; c->ring.piece && i < c->ring.pieces; i++)
        if (c->ring.piece[i].copied)
            cuda_check(c, k->event_destroy(c->ring.piece[i].copied), "an event");
    free(c->ring.piece);
    if (c->ring.memory)
        cuda_check(c, k->host_release(c->ring.memory), "a release of memory");
    if (c->used)
        cuda_check(c, k->event_destroy(c->used), "an event");
    if (c->uploaded)
        cuda_check(c, k->event_destroy(c->uploaded), "an event");
    if (c->uploads)
        cuda_check(c, k->stream_destroy(c->uploads), "a stream");
    if (c->stream)
        cuda_check(c, k->stream_destroy(c->stream), "a stream");
}

void cuda_used(struct cuda *c)
{
    if (c->used) /* else nothing was submitted */
        cuda_check(c, c->k->event_record(c->used, c->stream), "an event");
}

void cuda_uploads_after_use(struct cuda *c)
{
    cuda_check(c, c->k->stream_wait(c->uploads, c->used), "an event");
}

bool cuda_ring_has(struct cuda *c, uint32_t pieces)
{
    struct ring *r = &c->ring;
    if (pieces > r->pieces)
        return false;
    for (uint32_t i = 0; i < pieces; i++) {
        struct ring_piece *p = &r->piece[(r->next + i) % r->pieces];
        if (p->busy && !c->k->event_happened(p->copied))
            return false;
        p->busy = false;
    }
    return true;
}

void cuda_use_uploads(struct cuda *c)
{
    cuda_check(c, c->k->event_record(c->uploaded, c->uploads), "an event");
    cuda_check(c, c->k->stream_wait(c->stream, c->uploaded), "an event");
}

/* At most a piece. */
static void send_piece(struct cuda *c, uint8_t *to, const uint8_t *from, size_t bytes)
{
    struct ring *r = &c->ring;
    struct ring_piece *piece = &r->piece[r->next];
    uint8_t *memory = r->memory + (size_t)r->next * PLACES_PIECE;
    if (piece->busy)
        cuda_check(c, c->k->event_wait(piece->copied), "a copy to the GPU");
    memcpy(memory, from, bytes);
    cuda_check(c, c->k->upload(to, memory, bytes, c->uploads), "a copy to the GPU");
    cuda_check(c, c->k->event_record(piece->copied, c->uploads), "an event");
    piece->busy = true;
    r->next = (r->next + 1) % r->pieces;
    c->copied.to_device += bytes;
}

static void rearrange(struct cuda *c, uint8_t *to, const struct kernel_matrix *from)
{
    const uint8_t *source = c->pointer(from->data);
    size_t there = c->k->row_bytes(from->type, from->k);
    uint32_t most = (uint32_t)(CUDA_STAGING_BYTES / from->row_bytes);
    struct kernel_matrix part = *from;
    sl_assert(c->staging && most > 0);
    part.data = c->staging;
    for (uint32_t at = 0; at < from->n; at += part.n) {
        part.n = from->n - at < most ? from->n - at : most;
        send_piece(c, c->staging, source + at * from->row_bytes, part.n * from->row_bytes);
        cuda_check(c, c->k->rearrange(&part, to + at * there, there, c->uploads),
                   "a layout of weights");
    }
}

void cuda_upload_matrix(struct cuda *c, uint8_t *to, const struct kernel_matrix *from)
{
    const uint8_t *source = c->pointer(from->data);
    size_t bytes = from->row_bytes * from->n;
    if (c->k->rearranged(from->type)) {
        rearrange(c, to, from);
        return;
    }
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < PLACES_PIECE ? bytes - at : PLACES_PIECE;
        send_piece(c, to + at, source + at, n);
    }
}
