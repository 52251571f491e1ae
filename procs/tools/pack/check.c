/* SPDX-License-Identifier: Apache-2.0 */
/* sluice pack --check: verifies a store against its checksums. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/clock.h"
#include "lib/tensor/precision.h"
#include "procs/tools/pack/pack.h"

#define PIECE_BYTES  (2 * MIB)
#define THREAD_BYTES (64 * KIB) /* of stack and heap */

struct check {
    const struct pack_options *options;
    struct model_index *index;
    struct bulk files[PACK_FILES_MAX]; /* stripe s, and its mirror */
    const char *path[PACK_FILES_MAX];
    uint32_t opened;
    _Atomic uint32_t next; /* expert entry */
    _Atomic uint64_t bytes, parts, wrong;
    pthread_mutex_t lock; /* stdout, failure */
    struct error failure;
};

static void fail(struct check *c, const struct error *why)
{
    pthread_mutex_lock(&c->lock);
    if (c->failure.code == ERR_NONE)
        c->failure = *why;
    pthread_mutex_unlock(&c->lock);
}

static void report_wrong(struct check *c, const struct model_entry *e, uint32_t stripe,
                         const char *path)
{
    atomic_fetch_add(&c->wrong, 1);
    if (c->options->json)
        return;
    pthread_mutex_lock(&c->lock);
    printf("damaged: layer %u, expert %u, precision %s, stripe %" PRIu32 " at offset %" PRIu64
           " of %s\n",
           (unsigned)e->layer, (unsigned)e->expert, precision_name((enum precision)e->precision),
           stripe, e->extent[0].file_offset, path);
    pthread_mutex_unlock(&c->lock);
}

/* Hashes and compares one shard in a file. */
static int check_shard(struct check *c, const struct model_entry *e, uint32_t file, void *buf,
                       XXH3_state_t *hash, struct error *error)
{
    uint32_t stripe = file / 2;
    struct model_extent runs[ENTRY_EXTENTS_MAX];
    uint32_t stripes = c->index->stripe_count;
    if (model_entry_shard(e, stripe, stripes, runs) == 0)
        return 0;
    XXH3_64bits_reset(hash);
    for (uint64_t at = 0; at < runs[0].read_bytes; at += PIECE_BYTES) {
        uint64_t n = runs[0].read_bytes - at, got;
        n = n < PIECE_BYTES ? n : PIECE_BYTES;
        if (bulk_read(&c->files[file], buf, n, runs[0].file_offset + at, &got, error))
            return -1;
        if (got != n)
            return error_set(error, ERR_GONE, "%.250s is shorter than its index", c->path[file]);
        XXH3_64bits_update(hash, buf, n);
        atomic_fetch_add(&c->bytes, n);
    }
    atomic_fetch_add(&c->parts, 1);
    if (XXH3_64bits_digest(hash) != model_index_checksums(c->index)[e->checksum_first + stripe])
        report_wrong(c, e, stripe, c->path[file]);
    return 0;
}

static void *work(void *arg)
{
    struct check *c = arg;
    struct error error = {0};
    XXH3_state_t *hash = XXH3_createState();
    void *buf = bulk_buffer(PIECE_BYTES);
    int status = hash && buf ? 0 : error_set(&error, ERR_NO_MEMORY, "out of memory (read buffer)");
    while (status == 0) {
        uint32_t i = c->index->dense_count + atomic_fetch_add(&c->next, 1);
        if (i >= c->index->entry_count)
            break;
        const struct model_entry *e = &model_index_entries(c->index)[i];
        for (uint32_t f = 0; f < c->opened && status == 0 && e->extents > 0 && e->in_store; f++)
            if (c->path[f][0])
                status = check_shard(c, e, f, buf, hash, &error);
    }
    if (status)
        fail(c, &error);
    free(buf);
    XXH3_freeState(hash);
    return NULL;
}

static int open_store(struct check *c, struct error *error)
{
    int fd = open(c->options->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", c->options->dir);
    int status = store_index_build(fd, c->options->dir, &c->index, error);
    close(fd);
    while (status == 0 && c->opened < 2 * c->index->stripe_count) {
        const struct model_stripe *s = &model_index_stripes(c->index)[c->opened / 2];
        const char *path = c->path[c->opened] = c->opened % 2 ? s->mirror : s->path;
        c->files[c->opened].fd = -1;
        status = path[0] ? bulk_open(&c->files[c->opened], path, O_RDONLY, error) : 0;
        c->opened += status == 0;
    }
    return status;
}

static int report_result(const struct check *c, double seconds)
{
    uint64_t bytes = atomic_load(&c->bytes);
    char text[16];
    if (c->options->json) {
        json_t *o = json_pack("{s:s, s:I, s:I, s:I, s:f}", "store", c->options->dir, "parts",
                              (json_int_t)atomic_load(&c->parts), "wrong",
                              (json_int_t)atomic_load(&c->wrong), "bytes", (json_int_t)bytes,
                              "seconds", seconds);
        int status = o ? json_dumpf(o, stdout, JSON_INDENT(2)) : -1;
        printf("\n");
        json_decref(o);
        return status;
    }
    printf("%" PRIu64 " shards, %s read in %.1f s: %" PRIu64 " damaged\n", atomic_load(&c->parts),
           bytes_format(bytes, text), seconds, atomic_load(&c->wrong));
    return 0;
}

static int check_all(struct check *c, struct error *error)
{
    pthread_t threads[PACK_THREADS_MAX];
    unsigned started = 0;
    uint64_t start_ns = clock_now_ns();
    while (started < c->options->threads && pthread_create(&threads[started], NULL, work, c) == 0)
        started++;
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (started == 0)
        return error_set(error, ERR_FAILED, "cannot start a thread");
    if (c->failure.code != ERR_NONE) {
        *error = c->failure;
        return -1;
    }
    if (report_result(c, (double)(clock_now_ns() - start_ns) / (double)NS_PER_S) != 0 ||
        fflush(stdout) != 0)
        return error_set(error, ERR_IO, "cannot write the result");
    uint64_t wrong = atomic_load(&c->wrong);
    if (wrong > 0)
        return error_set(error, ERR_BAD_INPUT,
                         "%.250s is damaged: %" PRIu64 " of %" PRIu64
                         " shards do not match their checksums",
                         c->options->dir, wrong, atomic_load(&c->parts));
    return 0;
}

int check_store(struct pack_options *options, struct error *error)
{
    struct check c = {.options = options, .lock = PTHREAD_MUTEX_INITIALIZER};
    int status = open_store(&c, error);
    if (status == 0)
        status = pack_fit_threads(options, PIECE_BYTES + THREAD_BYTES, error);
    if (status == 0)
        status = check_all(&c, error);
    while (c.opened > 0)
        bulk_close(&c.files[--c.opened]);
    free(c.index);
    return status;
}
