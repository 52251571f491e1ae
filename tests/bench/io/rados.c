/* SPDX-License-Identifier: Apache-2.0 */
/* A loop of librados: asynchronous reads of a file that is striped as `rados --striper put` does by
 * default (objects of 4 MiB, one after the other), with the library's own defaults. */
#include <pthread.h>
#include <rados/librados.h>
#include <stdio.h>

#include "lib/base/bytes.h"
#include "tests/bench/io/compare.h"

#define OBJECT_BYTES (4 * MIB)
#define DEPTH_MAX    128

static struct read {
    rados_completion_t done;
    bool ended;
} reads[DEPTH_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t any = PTHREAD_COND_INITIALIZER;
static rados_ioctx_t pool;

static void ended(rados_completion_t done, void *arg)
{
    struct read *r = arg;
    (void)done;
    pthread_mutex_lock(&lock);
    r->ended = true;
    pthread_cond_signal(&any);
    pthread_mutex_unlock(&lock);
}

void library_open(struct compare *c)
{
    rados_t cluster;
    char user[IO_URL_TEXT_BYTES + 8];
    snprintf(user, sizeof user, "client.%s", c->parsed.user[0] ? c->parsed.user : "admin");
    if (rados_create2(&cluster, "ceph", user, 0) < 0 ||
        rados_conf_read_file(cluster, c->parsed.conf) < 0 || rados_connect(cluster) < 0 ||
        rados_ioctx_create(cluster, c->parsed.pool, &pool) < 0)
        compare_fail("librados cannot connect");
}

/* Inside one object, as those of the program `rados bench` are. */
static void start(struct compare *c, uint32_t i)
{
    char name[IO_URL_TEXT_BYTES + 24];
    uint64_t at = compare_offset(c), in = at % OBJECT_BYTES;
    if (in + c->bytes > OBJECT_BYTES)
        in = OBJECT_BYTES - c->bytes;
    if (at / OBJECT_BYTES * OBJECT_BYTES + in + c->bytes > c->file_bytes)
        at = in = 0;
    snprintf(name, sizeof name, "%s.%016llx", c->parsed.name,
             (unsigned long long)(at / OBJECT_BYTES));
    reads[i].ended = false;
    if (rados_aio_create_completion2(&reads[i], ended, &reads[i].done) < 0 ||
        rados_aio_read(pool, name, reads[i].done, c->buffer + (size_t)i * c->bytes, c->bytes, in) <
            0)
        compare_fail("librados rejects a read");
}

static uint32_t wait_any(uint32_t depth)
{
    uint32_t i = 0;
    pthread_mutex_lock(&lock);
    for (;;) {
        for (i = 0; i < depth && !(reads[i].done && reads[i].ended); i++)
            ;
        if (i < depth)
            break;
        pthread_cond_wait(&any, &lock);
    }
    pthread_mutex_unlock(&lock);
    return i;
}

uint64_t library_loop(struct compare *c)
{
    uint64_t sum = 0;
    uint32_t open = 0;
    for (; open < c->depth; open++)
        start(c, open);
    while (open > 0) {
        uint32_t i = wait_any(c->depth);
        int rc = rados_aio_get_return_value(reads[i].done);
        rados_aio_release(reads[i].done);
        reads[i].done = NULL;
        if (rc <= 0)
            compare_fail("a read of librados failed");
        sum += (uint64_t)rc;
        if (compare_over(c))
            open--;
        else
            start(c, i);
    }
    return sum;
}
