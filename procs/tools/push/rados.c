/* SPDX-License-Identifier: Apache-2.0 */
/* The back end of Ceph clusters: a file becomes objects of 4 MiB and gets the attributes of a
 * striped file (lib/io/server/rados/layout.h) at its end, as `rados --striper put` writes it. Until
 * then it is none. Writes are in flight together; a file has one writer, so the locks of
 * libradosstriper are not taken. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "lib/io/server/rados/cluster.h"
#include "procs/tools/push/push.h"

#define OBJECT_BYTES (4 * MIB)
#define IN_FLIGHT    4
#define PATIENCE_NS  (60 * NS_PER_S) /* for one write; a cluster that is full never answers */
#define NO_TAG       "-"

struct write {
    rados_completion_t done; /* NULL: none */
    char name[LAYOUT_NAME_BYTES];
    uint64_t bytes;
    char *buffer;
};

struct target {
    struct push *push;
    struct io_url url; /* of the manifest */
    struct cluster cluster;
    struct write write[IN_FLIGHT];
};

static int failed(const struct target *t, const char *name, const char *why, struct error *error)
{
    char shown[IO_URL_TEXT_BYTES];
    return push_url(t->push->given, name, shown, error) != 0
               ? -1
               : error_set(error, ERR_IO, "%.200s: %.180s", shown, why);
}

static uint64_t patience(void)
{
    return clock_now_ns() + PATIENCE_NS;
}

void target_close(struct target *t)
{
    for (int i = 0; i < IN_FLIGHT; i++) {
        if (t->write[i].done) {
            (void)rados_aio_cancel(t->cluster.pool, t->write[i].done);
            (void)rados_aio_wait_for_complete(t->write[i].done);
            rados_aio_release(t->write[i].done);
        }
        free(t->write[i].buffer);
    }
    cluster_close(&t->cluster);
    free(t);
}

struct target *target_open(struct push *p, struct error *error)
{
    char why[REMOTE_WHY_BYTES];
    struct target *t = calloc(1, sizeof *t);
    if (!t) {
        error_set(error, ERR_NO_MEMORY, "out of memory (push)");
        return NULL;
    }
    t->push = p;
    int rc = io_url_parse(p->url, &t->url, error);
    if (rc == 0 && cluster_connect(&t->cluster, &t->url, why) != 0)
        rc = error_set(error, ERR_IO, "%.200s: %.180s", p->given, why);
    for (int i = 0; i < IN_FLIGHT && rc == 0; i++) {
        t->write[i].buffer = malloc(OBJECT_BYTES);
        if (!t->write[i].buffer)
            rc = error_set(error, ERR_NO_MEMORY, "out of memory (push)");
    }
    if (rc == 0)
        return t;
    target_close(t);
    return NULL;
}

/* The name of a file in the pool: the objects' names begin with it. */
static int object_of(const struct target *t, const char *name, char object[IO_URL_TEXT_BYTES],
                     struct error *error)
{
    char text[IO_URL_TEXT_BYTES];
    struct io_url url;
    if (push_url(t->push->url, name, text, error) != 0 || io_url_parse(text, &url, error) != 0)
        return -1;
    memcpy(object, url.name, sizeof url.name);
    return 0;
}

/* Of a file of one object, a loader knows size and layout only (cluster.c). Here the version of
 * that object counts, too: a reader's lock changes it, and the file is sent again, which is 4 MiB
 * at most. Of the file that cluster_look has looked at. */
static int identify(struct target *t, const char *name, uint64_t *identity,
                    char why[REMOTE_WHY_BYTES])
{
    char first[LAYOUT_NAME_BYTES], text[64];
    uint64_t size, version;
    const struct layout *l = &t->cluster.layout;
    *identity = t->cluster.identity;
    if (!l->striped || l->size > l->object_size)
        return 0;
    layout_object(l, name, 0, first);
    int rc = cluster_stat(&t->cluster, first, &size, &version, patience());
    if (rc < 0) {
        snprintf(why, REMOTE_WHY_BYTES, "the object %.160s: %s", first, strerror(-rc));
        return rc;
    }
    snprintf(text, sizeof text, "%016" PRIx64 " %" PRIu64, *identity, version);
    *identity = remote_hash(text);
    return 0;
}

int target_look(struct target *t, const char *name, struct target_file *found, struct error *error)
{
    char object[IO_URL_TEXT_BYTES], why[REMOTE_WHY_BYTES];
    uint64_t identity = 0;
    if (object_of(t, name, object, error) != 0)
        return -1;
    int rc = cluster_look(&t->cluster, object, patience(), why);
    /* Without data: a push has ended before it wrote the attributes, so there is no file yet. */
    if (rc == -ENOENT || rc == -ENODATA)
        return 0;
    if (rc == 0)
        rc = identify(t, object, &identity, why);
    if (rc != 0)
        return failed(t, name, why, error);
    *found = (struct target_file){t->cluster.layout.size, identity};
    return 1;
}

/* Of the object that target_look has looked at. */
int target_get(struct target *t, const char *name, char *to, uint64_t room, uint64_t *count,
               struct error *error)
{
    char object[IO_URL_TEXT_BYTES], first[LAYOUT_NAME_BYTES];
    if (object_of(t, name, object, error) != 0)
        return -1;
    layout_object(&t->cluster.layout, object, 0, first);
    rados_completion_t done = cluster_completion();
    int rc = rados_aio_read(t->cluster.pool, first, done, to, room, 0);
    if (rc == 0)
        rc = cluster_await(&t->cluster, done, patience());
    rados_aio_release(done);
    *count = rc > 0 ? (uint64_t)rc : 0;
    return rc >= 0 ? 0 : failed(t, name, strerror(-rc), error);
}

uint64_t target_piece_bytes(const struct target *t, uint64_t bytes)
{
    uint64_t each = (t->push->part_bytes + OBJECT_BYTES - 1) / OBJECT_BYTES * OBJECT_BYTES;
    while ((bytes + each - 1) / each > PUSH_PIECES_MAX)
        each *= 2;
    return each;
}

int target_begin(struct target *t, const struct push_file *f, char id[PUSH_ID_BYTES],
                 struct error *error)
{
    (void)t, (void)f, (void)error;
    strcpy(id, NO_TAG);
    return 0;
}

/* ---- writes ---------------------------------------------------------------------------------- */

/* Waits for this write, if there is one. */
static int finish(struct target *t, struct write *w, struct error *error)
{
    char why[REMOTE_WHY_BYTES];
    if (!w->done)
        return 0;
    int rc = cluster_await(&t->cluster, w->done, patience());
    rados_aio_release(w->done);
    w->done = NULL;
    meter_moved(t->push, w->bytes);
    if (rc >= 0)
        return 0;
    if (rc == -ETIMEDOUT)
        snprintf(why, sizeof why,
                 "no answer to a write of the object %.120s; the cluster may be "
                 "full",
                 w->name);
    else
        snprintf(why, sizeof why, "the object %.160s: %s", w->name, strerror(-rc));
    return error_set(error, ERR_IO, "%.180s: %.200s", t->push->given, why);
}

static int start(struct target *t, struct write *w, const struct push_file *f, uint64_t at,
                 struct error *error)
{
    for (uint64_t n = 0; n < w->bytes;) {
        ssize_t got = pread(f->fd, w->buffer + n, w->bytes - n, (off_t)(at + n));
        if (got <= 0)
            return error_set_errno(error, ERR_IO, got < 0 ? errno : EIO, "cannot read %.200s",
                                   f->name);
        n += (uint64_t)got;
    }
    w->done = cluster_completion();
    int rc = rados_aio_write_full(t->cluster.pool, w->name, w->done, w->buffer, w->bytes);
    if (rc >= 0)
        return 0;
    rados_aio_release(w->done);
    w->done = NULL;
    return failed(t, f->name, strerror(-rc), error);
}

int target_piece(struct target *t, const struct push_file *f, const char *id, uint32_t number,
                 uint64_t at, uint64_t bytes, char tag[PUSH_TAG_BYTES], struct error *error)
{
    char object[IO_URL_TEXT_BYTES];
    const struct layout layout = {.striped = true};
    (void)id, (void)number;
    int rc = object_of(t, f->name, object, error);
    for (uint64_t n = 0; n < bytes && rc == 0; n += OBJECT_BYTES) {
        uint64_t which = (at + n) / OBJECT_BYTES;
        struct write *w = &t->write[which % IN_FLIGHT];
        rc = finish(t, w, error);
        if (rc != 0)
            break;
        layout_object(&layout, object, which, w->name);
        w->bytes = bytes - n < OBJECT_BYTES ? bytes - n : OBJECT_BYTES;
        rc = start(t, w, f, at + n, error);
    }
    for (int i = 0; i < IN_FLIGHT && rc == 0; i++)
        rc = finish(t, &t->write[i], error);
    strcpy(tag, NO_TAG);
    return rc;
}

int target_end(struct target *t, const struct push_file *f, const char *id,
               char (*tag)[PUSH_TAG_BYTES], uint32_t pieces, struct error *error)
{
    char object[IO_URL_TEXT_BYTES], first[LAYOUT_NAME_BYTES], text[LAYOUT_VALUE_BYTES];
    const struct layout layout = {.striped = true};
    const uint64_t values[LAYOUT_ATTRIBUTES] = {[LAYOUT_SIZE] = f->bytes,
                                                [LAYOUT_OBJECT_SIZE] = OBJECT_BYTES,
                                                [LAYOUT_STRIPE_UNIT] = OBJECT_BYTES,
                                                [LAYOUT_STRIPE_COUNT] = 1};
    (void)id, (void)tag, (void)pieces;
    if (object_of(t, f->name, object, error) != 0)
        return -1;
    layout_object(&layout, object, 0, first);
    rados_write_op_t op = rados_create_write_op();
    for (int i = 0; i < LAYOUT_ATTRIBUTES; i++) {
        int n = snprintf(text, sizeof text, "%" PRIu64, values[i]);
        rados_write_op_setxattr(op, layout_attributes[i], text, (size_t)n);
    }
    rados_completion_t done = cluster_completion();
    int rc = rados_aio_write_op_operate(op, t->cluster.pool, done, first, NULL, 0);
    if (rc == 0)
        rc = cluster_await(&t->cluster, done, patience());
    rados_aio_release(done);
    rados_release_write_op(op);
    return rc >= 0 ? 0 : failed(t, f->name, strerror(-rc), error);
}
