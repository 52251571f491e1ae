/* SPDX-License-Identifier: Apache-2.0 */
/* Signed shared-memory segments hold the data that processes share. The supervisor creates them;
 * every process attaches through an inherited descriptor (shm/segment/inherited_fds.h). A segment's
 * name is random and exists only between shm_open(O_EXCL, 0600) and the shm_unlink right after it,
 * before anything is allocated: nothing stays in /dev/shm, even after kill -9 of all processes. */
#ifndef SLUICE_SHM_SEGMENT_SEGMENT_H
#define SLUICE_SHM_SEGMENT_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* X(KIND, name, layout version) */
#define SEGMENTS(X)                                                                                \
    X(MODEL, "model", 1)                                                                           \
    X(DIRECTORY, "directory", 1)                                                                   \
    X(ARENA, "arena", 1)                                                                           \
    X(GATES, "gates", 1)                                                                           \
    X(ACCESS_LOG, "access_log", 1)                                                                 \
    X(KV, "kv", 6)                                                                                 \
    X(PROCS, "procs", 1)

enum segment_kind {
#define X(kind, name, version) SEGMENT_##kind,
    SEGMENTS(X)
#undef X
        SEGMENT__COUNT
};

#define SEGMENT_MAGIC      0x474553454349554cull
#define SEGMENT_HEAD_BYTES 64

/* Header of every segment. Writer: the supervisor, once, before any child exists. */
struct segment_head {
    uint64_t magic;
    uint32_t kind;
    uint32_t version;
    uint64_t layout_hash; /* over sizeof/offsetof of every struct of that segment */
    uint64_t bytes;       /* file size, sparse part included */
    uint64_t boot;        /* differs at every start of an engine */
    uint64_t reserved[3];
};
_Static_assert(sizeof(struct segment_head) == SEGMENT_HEAD_BYTES, "one cache line");

struct segment {
    int fd;
    enum segment_kind kind;
    bool writable;
    void *base;
    uint64_t bytes;
};

/* Creates, unlinks, sizes (sparse) and signs a segment. run_tag distinguishes the runs of one user
 * in the short-lived name (no '/', at most 64 bytes): two run directories must not share a tag. The
 * first segment_fixed_bytes are allocated with fallocate, so that a full /dev/shm is ERR_NO_MEMORY
 * here instead of SIGBUS later. The descriptor is close-on-exec; *out has a writable mapping. */
int segment_create(enum segment_kind kind, const char *run_tag, uint64_t boot, uint64_t bytes,
                   struct segment *out, struct error *error);

/* Removes names of this run and user left by a process that was killed between shm_open and
 * shm_unlink. The caller holds the run lock. */
void segment_remove_stale(const char *run_tag);

/* Maps a segment (the arena at a multiple of HUGE_PAGE_BYTES) and checks its signature; the error
 * of a mismatch has both values. boot 0: any. On success *out owns fd; on failure it stays open and
 * the caller's. */
int segment_attach(int fd, enum segment_kind kind, bool writable, uint64_t boot,
                   struct segment *out, struct error *error);

/* Opens a second, read-only descriptor of the same file. -1 with *error. */
int segment_reopen_readonly(int fd, struct error *error);

void segment_detach(struct segment *segment); /* munmap and close */

/* Bytes from the start that are allocated at creation: everything for small segments; the header
 * page of the model and of the arena; header and request table of kv. The rest is sparse: its
 * writer must call segment_allocate before storing there. */
uint64_t segment_fixed_bytes(enum segment_kind kind, uint64_t bytes);

/* The model segment has its blob (struct model_index) right after the signature. */
#define SEGMENT_MODEL_OFFSET SEGMENT_HEAD_BYTES

/* Hash of the layout of a kind's structs, computed from sizeof/offsetof (shm/layout.c). */
uint64_t segment_layout_hash(enum segment_kind kind);
const char *segment_name(enum segment_kind kind);

/* Allocated bytes of the file (st_blocks * 512): its cost to the budget. */
uint64_t segment_allocated_bytes(int fd);

/* Punches [offset, offset + bytes), whole pages, in slices of at most 8 MiB. 0 or -errno. A read in
 * flight of an exited process writes the old page, never a new one. */
int segment_punch(int fd, uint64_t offset, uint64_t bytes);

/* Frees the page tables of a punched range in this process: they stay when memory is punched, and
 * take a 512th of all that was ever stored. No other thread may use the range meanwhile. Its whole
 * 2 MiB parts only; does nothing if there is none. */
void segment_free_tables(const struct segment *segment, uint64_t offset, uint64_t bytes);

/* Maps [offset, offset + bytes) of the file at `at` of the segment, instead of what was mapped
 * there; all of them whole pages. 0 or -errno: there may be no mapping now. No other thread may use
 * the range at `at` meanwhile. */
int segment_map(const struct segment *segment, uint64_t at, uint64_t bytes, uint64_t offset);

/* Allocates [offset, offset + bytes) with fallocate. 0 or -errno (-ENOSPC: /dev/shm is full). */
int segment_allocate(int fd, uint64_t offset, uint64_t bytes);

/* Result of huge page allocation. A huge page is one segment for a device read instead of hundreds
 * of single pages, and one page table entry. */
struct segment_huge {
    uint64_t bytes; /* in huge pages, or in the first part of one */
    uint64_t ns;    /* time spent */
    int status;     /* 0, or the -errno that prevented (some of) them */
};

static inline void segment_huge_add(struct segment_huge *sum, const struct segment_huge *part)
{
    sum->bytes += part->bytes;
    sum->ns += part->ns;
    sum->status = sum->status ? sum->status : part->status;
}

/* Allocates [offset, offset + bytes), of which nothing may be allocated yet, in huge pages as far
 * as the kernel provides them; offset is a multiple of HUGE_PAGE_BYTES. If `spare` bytes allow it,
 * the rest beyond the last whole huge page also comes from one: its end is allocated temporarily
 * and punched, so the remaining pages are contiguous. In the end exactly `bytes` are allocated in
 * any case. 0, or -errno of a failed small-page allocation; missing huge pages are not an error. */
int segment_allocate_huge(const struct segment *segment, uint64_t offset, uint64_t bytes,
                          uint64_t spare, struct segment_huge *huge);

#endif
