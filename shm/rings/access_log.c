/* SPDX-License-Identifier: Apache-2.0 */
/* Appends records to the access log, and reads them at the position of a reader. */
#include "shm/rings/access_log.h"

#include <string.h>

#include "lib/base/bytes.h"

_Static_assert((ACCESS_LOG_RECORDS & (ACCESS_LOG_RECORDS - 1)) == 0, "positions are masked");

uint64_t access_log_bytes(void)
{
    return align_up(sizeof(struct access_log_head), PAGE_BYTES);
}

int access_log_attach(int fd, bool writable, uint64_t boot, struct access_log *out,
                      struct error *error)
{
    struct segment s;
    if (segment_attach(fd, SEGMENT_ACCESS_LOG, writable, boot, &s, error) != 0)
        return -1;
    if (s.bytes < sizeof(struct access_log_head)) {
        error_set(error, ERR_FAILED, "access_log segment: only %llu bytes",
                  (unsigned long long)s.bytes);
        s.fd = -1; /* stays the caller's */
        segment_detach(&s);
        return -1;
    }
    *out = (struct access_log){.segment = s, .head = s.base};
    return 0;
}

static struct access_log_cell *cell_of(struct access_log *u, uint64_t position)
{
    return &u->head->cell[position & (ACCESS_LOG_RECORDS - 1)];
}

/* A producer that exits during a write leaves position 0 and an uncounted record: its successor
 * writes the same cell again. */
void access_log_append(struct access_log *u, const struct access_record *record)
{
    uint64_t position = atomic_load_explicit(&u->head->written, memory_order_relaxed);
    struct access_log_cell *cell = cell_of(u, position);
    uint64_t words[4];
    memcpy(words, record, sizeof words);
    atomic_store_explicit(&cell->position, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* position invalid before the first new word */
    for (int i = 0; i < 4; i++)
        atomic_store_explicit(&cell->word[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&cell->position, position + 1, memory_order_release);
    atomic_store_explicit(&u->head->written, position + 1, memory_order_release);
}

uint64_t access_log_written(struct access_log *u)
{
    return atomic_load_explicit(&u->head->written, memory_order_acquire);
}

/* seq_cst: the cache stores directory_head.token_bell and reads the count, compute adds to the
 * count and reads token_bell; one of them sees the other's. */
uint64_t access_log_add_tokens(struct access_log *u, uint32_t tokens)
{
    return atomic_fetch_add_explicit(&u->head->tokens, tokens, memory_order_seq_cst) + tokens;
}

uint64_t access_log_tokens(struct access_log *u)
{
    return atomic_load_explicit(&u->head->tokens, memory_order_seq_cst);
}

void access_log_reader_start(struct access_log *u, struct access_log_reader *reader)
{
    *reader = (struct access_log_reader){.next = access_log_written(u)};
}

static void resync(struct access_log *u, struct access_log_reader *reader)
{
    uint64_t newest = access_log_written(u);
    reader->lost += newest - reader->next;
    reader->next = newest;
    reader->resyncs++;
}

bool access_log_read(struct access_log *u, struct access_log_reader *reader, uint64_t limit,
                     struct access_record *out)
{
    uint64_t written = access_log_written(u);
    if (reader->next >= written || reader->next >= limit)
        return false;
    if (written - reader->next > ACCESS_LOG_RECORDS) {
        resync(u, reader);
        return false;
    }
    struct access_log_cell *cell = cell_of(u, reader->next);
    uint64_t words[4];
    uint64_t before = atomic_load_explicit(&cell->position, memory_order_acquire);
    for (int i = 0; i < 4; i++)
        words[i] = atomic_load_explicit(&cell->word[i], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire); /* words before the second read of position */
    uint64_t after = atomic_load_explicit(&cell->position, memory_order_relaxed);
    if (before != reader->next + 1 || after != before) { /* overwritten during the read */
        resync(u, reader);
        return false;
    }
    memcpy(out, words, sizeof *out);
    reader->next++;
    return true;
}
