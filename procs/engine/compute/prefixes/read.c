/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a file of a prefix into a slot whose sequence waits. What is read is checked against the
 * checksums before the runner learns of it; until then none of these rows is valid. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "procs/engine/compute/prefixes/worker.h"
#include "procs/engine/compute/slots/slots.h"
#include "shm/kv/blocks.h"

struct reading {
    struct prefixes *p;
    const struct load *load;
    int fd;
    uint32_t *tables;
    bool cancelled;
    uint64_t bytes;
};

static int read_all(struct reading *r, void *to, uint64_t bytes, uint64_t at, struct error *error)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(r->fd, (char *)to + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set_errno(error, ERR_IO, errno, "cannot read it");
        if (n == 0)
            return error_set(error, ERR_BAD_INPUT, "it is cut off");
        done += (uint64_t)n;
    }
    r->bytes += bytes;
    return 0;
}

static int read_head(struct reading *r, struct error *error)
{
    struct prefix_head h;
    struct stat st;
    int rc = fstat(r->fd, &st) != 0 ? error_set_errno(error, ERR_IO, errno, "cannot read it") : 0;
    if (rc == 0)
        rc = read_all(r, r->p->buffer, PREFIX_ALIGN, 0, error);
    if (rc != 0)
        return -1;
    memcpy(&h, r->p->buffer, sizeof h);
    if (prefix_check_head(&h, (uint64_t)st.st_size, error) != 0)
        return -1;
    return h.checksum == r->load->entry.head.checksum &&
                   prefix_same_bond(&h.bond, &r->load->entry.head.bond)
               ? 0
               : error_set(error, ERR_BAD_INPUT, "it is another one than before");
}

/* The runner has taken the slot back: it and the log are another sequence's. With the lock. */
static bool is_cancelled(const struct reading *r)
{
    const struct load *now = &r->p->load[r->load->slot];
    return now->state != LOAD_READS || now->serial != r->load->serial;
}

/* All tokens whose rows are used are those of the prompt: the file decides, not the index. */
static int check_tokens(struct reading *r, struct error *error)
{
    const struct load *l = r->load;
    uint32_t i = 0;
    prefixes_lock(r->p);
    r->cancelled = is_cancelled(r);
    while (!r->cancelled && i < l->use.rows &&
           r->tables[i] == atomic_load_explicit(&l->log[i], memory_order_relaxed))
        i++;
    prefixes_unlock(r->p);
    return r->cancelled || i == l->use.rows
               ? 0
               : error_set(error, ERR_BAD_INPUT, "it has other tokens than before");
}

static int read_tables(struct reading *r, struct error *error)
{
    const struct prefix_head *h = &r->load->entry.head;
    uint64_t bytes = align_up(prefix_tables_bytes(h), PREFIX_ALIGN);
    r->tables = aligned_alloc(PAGE_BYTES, bytes);
    if (!r->tables)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    if (read_all(r, r->tables, bytes, PREFIX_ALIGN, error) != 0 ||
        prefix_check_tables(h, r->tables, error) != 0)
        return -1;
    return check_tokens(r, error);
}

/* Bytes of a block to where they are used, unless the runner has taken the slot back. */
static void place(struct reading *r, uint32_t block, uint64_t at, uint64_t bytes)
{
    const struct load *l = r->load;
    const struct prefix_head *h = &l->entry.head;
    struct kv *kv = &r->p->slots->child->kv;
    prefixes_lock(r->p);
    prefixes_moved(r->p);
    r->cancelled = is_cancelled(r);
    if (r->cancelled)
        ;
    else if (block < prefix_tiles(h))
        kv_tile_block_copy(kv, l->slot, block, at, bytes, r->p->buffer, true);
    else if (block < prefix_state_block(h))
        kv_ring_block_copy(kv, l->slot, h->tokens, at, bytes, r->p->buffer, true);
    else if (at < h->state_bytes)
        memcpy((char *)kv_state_at(kv, l->version) + at, r->p->buffer,
               bytes < h->state_bytes - at ? bytes : h->state_bytes - at);
    prefixes_unlock(r->p);
}

static int read_block(struct reading *r, uint32_t block, struct error *error)
{
    const struct prefix_head *h = &r->load->entry.head;
    uint64_t offset = prefix_block_offset(h, block), size = prefix_block_bytes(h, block);
    XXH3_state_t *hash = XXH3_createState();
    int rc = hash ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory");
    if (rc == 0)
        XXH3_64bits_reset(hash);
    for (uint64_t at = 0; rc == 0 && at < size && !r->cancelled; at += PIECE_BYTES) {
        uint64_t bytes = size - at < PIECE_BYTES ? size - at : PIECE_BYTES;
        rc = read_all(r, r->p->buffer, bytes, offset + at, error);
        if (rc != 0)
            break;
        XXH3_64bits_update(hash, r->p->buffer, bytes);
        place(r, block, at, bytes);
        child_inject(r->p->slots->child, INJECT_COMPUTE_PREFIX_READ);
    }
    if (rc == 0 && !r->cancelled &&
        XXH3_64bits_digest(hash) != prefix_checksum(h, r->tables, block))
        rc = error_set(error, ERR_BAD_INPUT, "block %u is damaged", block);
    XXH3_freeState(hash);
    return rc;
}

static int read_blocks(struct reading *r, struct error *error)
{
    const struct load *l = r->load;
    const struct prefix_head *h = &l->entry.head;
    uint32_t end = prefix_tiles(h) > 0 ? (l->use.rows + PREFIX_TILE - 1) / PREFIX_TILE : 0;
    for (uint32_t i = l->from / PREFIX_TILE; i < end && !r->cancelled; i++)
        if (read_block(r, i, error) != 0)
            return -1;
    if (r->cancelled)
        return 0;
    if (l->use.state != PREFIX_NO_STATE)
        return read_block(r, prefix_state_block(h) + l->use.state, error);
    return h->ring_bytes > 0 ? read_block(r, prefix_ring_block(h), error) : 0;
}

static int read_file(struct reading *r, struct error *error)
{
    int dir = r->p->index.dir;
    const char *name = r->load->entry.name;
    const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC;
    r->fd = openat(dir, name, flags | O_DIRECT);
    if (r->fd < 0 && errno == EINVAL)
        r->fd = openat(dir, name, flags);
    if (r->fd < 0)
        return errno == ENOENT ? error_set(error, ERR_GONE, "removed")
                               : error_set_errno(error, ERR_IO, errno, "cannot open it");
    int rc = read_head(r, error);
    if (rc == 0)
        rc = read_tables(r, error);
    if (rc == 0)
        rc = read_blocks(r, error);
    free(r->tables);
    close(r->fd);
    return rc;
}

static void measure(struct prefixes *p, uint64_t bytes, uint64_t ns)
{
    if (bytes >= PIECE_BYTES && ns > 0)
        p->read_bytes_per_ns = (p->read_bytes_per_ns + (double)bytes / (double)ns) / 2;
}

static void give_up(struct prefixes *p, const char *name, const struct error *error)
{
    if (error->code == ERR_BAD_INPUT) {
        index_reject(&p->index, name, error->text);
        return;
    }
    if (error->code == ERR_GONE) /* by another engine, or to make room */
        index_forget(&p->index, name);
    else
        index_fail(&p->index, name, error->text);
}

void read_load(struct prefixes *p, const struct load *wanted)
{
    struct reading r = {.p = p, .load = wanted, .fd = -1};
    struct error error;
    uint64_t start_ns = clock_now_ns();
    int rc = read_file(&r, &error);
    if (rc != 0)
        give_up(p, wanted->entry.name, &error);
    else if (!r.cancelled)
        index_used(&p->index, wanted->entry.name);
    prefixes_lock(p);
    struct load *now = &p->load[wanted->slot];
    if (now->state == LOAD_READS && now->serial == wanted->serial) {
        now->bytes = r.bytes;
        now->state = rc == 0 ? LOAD_DONE : LOAD_FAILED;
    }
    if (rc == 0 && !r.cancelled)
        measure(p, r.bytes, clock_now_ns() - start_ns);
    prefixes_unlock(p);
}
