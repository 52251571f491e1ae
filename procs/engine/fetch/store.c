/* SPDX-License-Identifier: Apache-2.0 */
/* The skeleton of an expert store, whose manifest the URL names: manifest, table and model.gguf
 * whole, and of each stripe the first page, in a file of the stripe's size. The start checks them
 * as those of a store (hashes, sizes, heads); the table has a checksum of every expert. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/model/store/store.h"
#include "procs/engine/fetch/fetch.h"

#define CHUNK_BYTES (16 * MIB)

struct member {
    const char *name;
    uint64_t bytes; /* of the file; 0: as many as the server has */
    uint64_t fetched_bytes;
};

/* Servers of devices with whole blocks add zeros, which no JSON has. */
static uint64_t text_bytes(const char *text, uint64_t bytes)
{
    while (bytes > 0 && text[bytes - 1] == 0)
        bytes--;
    return bytes;
}

static int read_manifest(struct fetch *f, char **text, uint64_t *bytes, struct store_manifest *m,
                         struct error *error)
{
    struct server server;
    struct error why;
    int rc = server_open(&server, f->url, error);
    if (rc == 0 && server.bytes > STORE_MANIFEST_MAX)
        rc = error_set(error, ERR_BAD_INPUT, "%.200s: more than %llu bytes", f->key,
                       (unsigned long long)STORE_MANIFEST_MAX);
    *text = rc == 0 ? malloc(server.bytes + 1) : NULL;
    if (rc == 0 && !*text)
        rc = error_set(error, ERR_NO_MEMORY, "out of memory (fetch)");
    if (rc == 0)
        rc = server_read(&server, 0, server.bytes, *text, error);
    *bytes = rc == 0 ? text_bytes(*text, server.bytes) : 0;
    server_close(&server);
    if (rc == 0 && store_manifest_parse(*text, *bytes, m, &why) != 0)
        rc = error_set(error, why.code, "%.200s: %.200s", f->key, why.text);
    return rc;
}

static int copy(void *arg, const void *bytes, uint64_t count, uint64_t at, struct error *error)
{
    const int *fd = arg;
    ssize_t n = pwrite(*fd, bytes, count, (off_t)at);
    return n == (ssize_t)count
               ? 0
               : error_set_errno(error, ERR_IO, n < 0 ? errno : ENOSPC, "cannot write it");
}

/* What [0, member->fetched_bytes) lacks; *skip: how much of what follows is there already. */
static int fetch_member(struct fetch *f, const struct member *member, uint64_t *skip,
                        struct server *server, struct error *error)
{
    uint64_t bytes = member->bytes ? member->bytes : server->bytes;
    uint64_t to = member->fetched_bytes ? member->fetched_bytes : bytes;
    if (bytes > server->bytes)
        return error_set(error, ERR_BAD_INPUT, "%.200s: %llu bytes instead of %llu", server->url,
                         (unsigned long long)server->bytes, (unsigned long long)bytes);
    int fd = place_open(f, member->name, bytes, error);
    if (fd < 0)
        return -1;
    int rc = 0;
    uint64_t at = *skip < to ? *skip : to;
    *skip -= at;
    while (at < to && rc == 0) {
        uint64_t end = to - at < CHUNK_BYTES ? to : at + CHUNK_BYTES;
        rc = server_transfer(server, at, end, copy, &fd, error);
        if (rc == 0)
            rc = place_note(f, fd, end - at, error);
        at = end;
    }
    if (rc == 0 && fdatasync(fd) != 0)
        rc = error_set_errno(error, ERR_IO, errno, "cannot write %.250s", member->name);
    close(fd);
    return rc;
}

static int open_member(const struct fetch *f, const char *name, struct server *server,
                       char url[FETCH_URL_BYTES], struct error *error)
{
    if (!name_is_plain(name))
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: the store has %.100s; of a store on a server, all files are next "
                         "to its manifest",
                         f->key, name);
    return io_url_sibling(f->url, name, url, error) != 0 ? -1 : server_open(server, url, error);
}

/* The sizes, and whether the server has each file, before anything is fetched. */
static int take_members(struct fetch *f, const struct store_manifest *m, struct member *members,
                        struct server *servers, char (*url)[FETCH_URL_BYTES], struct error *error)
{
    uint32_t count = 2 + m->stripe_count;
    members[0] = (struct member){.name = STORE_ENTRIES_FILE, .bytes = m->entries_bytes};
    members[1] = (struct member){.name = STORE_MODEL_FILE};
    for (uint32_t i = 0; i < m->stripe_count; i++)
        members[2 + i] = (struct member){
            .name = m->stripe[i].path, .bytes = m->stripe[i].bytes, .fetched_bytes = PAGE_BYTES};
    for (uint32_t i = 0; i < count; i++) {
        if (open_member(f, members[i].name, &servers[i], url[i], error) != 0)
            return -1;
        uint64_t bytes = members[i].bytes ? members[i].bytes : servers[i].bytes;
        f->total += members[i].fetched_bytes ? members[i].fetched_bytes : bytes;
    }
    return 0;
}

static int put_manifest(struct fetch *f, const char *text, uint64_t bytes, struct error *error)
{
    int fd = place_open(f, STORE_MANIFEST_FILE, bytes, error);
    if (fd < 0)
        return -1;
    int rc = copy(&fd, text, bytes, 0, error);
    if (rc == 0 && fsync(fd) != 0)
        rc = error_set_errno(error, ERR_IO, errno, "cannot write %s", STORE_MANIFEST_FILE);
    close(fd);
    return rc;
}

struct job {
    struct member members[2 + MODEL_STRIPES_MAX];
    struct server servers[2 + MODEL_STRIPES_MAX];
    char url[2 + MODEL_STRIPES_MAX][FETCH_URL_BYTES];
};

static int fetch_all(struct fetch *f, struct job *j, const struct store_manifest *m,
                     const char *text, uint64_t bytes, struct error *error)
{
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(text, bytes));
    if (m->base_path[0])
        return error_set(error, ERR_BAD_INPUT, "%.200s: a delta cannot be on a server", f->key);
    if (take_members(f, m, j->members, j->servers, j->url, error) != 0 ||
        place_take(f, hash.digest, error) != 0)
        return -1;
    snprintf(f->model, sizeof f->model, "%s", f->place);
    if (f->complete)
        return 0;
    uint64_t skip = f->done = f->noted = f->done <= f->total ? f->done : 0;
    for (uint32_t i = 0; i < 2 + m->stripe_count; i++)
        if (fetch_member(f, &j->members[i], &skip, &j->servers[i], error) != 0)
            return -1;
    return put_manifest(f, text, bytes, error) != 0 ? -1 : place_complete(f, error);
}

int fetch_store(struct fetch *f, struct error *error)
{
    struct store_manifest manifest = {.stripe_count = 0};
    char *text = NULL;
    uint64_t bytes;
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return error_set(error, ERR_NO_MEMORY, "out of memory (fetch)");
    int rc = read_manifest(f, &text, &bytes, &manifest, error);
    if (rc == 0) {
        rc = fetch_all(f, j, &manifest, text, bytes, error);
        store_manifest_free(&manifest);
    }
    for (size_t i = 0; i < ARRAY_LEN(j->servers); i++)
        server_close(&j->servers[i]);
    free(text);
    free(j);
    return rc;
}
