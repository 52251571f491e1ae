/* SPDX-License-Identifier: Apache-2.0 */
/* Huge pages for ranges of a segment with MADV_COLLAPSE (Linux 6.1), which works whatever the
 * system's settings for huge pages are. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "shm/segment/segment.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PIECES_MAX 16 /* pieces per call: bounds how long the range is locked */

static char *address(const struct segment *s, uint64_t offset)
{
    return (char *)s->base + offset;
}

/* A piece without any page cannot be collapsed: allocate its first small page. */
static int touch(const struct segment *s, uint64_t offset, uint64_t pieces)
{
    int rc = 0;
    for (uint64_t i = 0; i < pieces && rc == 0; i++)
        rc = segment_allocate(s->fd, offset + i * HUGE_PAGE_BYTES, PAGE_BYTES);
    return rc;
}

static int collapse_allowed(const struct segment *s, uint64_t offset, uint64_t pieces)
{
    bool disabled = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1;
    if (disabled && prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) != 0)
        return -errno;
    int rc = madvise(address(s, offset), pieces * HUGE_PAGE_BYTES, MADV_COLLAPSE) ? -errno : 0;
    if (disabled)
        (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    return rc;
}

/* PR_SET_THP_DISABLE applies to all threads of a process. */
static pthread_mutex_t allowing = PTHREAD_MUTEX_INITIALIZER;

/* One call for all pieces, because each call interrupts every CPU once. Enables huge pages
 * temporarily in a process that has them disabled. */
static int collapse(const struct segment *s, uint64_t offset, uint64_t pieces)
{
    pthread_mutex_lock(&allowing);
    int rc = collapse_allowed(s, offset, pieces);
    pthread_mutex_unlock(&allowing);
    return rc;
}

/* True when a punched range was really freed. If another process holds the huge page at that
 * moment, the kernel keeps it whole: the punched part is zero but still uses memory. */
static bool really_gone(const struct segment *s, uint64_t offset, uint64_t bytes)
{
    unsigned char there[HUGE_PAGE_BYTES / PAGE_BYTES];
    sl_assert(bytes <= HUGE_PAGE_BYTES);
    if (mincore(address(s, offset), bytes, there) != 0)
        return false;
    for (uint64_t i = 0; i < bytes / PAGE_BYTES; i++)
        if (there[i] & 1)
            return false;
    return true;
}

/* Frees the part of the last piece beyond `end`; if that fails, the whole piece. */
static void cut_off(const struct segment *s, uint64_t end)
{
    uint64_t over = align_up(end, HUGE_PAGE_BYTES) - end;
    if (over == 0)
        return;
    int rc = segment_punch(s->fd, end, over);
    if (rc == 0 && !really_gone(s, end, over))
        rc = segment_punch(s->fd, end + over - HUGE_PAGE_BYTES, HUGE_PAGE_BYTES);
    if (rc != 0) /* these pages would not be accounted for */
        sl_panic("cannot punch the %s at %llu: %s", segment_name(s->kind), (unsigned long long)end,
                 strerror(-rc));
}

static int back(const struct segment *s, uint64_t offset, uint64_t bytes, bool over,
                struct segment_huge *huge)
{
    uint64_t pieces = (over ? align_up(bytes, HUGE_PAGE_BYTES) : bytes) / HUGE_PAGE_BYTES;
    if (pieces == 0)
        return 0;
    int rc = touch(s, offset, pieces);
    if (rc != 0)
        return rc;
    uint64_t start = clock_now_ns();
    huge->status = collapse(s, offset, pieces);
    if (huge->status == 0)
        huge->bytes += bytes < pieces * HUGE_PAGE_BYTES ? bytes : pieces * HUGE_PAGE_BYTES;
    if (pieces * HUGE_PAGE_BYTES > bytes)
        cut_off(s, offset + bytes);
    huge->ns += clock_now_ns() - start;
    return 0;
}

int segment_allocate_huge(const struct segment *s, uint64_t offset, uint64_t bytes, uint64_t spare,
                          struct segment_huge *huge)
{
    sl_assert(offset % HUGE_PAGE_BYTES == 0 && bytes % PAGE_BYTES == 0);
    sl_assert(offset + bytes <= s->bytes);
    *huge = (struct segment_huge){0};
    for (uint64_t done = 0; done < bytes && huge->status == 0;) {
        uint64_t max = PIECES_MAX * HUGE_PAGE_BYTES;
        uint64_t part = bytes - done < max ? bytes - done : max;
        uint64_t padded = align_up(part, HUGE_PAGE_BYTES);
        bool over = padded - part <= spare && offset + done + padded <= s->bytes;
        int rc = back(s, offset + done, part, over, huge);
        if (rc != 0)
            return rc;
        done += part;
    }
    return segment_allocate(s->fd, offset, bytes); /* the missing pages */
}
