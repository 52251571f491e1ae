/* Signed shared-memory segments.
 * Writers: the supervisor creates; every process attaches from an inherited descriptor
 * (shm/segment/inherited_fds.h). A segment's name lives only between shm_open(O_EXCL, 0600) and the shm_unlink
 * right after it, before anything is allocated; nothing stays in /dev/shm, also after kill -9 of
 * everything. */
#ifndef SLUICE_SHM_SEGMENT_SEGMENT_H
#define SLUICE_SHM_SEGMENT_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

/* SEGMENT(KIND, word, layout version) */
#define SEGMENTS(X)                                                                                \
    X(MODEL, "model", 1)                                                                           \
    X(DIRECTORY, "directory", 1)                                                                   \
    X(ARENA, "arena", 1)                                                                           \
    X(GATES, "gates", 1)                                                                           \
    X(ACCESS_LOG, "access_log", 1)                                                                 \
    X(KV, "kv", 1)                                                                                 \
    X(PROCS, "procs", 1)

enum segment_kind {
#define X(kind, name, version) SEGMENT_##kind,
    SEGMENTS(X)
#undef X
        SEGMENT__COUNT
};

#define SEGMENT_MAGIC      0x474553454349554cull
#define SEGMENT_HEAD_BYTES 64

/* First bytes of every segment. Writer: the supervisor, once, before any child exists. */
struct segment_head {
    uint64_t magic;
    uint32_t kind;
    uint32_t version;
    uint64_t layout_hash; /* over sizeof/offsetof of every struct of that segment */
    uint64_t bytes;       /* of the file, sparse part included */
    uint64_t boot;        /* boot generation: differs at every start of an engine */
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

/* Creates, unlinks, sizes (sparse) and signs a segment. run_tag distinguishes runs of one user in
 * the short-lived name (no '/', at most 64 bytes): two run directories must not share a tag. What
 * segment_fixed_bytes says is allocated with fallocate, so a full /dev/shm is ERR_NO_MEMORY here,
 * never a SIGBUS later. The descriptor is close-on-exec; *out holds a writable mapping. */
int segment_create(enum segment_kind kind, const char *run_tag, uint64_t boot, uint64_t bytes,
                   struct segment *out, struct error *error);

/* Removes names of this run left by a death between shm_open and shm_unlink. Caller holds the run
 * lock. */
void segment_remove_stale(const char *run_tag);

/* Maps a segment (the arena at an address that is a multiple of HUGE_PAGE_BYTES) and checks its
 * signature; a mismatch names both values. boot 0: any. On success fd belongs to *out; on failure
 * it stays the caller's, open. */
int segment_attach(int fd, enum segment_kind kind, bool writable, uint64_t boot,
                   struct segment *out, struct error *error);

/* A second, read-only descriptor of the same file (for processes that may only look). -1 on error.
 */
int segment_reopen_readonly(int fd, struct error *error);

void segment_detach(struct segment *segment); /* munmap and close */

/* Bytes from the start that are allocated at creation: everything for small segments; the header
 * page of the model and of the arena; the header and request table of kv. The rest is sparse: its
 * writer calls segment_allocate before it stores there. */
uint64_t segment_fixed_bytes(enum segment_kind kind, uint64_t bytes);

/* The model segment holds its blob (struct model_index) right after the signature. */
#define SEGMENT_MODEL_OFFSET SEGMENT_HEAD_BYTES

/* Hash of the layout of a kind's structs, computed from sizeof/offsetof (shm/layout.c). */
uint64_t segment_layout_hash(enum segment_kind kind);
const char *segment_name(enum segment_kind kind);

/* Allocated bytes of the file (st_blocks * 512): what it costs the budget. */
uint64_t segment_allocated_bytes(int fd);

/* Punches [offset, offset + bytes), whole pages, in slices of at most 8 MiB. 0 or -errno. A read
 * of a process that is gone but still at the device lands in the old page, never in a new one. */
int segment_punch(int fd, uint64_t offset, uint64_t bytes);

/* Allocates [offset, offset + bytes) with fallocate. 0 or -errno (-ENOSPC: /dev/shm is full). */
int segment_allocate(int fd, uint64_t offset, uint64_t bytes);

/* What lies in huge pages is one piece for a drive that reads into it, where single pages are
 * hundreds, and one entry of a page table. */
struct segment_huge {
    uint64_t bytes; /* that lie in huge pages, or in the beginning of one */
    uint64_t ns;    /* it took to make them */
    int status;     /* 0, or the -errno for which there are not (all of) them */
};

static inline void segment_huge_add(struct segment_huge *sum, const struct segment_huge *part)
{
    sum->bytes += part->bytes;
    sum->ns += part->ns;
    sum->status = sum->status ? sum->status : part->status;
}

/* Allocates [offset, offset + bytes), of which nothing is there yet, in huge pages as far as they
 * can be had; offset is a multiple of HUGE_PAGE_BYTES. The rest of the range beyond the last
 * whole one is the beginning of another when `spare` bytes allow that: its end is allocated for a
 * moment and given back, and the pages that stay are neighbours. Exactly `bytes` are allocated in
 * the end in any case. 0, or -errno of what small pages fail for; for want of huge ones never. */
int segment_allocate_huge(const struct segment *segment, uint64_t offset, uint64_t bytes,
                          uint64_t spare, struct segment_huge *huge);

#endif
