/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a store: manifest, table of entries, stripes, model file, in this order; then the index.
 * Only the first page of each stripe is read. */
#include "lib/model/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "lib/io/bulk.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/index/derive.h"
#include "lib/model/limits.h"
#include "lib/model/store/base.h"

#define HASH_BYTES_AT_ONCE MIB

/* State of opening a store; freed together. */
struct opening {
    int dir_fd;
    char dir[PATH_MAX]; /* absolute */
    struct store_manifest manifest;
    void *table;
    struct model_entry *entries;
    uint64_t *checksums;
    struct model_stripe *stripes;
    struct store_base base; /* of a delta */
};

/* ---- files ----------------------------------------------------------------------------------- */

/* Puts the file's name before the error. A long path is cut at its start: the end is more
 * informative. */
static int in_file(const struct opening *o, const char *name, const struct error *why,
                   struct error *error)
{
    size_t n = strlen(o->dir);
    bool whole = name[0] == '/';
    return error_set(error, why->code, "%s%s%s%.120s: %s", !whole && n > 100 ? "..." : "",
                     whole ? "" : o->dir + (n > 100 ? n - 100 : 0), whole ? "" : "/", name,
                     why->text);
}

static int open_member(const struct opening *o, const char *name, struct model_file_id *id,
                       struct error *error)
{
    int fd = openat(o->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot be opened");
    if (index_file_id(fd, id, error)) {
        close(fd);
        return -1;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* read-ahead would be charged to us */
    return fd;
}

/* Reads a small file completely and drops its page cache. The caller frees; NULL with *error. */
static void *read_member(const struct opening *o, const char *name, uint64_t max, uint64_t *bytes,
                         struct error *error)
{
    struct model_file_id id;
    int fd = open_member(o, name, &id, error);
    if (fd < 0)
        return NULL;
    char *data = NULL;
    *bytes = id.bytes;
    if (id.bytes > max)
        error_set(error, ERR_BAD_INPUT, "%" PRIu64 " bytes: more than %" PRIu64, id.bytes, max);
    else if (!(data = malloc(id.bytes + 1)))
        error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu64 " bytes)", id.bytes);
    for (uint64_t at = 0; data && at < id.bytes;) {
        ssize_t n = pread(fd, data + at, id.bytes - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            error_set_errno(error, ERR_IO, n < 0 ? errno : ENODATA, "cannot be read");
            free(data);
            data = NULL;
            break;
        }
        at += (uint64_t)n;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return data;
}

static int take_manifest(struct opening *o, struct error *error)
{
    uint64_t bytes;
    bool none = faccessat(o->dir_fd, STORE_MANIFEST_FILE, F_OK, 0) != 0 && errno == ENOENT;
    if (none && faccessat(o->dir_fd, STORE_JOURNAL_FILE, F_OK, 0) == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "missing, this store is unfinished; resume it with the command that began "
                         "it: sluice pack -m MODEL -o %.160s",
                         o->dir);
    if (none)
        return error_set(error, ERR_BAD_INPUT, "does not exist: this is not an expert store");
    char *text = read_member(o, STORE_MANIFEST_FILE, STORE_MANIFEST_MAX, &bytes, error);
    if (!text)
        return -1;
    int status = store_manifest_parse(text, bytes, &o->manifest, error);
    free(text);
    return status;
}

static int take_table(struct opening *o, struct error *error)
{
    const struct store_manifest *m = &o->manifest;
    uint64_t bytes, count = (uint64_t)m->precision_count * m->layers * m->experts;
    o->table = read_member(o, STORE_ENTRIES_FILE, STORE_ENTRIES_MAX, &bytes, error);
    if (!o->table || store_entries_check(m, o->table, bytes, error))
        return -1;
    o->entries = reallocarray(NULL, count, sizeof *o->entries);
    o->checksums = reallocarray(NULL, count * m->stripe_count, sizeof *o->checksums);
    if (!o->entries || !o->checksums)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu64 " entries)", count);
    store_entries_make(m, o->table, o->entries, o->checksums);
    free(o->table);
    o->table = NULL;
    return 0;
}

/* Native experts of a delta, before those of its table. */
static int take_base(struct opening *o, struct error *error)
{
    const struct store_manifest *m = &o->manifest;
    if (store_base_open(m, o->dir, &o->base, error))
        return -1;
    uint64_t grid = (uint64_t)m->layers * m->experts, count = m->precision_count * grid;
    struct model_entry *all = reallocarray(o->entries, grid + count, sizeof *all);
    if (!all)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu64 " entries)", grid + count);
    o->entries = all;
    memmove(all + grid, all, count * sizeof *all);
    store_base_entries(&o->base, m->stripe_count, all);
    return 0;
}

/* Checks the id and number in the header of a stripe: detects swapped files, which otherwise would
 * fail every checksum. */
static int check_stripe_head(const struct opening *o, int fd, uint32_t number, struct error *error)
{
    const struct store_manifest *m = &o->manifest;
    struct store_stripe_head h;
    ssize_t n = pread(fd, &h, sizeof h, 0);
    (void)posix_fadvise(fd, 0, PAGE_BYTES, POSIX_FADV_DONTNEED);
    if (n != (ssize_t)sizeof h)
        return error_set_errno(error, ERR_IO, n < 0 ? errno : ENODATA, "cannot be read");
    if (h.magic != STORE_STRIPE_MAGIC || h.version != STORE_VERSION || h.reserved != 0)
        return error_set(error, ERR_BAD_INPUT, "not a stripe of a store of version %u",
                         STORE_VERSION);
    if (memcmp(h.id, m->id, sizeof h.id) != 0)
        return error_set(error, ERR_BAD_INPUT, "a stripe of another store");
    if (h.stripe != number || h.stripes != m->stripe_count)
        return error_set(error, ERR_BAD_INPUT,
                         "stripe %" PRIu32 " of %" PRIu32 ", %" PRIu32 " of %" PRIu32 " expected",
                         h.stripe, h.stripes, number, m->stripe_count);
    return 0;
}

static int absolute(const struct opening *o, const char *path, char to[MODEL_PATH_BYTES],
                    struct error *error)
{
    int n = path[0] == '/' || path[0] == 0 ? snprintf(to, MODEL_PATH_BYTES, "%s", path)
                                           : snprintf(to, MODEL_PATH_BYTES, "%s/%s", o->dir, path);
    if (n < 0 || n >= MODEL_PATH_BYTES)
        return error_set(error, ERR_BAD_INPUT, "its path is longer than %d bytes",
                         MODEL_PATH_BYTES - 1);
    return 0;
}

/* Checks that the file at `path` is stripe `number`, and sets *id. */
static int check_stripe(const struct opening *o, const char *path, uint32_t number,
                        struct model_file_id *id, struct error *error)
{
    uint64_t bytes = o->manifest.stripe[number].bytes;
    int fd = open_member(o, path, id, error);
    if (fd < 0)
        return -1;
    int status = 0;
    if (id->bytes != bytes)
        status = error_set(error, ERR_BAD_INPUT, "%s: %" PRIu64 " bytes, in the manifest %" PRIu64,
                           id->bytes < bytes ? "truncated" : "too long", id->bytes, bytes);
    if (status == 0)
        status = check_stripe_head(o, fd, number, error);
    close(fd);
    return status;
}

/* Opens a stripe. If it is missing or wrong and its mirror is right, they swap roles. */
static int take_stripe(struct opening *o, uint32_t number, struct error *error)
{
    const struct store_stripe *s = &o->manifest.stripe[number];
    struct model_stripe *into = &o->stripes[number];
    struct model_file_id id;
    struct error ignored;
    if (absolute(o, s->path, into->path, error) || absolute(o, s->mirror, into->mirror, error))
        return -1;
    if (check_stripe(o, s->path, number, &into->file, error) == 0)
        return 0;
    if (!s->mirror[0] || check_stripe(o, s->mirror, number, &id, &ignored) != 0)
        return -1;
    log_warn("%s: %s; reading its mirror %s", into->path, error->text, into->mirror);
    memcpy(into->mirror, into->path, sizeof into->mirror);
    if (absolute(o, s->mirror, into->path, error))
        return -1;
    into->file = id;
    return 0;
}

/* ---- the model file -------------------------------------------------------------------------- */

static int hash_file(int fd, uint64_t bytes, uint8_t hash[STORE_HASH_BYTES], struct error *error)
{
    /* Direct I/O where supported: page cache would be charged to the budget. */
    bool direct = fcntl(fd, F_SETFL, O_DIRECT) == 0;
    struct bulk file = {.fd = fd, .direct = direct};
    char *buf = bulk_buffer(HASH_BYTES_AT_ONCE);
    XXH3_state_t *state = XXH3_createState();
    int status = 0;
    if (!buf || !state)
        status = error_set(error, ERR_NO_MEMORY, "out of memory (check of the store)");
    else
        XXH3_128bits_reset(state);
    for (uint64_t at = 0; at < bytes && status == 0;) {
        uint64_t got = 0;
        status = bulk_read(&file, buf, HASH_BYTES_AT_ONCE, at, &got, error);
        if (status == 0 && got == 0)
            status = error_set(error, ERR_GONE, "became shorter while it was read");
        if (status == 0)
            XXH3_128bits_update(state, buf, got);
        at += got;
    }
    XXH128_canonical_t sum;
    if (status == 0) {
        XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(state));
        memcpy(hash, sum.digest, STORE_HASH_BYTES);
    }
    XXH3_freeState(state);
    free(buf);
    if (direct)
        (void)fcntl(fd, F_SETFL, 0);
    return status;
}

static int take_model(struct opening *o, struct model_index **index, struct error *error)
{
    const struct store_manifest *m = &o->manifest;
    struct index_experts experts = {
        .precision_mask = m->precision_mask | (o->base.parts ? 1u << PRECISION_NATIVE : 0),
        .stripe_count = m->stripe_count,
        .part_count = o->base.parts,
        .checksum_count = (uint64_t)m->precision_count * m->layers * m->experts * m->stripe_count,
        .entries = o->entries,
        .checksums = o->checksums,
        .stripes = o->stripes,
        .layers = m->layers,
        .experts = m->experts,
        .arch = m->arch,
    };
    for (uint32_t t = 0; t < m->precision_count; t++)
        experts.precision_method[m->precision[t].precision] = (uint8_t)m->precision[t].method;
    struct model_file_id id;
    uint8_t hash[STORE_HASH_BYTES];
    int fd = open_member(o, STORE_MODEL_FILE, &id, error);
    if (fd < 0)
        return -1;
    int status = hash_file(fd, id.bytes, hash, error);
    if (status == 0 && memcmp(hash, m->model_hash, sizeof hash) != 0)
        status = error_set(error, ERR_BAD_INPUT,
                           "damaged, or of another model: its hash is not the manifest's");
    if (status == 0)
        status = index_build_fd(fd, &experts, index, error);
    close(fd);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int open_all(struct opening *o, struct model_index **index, struct error *error)
{
    struct error why = {0};
    if (take_manifest(o, &why))
        return in_file(o, STORE_MANIFEST_FILE, &why, error);
    if (take_table(o, &why))
        return in_file(o, STORE_ENTRIES_FILE, &why, error);
    if (o->manifest.base_path[0] && take_base(o, &why))
        return in_file(o, o->manifest.base_path, &why, error);
    o->stripes = calloc(o->manifest.stripe_count + o->base.parts, sizeof *o->stripes);
    if (!o->stripes)
        return error_set(error, ERR_NO_MEMORY, "out of memory (stripes)");
    for (uint32_t i = 0; i < o->manifest.stripe_count; i++)
        if (take_stripe(o, i, &why))
            return in_file(o, o->manifest.stripe[i].path, &why, error);
    if (o->base.parts)
        store_base_files(&o->base, o->stripes + o->manifest.stripe_count);
    if (take_model(o, index, &why))
        return in_file(o, STORE_MODEL_FILE, &why, error);
    return 0;
}

int store_index_build(int dir_fd, const char *path, struct model_index **index, struct error *error)
{
    *index = NULL;
    struct opening *o = calloc(1, sizeof *o);
    if (!o)
        return error_set(error, ERR_NO_MEMORY, "out of memory (store)");
    o->dir_fd = dir_fd;
    int status = realpath(path, o->dir)
                     ? 0
                     : error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", path);
    if (status == 0)
        status = open_all(o, index, error);
    store_manifest_free(&o->manifest);
    free(o->table);
    free(o->entries);
    free(o->checksums);
    free(o->stripes);
    free(o->base.index);
    free(o);
    return status;
}

int model_or_store_index_build(int fd, const char *path, struct model_index **index,
                               struct error *error)
{
    struct stat st;
    bool store = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    return store ? store_index_build(fd, path, index, error)
                 : model_index_build(fd, path, index, error);
}
