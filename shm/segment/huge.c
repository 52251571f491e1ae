/* Huge pages for a segment, asked for range by range: MADV_COLLAPSE (Linux 6.1) makes one of what
 * a range has, whatever the machine's settings say of huge pages. */
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

#define PIECES_MAX 16 /* at a time: how long the range is held */

static char *address(const struct segment *s, uint64_t offset)
{
    return (char *)s->base + offset;
}

/* Pieces that are not there at all cannot be made one page of: each gets its first small one. */
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

/* What a process may have is one word for all its threads. */
static pthread_mutex_t allowing = PTHREAD_MUTEX_INITIALIZER;

/* One call for all pieces: each call waits for every processor once. A process that must not have
 * huge pages anywhere else may have them here. */
static int collapse(const struct segment *s, uint64_t offset, uint64_t pieces)
{
    pthread_mutex_lock(&allowing);
    int rc = collapse_allowed(s, offset, pieces);
    pthread_mutex_unlock(&allowing);
    return rc;
}

/* The kernel keeps a huge page whole when someone holds it just then; a part that was punched is
 * zero, but still costs memory. */
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

/* Gives back what the last piece has beyond `end`; when that is refused, all of the piece. */
static void cut_off(const struct segment *s, uint64_t end)
{
    uint64_t over = align_up(end, HUGE_PAGE_BYTES) - end;
    if (over == 0)
        return;
    int rc = segment_punch(s->fd, end, over);
    if (rc == 0 && !really_gone(s, end, over))
        rc = segment_punch(s->fd, end + over - HUGE_PAGE_BYTES, HUGE_PAGE_BYTES);
    if (rc != 0) /* nobody counts these pages */
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
    return segment_allocate(s->fd, offset, bytes); /* what is not there yet */
}
