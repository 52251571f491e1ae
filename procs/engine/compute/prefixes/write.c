/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a file of a prefix: under a temporary name, without the page cache where that is possible,
 * so that no dirty pages are written all at once; blocks first, then the tables with their
 * checksums and the head, and then it gets its name. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "procs/engine/compute/prefixes/worker.h"

static void part_name(const struct store *s, char part[PREFIX_NAME_BYTES + 8])
{
    snprintf(part, PREFIX_NAME_BYTES + 8, "%s" INDEX_SUFFIX_WRITE, s->name);
}

static int write_all(int fd, const char *bytes, size_t n, uint64_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t m = pwrite(fd, bytes + done, n - done, (off_t)(at + done));
        if (m < 0 && errno == EINTR)
            continue;
        if (m <= 0)
            return m < 0 ? errno : ENOSPC;
        done += (size_t)m;
    }
    return 0;
}

static int open_part(struct prefixes *p)
{
    struct store *s = &p->store;
    char part[PREFIX_NAME_BYTES + 8];
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
    part_name(s, part);
    s->fd = openat(p->index.dir, part, flags | O_DIRECT, 0600);
    if (s->fd < 0 && errno == EINVAL) /* a file system without it */
        s->fd = openat(p->index.dir, part, flags, 0600);
    return s->fd < 0 ? errno : 0;
}

/* All its memory first: a full device is found before anything is written. */
static int reserve(const struct store *s)
{
    if (fallocate(s->fd, 0, 0, (off_t)prefix_file_bytes(&s->head)) == 0)
        return 0;
    return errno == EOPNOTSUPP ? 0 : errno;
}

int write_open(struct prefixes *p)
{
    struct store *s = &p->store;
    if (!index_may_write(&p->index))
        return EAGAIN;
    int why = index_make_room(&p->index, prefix_file_bytes(&s->head), s->head.tokens);
    if (why == 0)
        why = open_part(p);
    s->block = 0;
    s->at = s->bytes = s->written = 0;
    return why == 0 ? reserve(s) : why;
}

int write_piece(struct prefixes *p)
{
    struct store *s = &p->store;
    uint64_t offset = prefix_block_offset(&s->head, s->block) + s->at;
    int why = write_all(s->fd, s->piece, s->bytes, offset);
    if (why != 0)
        return why;
    sync_file_range(s->fd, (off_t)offset, (off_t)s->bytes, SYNC_FILE_RANGE_WRITE);
    if (s->at == 0)
        XXH3_64bits_reset(s->hash);
    XXH3_64bits_update(s->hash, s->piece, s->bytes);
    s->written += s->bytes;
    s->at += s->bytes;
    if (s->at < prefix_block_bytes(&s->head, s->block))
        return 0;
    prefix_set_checksum(&s->head, s->tables, s->block, XXH3_64bits_digest(s->hash));
    s->block++;
    s->at = 0;
    return 0;
}

/* In whole PREFIX_ALIGN, filled with zeros. */
static int write_padded(struct store *s, const void *bytes, uint64_t n, uint64_t at)
{
    for (uint64_t done = 0; done < n;) {
        size_t part = n - done < PIECE_BYTES ? (size_t)(n - done) : PIECE_BYTES;
        size_t whole = align_up(part, PREFIX_ALIGN);
        memcpy(s->piece, (const char *)bytes + done, part);
        memset(s->piece + part, 0, whole - part);
        int why = write_all(s->fd, s->piece, whole, at + done);
        if (why != 0)
            return why;
        done += part;
    }
    return 0;
}

int write_end(struct prefixes *p)
{
    struct store *s = &p->store;
    char part[PREFIX_NAME_BYTES + 8];
    part_name(s, part);
    sl_assert(s->block == prefix_blocks(&s->head));
    prefix_seal(&s->head, s->tables);
    int why = write_padded(s, s->tables, prefix_tables_bytes(&s->head), PREFIX_ALIGN);
    if (why == 0)
        why = write_padded(s, &s->head, sizeof s->head, 0);
    if (why == 0 && fsync(s->fd) != 0)
        why = errno;
    if (close(s->fd) != 0 && why == 0)
        why = errno;
    s->fd = -1;
    if (why == 0 && renameat(p->index.dir, part, p->index.dir, s->name) != 0)
        why = errno;
    if (why != 0)
        return why;
    fsync(p->index.dir); /* some file systems have none of directories; the file may be lost */
    s->written += prefix_tables_bytes(&s->head) + sizeof s->head;
    index_add(&p->index, s->name, &s->head, s->tables);
    s->tables = NULL;
    return 0;
}

void write_abort(struct prefixes *p)
{
    struct store *s = &p->store;
    char part[PREFIX_NAME_BYTES + 8];
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    part_name(s, part);
    if (s->name[0] && p->index.lock >= 0)
        unlinkat(p->index.dir, part, 0);
}
