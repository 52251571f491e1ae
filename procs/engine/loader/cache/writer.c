/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the thread that writes a cache file. Two rings of one writer and one reader each connect it
 * with the loader's thread. */
#include "procs/engine/loader/cache/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"

#define STACK_BYTES   (64 * KIB)
#define LOCK_WAIT_NS  (2 * NS_PER_S) /* a killed predecessor keeps it until its reads have ended */
#define LOCK_PAUSE_NS (20 * NS_PER_MS)
#define NICENESS      10
#define IOPRIO_IDLE   (3 << 13) /* linux/ioprio.h */
#define IOPRIO_THREAD 1

struct writer {
    struct writer_file file;
    char *buffer;
    bool direct;
    struct index_found *found;
    uint32_t found_count;
    _Atomic uint32_t checked;
    _Atomic uint32_t state;
    _Atomic int error_number;
    sem_t started, given;
    uint64_t head, taken;  /* fills given and taken back: the loader's thread */
    _Atomic uint64_t tail; /* that ended */
    struct fill fill[FILLS_MAX];
    struct filled filled[FILLS_MAX];
};

/* ---- the file -------------------------------------------------------------------------------- */

/* The file system has no direct I/O at this place. */
static bool fall_back(struct writer *w)
{
    int flags = fcntl(w->file.fd, F_GETFL);
    if (errno != EINVAL || !w->direct || flags < 0 ||
        fcntl(w->file.fd, F_SETFL, flags & ~O_DIRECT) != 0)
        return false;
    w->direct = false;
    return true;
}

/* 0, or an errno value. */
static int write_all(struct writer *w, const char *from, uint64_t bytes, uint64_t at)
{
    while (bytes > 0) {
        ssize_t n = pwrite(w->file.fd, from, bytes, (off_t)at);
        if (n < 0 && (errno == EINTR || fall_back(w)))
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        from += n;
        bytes -= (uint64_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

/* A page; what the file does not have is zeros. 0, or an errno value. */
static int read_page(struct writer *w, uint64_t at)
{
    memset(w->buffer, 0, PAGE_BYTES);
    ssize_t n;
    do {
        n = pread(w->file.fd, w->buffer, PAGE_BYTES, (off_t)at);
    } while (n < 0 && (errno == EINTR || fall_back(w)));
    return n < 0 ? errno : 0;
}

/* Without direct I/O, the pages would count against the budget. */
static int settle(struct writer *w, uint64_t at, uint64_t bytes)
{
    if (w->direct)
        return 0;
    if (fdatasync(w->file.fd) != 0)
        return errno;
    (void)posix_fadvise(w->file.fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
    return 0;
}

/* Of this open file, so that it ends with the process. */
static bool lock(const struct writer *w)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    uint64_t deadline = clock_now_ns() + LOCK_WAIT_NS;
    while (fcntl(w->file.fd, F_OFD_SETLK, &all) != 0) {
        if (clock_now_ns() > deadline)
            return false;
        struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    }
    return true;
}

/* What the file does not have yet are holes; one that was longer is cut. */
static int set_size(struct writer *w)
{
    off_t bytes = (off_t)cache_slot_at(w->file.head.slot_bytes, w->file.slots);
    return ftruncate(w->file.fd, bytes) == 0 ? 0 : errno;
}

static int begin_file(struct writer *w)
{
    memset(w->buffer, 0, PAGE_BYTES);
    memcpy(w->buffer, &w->file.head, sizeof w->file.head);
    if (ftruncate(w->file.fd, 0) != 0)
        return errno;
    return write_all(w, w->buffer, PAGE_BYTES, 0);
}

static void note_found(struct writer *w, uint32_t slot)
{
    struct cache_slot_head head;
    memcpy(&head, w->buffer, sizeof head);
    if (cache_slot_head_right(&head, w->file.head.slot_bytes))
        w->found[w->found_count++] = (struct index_found){.entry = head.entry,
                                                          .slot = slot,
                                                          .stamp = head.stamp,
                                                          .bytes = head.bytes,
                                                          .sum = head.sum};
}

static int read_heads(struct writer *w)
{
    int rc = set_size(w);
    for (uint32_t i = 0; i < w->file.slots && rc == 0; i++) {
        rc = read_page(w, cache_slot_at(w->file.head.slot_bytes, i));
        if (rc != 0)
            return rc;
        note_found(w, i);
        atomic_store_explicit(&w->checked, i + 1, memory_order_relaxed);
    }
    if (!w->direct)
        (void)posix_fadvise(w->file.fd, 0, 0, POSIX_FADV_DONTNEED);
    return rc;
}

static enum writer_state open_file(struct writer *w, int *error_number)
{
    struct cache_head found;
    if (!lock(w))
        return WRITER_BUSY;
    *error_number = read_page(w, 0);
    if (*error_number != 0)
        return WRITER_FAILED;
    memcpy(&found, w->buffer, sizeof found);
    enum cache_file kind = cache_head_judge(&found, &w->file.head);
    if (kind == CACHE_FILE_OTHER)
        return WRITER_OTHER;
    if (kind == CACHE_FILE_NEW)
        *error_number = begin_file(w);
    else
        w->file.head = found; /* with its identity */
    if (*error_number == 0)
        *error_number = read_heads(w);
    return *error_number == 0 ? WRITER_READY : WRITER_FAILED;
}

/* ---- fills ----------------------------------------------------------------------------------- */

static bool still_there(const struct writer *w, const struct fill *f)
{
    uint64_t word = entry_read(f->word);
    enum entry_state state = entry_state_of(word);
    return entry_generation_of(word) == f->generation &&
           (state == ENTRY_READY ||
            (state == ENTRY_LOADING && !(entry_pending_of(word) & 1u << w->file.loader)));
}

static bool copy(struct writer *w, const struct fill *f)
{
    char *to = w->buffer + PAGE_BYTES;
    if (!still_there(w, f))
        return false;
    for (uint32_t i = 0; i < f->runs; i++) {
        for (uint64_t done = 0; done < f->run[i].bytes;) {
            ssize_t n = pread(w->file.arena_fd, to + done, f->run[i].bytes - done,
                              (off_t)(f->run[i].arena_offset + done));
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return false;
            done += (uint64_t)n;
        }
        to += f->run[i].bytes;
    }
    atomic_thread_fence(memory_order_seq_cst); /* the word is read after the bytes */
    return still_there(w, f);
}

static int write_slot(struct writer *w, const struct fill *f, uint64_t sum)
{
    uint64_t at = cache_slot_at(w->file.head.slot_bytes, f->slot);
    struct cache_slot_head head = {.magic = CACHE_SLOT_MAGIC,
                                   .entry = f->entry,
                                   .bytes = f->bytes,
                                   .stamp = f->stamp,
                                   .sum = sum};
    memset(w->buffer, 0, PAGE_BYTES);
    int rc = f->evicts ? write_all(w, w->buffer, PAGE_BYTES, at) : 0;
    if (rc == 0)
        rc = write_all(w, w->buffer + PAGE_BYTES, f->bytes, at + PAGE_BYTES);
    cache_slot_head_seal(&head);
    memcpy(w->buffer, &head, sizeof head);
    if (rc == 0)
        rc = write_all(w, w->buffer, PAGE_BYTES, at);
    return rc == 0 ? settle(w, at, PAGE_BYTES + f->bytes) : rc;
}

static int begin_again(struct writer *w, uint64_t identity)
{
    w->file.head.identity = identity;
    cache_head_seal(&w->file.head);
    int rc = begin_file(w);
    return rc == 0 ? set_size(w) : rc;
}

/* 0, or an errno value. */
static int fill_slot(struct writer *w, const struct fill *f, struct filled *out)
{
    out->sum = XXH3_64bits(w->buffer + PAGE_BYTES, f->bytes);
    int rc = write_slot(w, f, out->sum);
    out->bytes = rc == 0 ? PAGE_BYTES + f->bytes : 0;
    return rc;
}

static void run_fill(struct writer *w, const struct fill *f, struct filled *out)
{
    *out = (struct filled){.slot = f->slot, .result = FILL_DROPPED};
    if (writer_state(w) != WRITER_READY || (!f->begins && !copy(w, f)))
        return;
    int rc = f->begins ? begin_again(w, f->identity) : fill_slot(w, f, out);
    out->result = rc == 0 ? FILL_WRITTEN : FILL_FAILED;
    if (rc == 0)
        return;
    atomic_store_explicit(&w->error_number, rc, memory_order_relaxed);
    atomic_store_explicit(&w->state, WRITER_FAILED, memory_order_release);
}

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    int error_number = 0;
    prctl(PR_SET_NAME, "cache-writer");
    (void)syscall(SYS_ioprio_set, IOPRIO_THREAD, 0, IOPRIO_IDLE);
    (void)setpriority(PRIO_PROCESS, 0, NICENESS); /* of this thread, on Linux */
    sem_post(&w->started);
    enum writer_state state = open_file(w, &error_number);
    atomic_store_explicit(&w->error_number, error_number, memory_order_relaxed);
    atomic_store_explicit(&w->state, state, memory_order_release);
    for (uint64_t tail = 0;;) {
        if (sem_wait(&w->given) != 0)
            continue; /* EINTR */
        run_fill(w, &w->fill[tail % FILLS_MAX], &w->filled[tail % FILLS_MAX]);
        atomic_store_explicit(&w->tail, ++tail, memory_order_release);
    }
    return NULL;
}

static int start_thread(struct writer *w)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals go to the main thread */
    int rc = pthread_create(&thread, &attr, writer_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

static void release(struct writer *w)
{
    close(w->file.fd);
    free(w->buffer);
    free(w->found);
    free(w);
}

struct writer *writer_start(const struct writer_file *file, struct error *error)
{
    struct writer *w = calloc(1, sizeof *w);
    if (!w) {
        close(file->fd);
        error_set(error, ERR_NO_MEMORY, "out of memory (cache)");
        return NULL;
    }
    w->file = *file;
    w->direct = (fcntl(file->fd, F_GETFL) & O_DIRECT) != 0;
    w->buffer = aligned_alloc(PAGE_BYTES, file->head.slot_bytes);
    w->found = calloc(file->slots, sizeof *w->found);
    sem_init(&w->started, 0, 0);
    sem_init(&w->given, 0, 0);
    int rc = w->buffer && w->found ? start_thread(w) : ENOMEM;
    if (rc != 0) {
        release(w);
        error_set(error, rc == ENOMEM ? ERR_NO_MEMORY : ERR_FAILED, "cannot start a thread: %s",
                  strerror(rc));
        return NULL;
    }
    while (sem_wait(&w->started) != 0)
        continue; /* EINTR */
    return w;
}

/* ---- the loader's thread --------------------------------------------------------------------- */

enum writer_state writer_state(const struct writer *w)
{
    return (enum writer_state)atomic_load_explicit(&w->state, memory_order_acquire);
}

int writer_errno(const struct writer *w)
{
    return atomic_load_explicit(&w->error_number, memory_order_relaxed);
}

uint32_t writer_checked(const struct writer *w)
{
    return atomic_load_explicit(&w->checked, memory_order_relaxed);
}

uint64_t writer_identity(const struct writer *w)
{
    return w->file.head.identity;
}

struct index_found *writer_take_found(struct writer *w, uint32_t *count)
{
    struct index_found *found = w->found;
    *count = w->found_count;
    w->found = NULL;
    return found;
}

uint32_t writer_room(const struct writer *w)
{
    return FILLS_MAX - (uint32_t)(w->head - w->taken);
}

void writer_give(struct writer *w, const struct fill *fill)
{
    sl_assert(writer_room(w) > 0);
    w->fill[w->head % FILLS_MAX] = *fill;
    w->head++;
    sem_post(&w->given);
}

bool writer_take(struct writer *w, struct filled *filled)
{
    uint64_t taken = w->taken;
    if (atomic_load_explicit(&w->tail, memory_order_acquire) == taken)
        return false;
    *filled = w->filled[taken % FILLS_MAX];
    w->taken = taken + 1;
    return true;
}
