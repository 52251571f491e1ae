/* SPDX-License-Identifier: Apache-2.0 */
/* Backend pread: a few threads that block in pread, for kernels and sandboxes without io_uring.
 * Reads of a killed process end before it can be reaped. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/io/io.h"

#define PREAD_MAGIC 0x44525050u
#define THREADS_MAX 8 /* as in backends.tbl.h */
#define STACK_BYTES (64 * 1024)

struct ring { /* of `capacity` elements; head and tail only increase */
    uint32_t head, tail;
};

struct io {
    uint32_t magic, capacity, threads;
    int eventfd;
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct ring todo, ended;
    struct io_read *reads;
    struct io_done *done;
    pthread_t thread[THREADS_MAX];
};

static void *read_loop(void *arg)
{
    struct io *io = arg;
    OBJ_CHECK(io, PREAD_MAGIC);
    pthread_mutex_lock(&io->lock);
    for (;;) {
        while (io->todo.head == io->todo.tail && !io->stop)
            pthread_cond_wait(&io->work, &io->lock);
        if (io->stop)
            break;
        struct io_read r = io->reads[io->todo.head++ % io->capacity];
        pthread_mutex_unlock(&io->lock);
        ssize_t got = pread(r.fd, r.buffer, r.bytes, (off_t)r.file_offset);
        int64_t result = got >= 0 ? got : -errno;
        pthread_mutex_lock(&io->lock);
        io->done[io->ended.tail++ % io->capacity] = (struct io_done){r.tag, result};
        uint64_t one = 1;
        ssize_t wrote = write(io->eventfd, &one, sizeof one);
        (void)wrote; /* at overflow the eventfd is readable anyway */
    }
    pthread_mutex_unlock(&io->lock);
    return NULL;
}

static void pread_close(struct io *io)
{
    OBJ_CHECK(io, PREAD_MAGIC);
    pthread_mutex_lock(&io->lock);
    io->stop = true;
    pthread_cond_broadcast(&io->work);
    pthread_mutex_unlock(&io->lock);
    for (uint32_t i = 0; i < io->threads; i++)
        pthread_join(io->thread[i], NULL);
    pthread_cond_destroy(&io->work);
    pthread_mutex_destroy(&io->lock);
    if (io->eventfd >= 0)
        close(io->eventfd);
    free(io->reads);
    free(io->done);
    io->magic = 0;
    free(io);
}

static int start_threads(struct io *io, uint32_t wanted)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int rv = 0;
    while (rv == 0 && io->threads < wanted) {
        rv = pthread_create(&io->thread[io->threads], &attr, read_loop, io);
        io->threads += rv == 0;
    }
    pthread_attr_destroy(&attr);
    return io->threads > 0 ? 0 : rv; /* fewer threads: slower, still correct */
}

static struct io *pread_open(const struct io_source *source, int *fd, struct error *error)
{
    uint32_t depth = source->depth;
    struct io *io = calloc(1, sizeof *io);
    if (!io) {
        error_set(error, ERR_NO_MEMORY, "out of memory (read threads)");
        return NULL;
    }
    io->magic = PREAD_MAGIC;
    io->capacity = depth;
    pthread_mutex_init(&io->lock, NULL);
    pthread_cond_init(&io->work, NULL);
    io->reads = calloc(depth, sizeof *io->reads);
    io->done = calloc(depth, sizeof *io->done);
    io->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rv = !io->reads || !io->done ? ENOMEM : io->eventfd < 0 ? errno : 0;
    if (rv == 0)
        rv = start_threads(io, depth < THREADS_MAX ? depth : THREADS_MAX);
    if (rv != 0) {
        error_set_errno(error, ERR_FAILED, rv, "cannot start read threads");
        pread_close(io);
        return NULL;
    }
    *fd = io->eventfd;
    return io;
}

static uint32_t pread_submit(struct io *io, const struct io_read *reads, uint32_t count)
{
    OBJ_CHECK(io, PREAD_MAGIC);
    pthread_mutex_lock(&io->lock);
    uint32_t taken = 0;
    for (; taken < count && io->todo.tail - io->todo.head < io->capacity; taken++) {
        io->reads[io->todo.tail++ % io->capacity] = reads[taken];
        pthread_cond_signal(&io->work);
    }
    pthread_mutex_unlock(&io->lock);
    return taken;
}

static uint32_t pread_poll(struct io *io, struct io_done *done, uint32_t max)
{
    OBJ_CHECK(io, PREAD_MAGIC);
    uint64_t events;
    ssize_t got = read(io->eventfd, &events, sizeof events);
    (void)got;
    pthread_mutex_lock(&io->lock);
    uint32_t n = 0;
    for (; n < max && io->ended.head != io->ended.tail; n++)
        done[n] = io->done[io->ended.head++ % io->capacity];
    pthread_mutex_unlock(&io->lock);
    return n;
}

const struct io_backend io_backend_pread = {
    .id = IO_PREAD,
    .open = pread_open,
    .submit = pread_submit,
    .poll = pread_poll,
    .close = pread_close,
};
