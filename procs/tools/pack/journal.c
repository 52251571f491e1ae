/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: the finished units of an interrupted pack. It is in the store's directory until the
 * manifest is written, and marks the directory as an incomplete store.
 *
 *   struct journal_head
 *   struct journal_model   zeros until model.gguf is complete
 *   records                u64 unit
 *                          a checksum per precision and stripe
 *                          XXH3-64 of the above
 *
 * A unit is recorded after fdatasync of its bytes, and on resume it is read back and compared. A
 * torn record ends the journal. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"
#include "procs/tools/pack/pack.h"

#define JOURNAL_MAGIC   0x4c4e524a4b434150ull /* "PACKJRNL" */
#define JOURNAL_VERSION 1u
#define FLUSH_BYTES     (256 * MIB)
#define FLUSH_NS        NS_PER_S

struct journal_head {
    uint64_t magic;
    uint32_t version, reserved;
    uint8_t job[STORE_HASH_BYTES]; /* model, files and options */
};

struct journal_model {
    uint64_t complete; /* 1 */
    uint8_t hash[STORE_HASH_BYTES];
};

#define RECORDS_OFFSET (sizeof(struct journal_head) + sizeof(struct journal_model))

static uint64_t record_bytes(const struct pack *p)
{
    return 8 * (2 + (uint64_t)p->manifest.precision_count * p->manifest.stripe_count);
}

/* Hash of everything that must match to resume a pack. */
static void job_hash(const struct pack *p, uint8_t out[STORE_HASH_BYTES])
{
    struct store_manifest m = p->manifest;
    memset(m.model_hash, 0, sizeof m.model_hash);
    store_make_id(&m);
    XXH3_state_t *state = XXH3_createState();
    sl_assert(state);
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, m.id, sizeof m.id);
    XXH3_128bits_update(state, &p->options.dense, sizeof p->options.dense);
    for (uint32_t s = 0; s < m.stripe_count; s++)
        XXH3_128bits_update(state, m.stripe[s].path, strlen(m.stripe[s].path) + 1);
    for (uint32_t s = 0; s < m.stripe_count && p->file_count > m.stripe_count; s++)
        XXH3_128bits_update(state, m.stripe[s].mirror, strlen(m.stripe[s].mirror) + 1);
    for (uint32_t i = 0; i < p->source.file_count; i++) {
        XXH3_128bits_update(state, &p->source.files[i].bytes, sizeof(uint64_t));
        XXH3_128bits_update(state, &p->source.files[i].mtime_ns, sizeof(int64_t));
    }
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(state));
    memcpy(out, hash.digest, STORE_HASH_BYTES);
    XXH3_freeState(state);
}

static int journal_error(const struct pack *p, int errno_value, struct error *error)
{
    return error_set_errno(error, ERR_IO, errno_value, "%.250s/" STORE_JOURNAL_FILE, p->dir);
}

static int journal_sync(const struct pack *p, struct error *error)
{
    return fdatasync(p->journal_fd) == 0 ? 0 : journal_error(p, errno, error);
}

static int start_journal(struct pack *p, struct error *error)
{
    struct journal_head head = {.magic = JOURNAL_MAGIC, .version = JOURNAL_VERSION};
    struct journal_model model = {0};
    job_hash(p, head.job);
    if (pwrite(p->journal_fd, &head, sizeof head, 0) != sizeof head ||
        pwrite(p->journal_fd, &model, sizeof model, sizeof head) != sizeof model)
        return journal_error(p, errno ? errno : ENOSPC, error);
    p->journal_bytes = RECORDS_OFFSET;
    return journal_sync(p, error);
}

static int resume_journal(struct pack *p, uint64_t bytes, struct error *error)
{
    struct journal_head head;
    struct journal_model model;
    uint8_t job[STORE_HASH_BYTES];
    job_hash(p, job);
    if (bytes < RECORDS_OFFSET) /* killed before the header was written */
        return start_journal(p, error);
    if (pread(p->journal_fd, &head, sizeof head, 0) != sizeof head ||
        pread(p->journal_fd, &model, sizeof model, sizeof head) != sizeof model)
        return journal_error(p, errno, error);
    if (head.magic != JOURNAL_MAGIC || head.version != JOURNAL_VERSION ||
        memcmp(head.job, job, sizeof job) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "%.250s contains an incomplete store of another model or other options; "
                         "remove it or use another directory",
                         p->dir);
    p->model_complete = model.complete == 1;
    memcpy(p->manifest.model_hash, model.hash, sizeof model.hash);
    p->journal_bytes = RECORDS_OFFSET;
    return 0;
}

/* Without a journal, existing files with our names must not be overwritten. */
static int reject_unknown_files(const struct pack *p, struct error *error)
{
    static const char *const names[] = {STORE_MANIFEST_FILE, STORE_MODEL_FILE, STORE_ENTRIES_FILE};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (faccessat(p->dir_fd, names[i], F_OK, 0) == 0)
            return error_set(error, ERR_BAD_INPUT, "%.250s already has a file %s", p->dir,
                             names[i]);
    for (uint32_t f = 0; f < p->file_count; f++)
        if (access(p->file_path[f], F_OK) == 0)
            return error_set(error, ERR_BAD_INPUT, "%.250s already exists", p->file_path[f]);
    return 0;
}

int journal_open(struct pack *p, struct error *error)
{
    struct stat st;
    bool fresh = faccessat(p->dir_fd, STORE_JOURNAL_FILE, F_OK, 0) != 0;
    if (fresh && reject_unknown_files(p, error))
        return -1;
    p->journal_fd = openat(p->dir_fd, STORE_JOURNAL_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (p->journal_fd < 0)
        return journal_error(p, errno, error);
    if (flock(p->journal_fd, LOCK_EX | LOCK_NB) != 0)
        return error_set(error, ERR_BUSY, "another pack is writing to %.250s", p->dir);
    if (fstat(p->journal_fd, &st) != 0)
        return journal_error(p, errno, error);
    return resume_journal(p, (uint64_t)st.st_size, error);
}

int journal_model(struct pack *p, struct error *error)
{
    struct journal_model model = {.complete = 1};
    memcpy(model.hash, p->manifest.model_hash, sizeof model.hash);
    if (pwrite(p->journal_fd, &model, sizeof model, sizeof(struct journal_head)) != sizeof model)
        return journal_error(p, errno ? errno : ENOSPC, error);
    return journal_sync(p, error);
}

void journal_remove(struct pack *p)
{
    unlinkat(p->dir_fd, STORE_JOURNAL_FILE, 0);
    fsync(p->dir_fd);
}

/* ---- units ---- */

static void record_fill(const struct pack *p, uint32_t unit, uint64_t *record)
{
    const struct store_manifest *m = &p->manifest;
    uint64_t *at = record;
    *at++ = unit;
    for (uint32_t t = 0; t < m->precision_count; t++) {
        const uint64_t *from =
            store_record(m, p->table, t, pack_layer(p, unit), unit % m->experts) + 1;
        memcpy(at, from, 8 * m->stripe_count);
        at += m->stripe_count;
    }
    *at = XXH3_64bits(record, (size_t)(at - record) * 8);
}

/* Called with the lock, or by a single thread. */
static int flush(struct pack *p, struct error *error)
{
    uint64_t each = record_bytes(p);
    char *records = malloc(each * p->pending_count + 1);
    if (!records)
        return error_set(error, ERR_NO_MEMORY, "out of memory (journal records)");
    for (uint32_t f = 0; f < p->file_count; f++) {
        int fd = open(p->file_path[f], O_WRONLY | O_CLOEXEC);
        bool synced = fd >= 0 && fdatasync(fd) == 0;
        int why = errno;
        if (fd >= 0)
            close(fd);
        if (!synced) {
            free(records);
            return error_set_errno(error, ERR_IO, why, "cannot write %.250s", p->file_path[f]);
        }
    }
    for (uint32_t i = 0; i < p->pending_count; i++)
        record_fill(p, p->pending[i], (uint64_t *)(void *)(records + i * each));
    uint64_t bytes = each * p->pending_count;
    ssize_t n = pwrite(p->journal_fd, records, bytes, (off_t)p->journal_bytes);
    int why = errno;
    free(records);
    if (n != (ssize_t)bytes)
        return journal_error(p, n < 0 ? why : ENOSPC, error);
    p->journal_bytes += bytes;
    p->pending_count = 0;
    p->pending_bytes = 0;
    p->journal_ns = clock_now_ns();
    return journal_sync(p, error);
}

int journal_unit(struct pack *p, uint32_t unit, uint64_t bytes, struct error *error)
{
    int status = 0;
    pthread_mutex_lock(&p->lock);
    p->pending[p->pending_count++] = unit;
    p->pending_bytes += bytes;
    if (p->pending_bytes >= FLUSH_BYTES || clock_now_ns() - p->journal_ns >= FLUSH_NS)
        status = flush(p, error);
    pthread_mutex_unlock(&p->lock);
    return status;
}

int journal_flush(struct pack *p, struct error *error)
{
    return p->pending_count ? flush(p, error) : 0;
}

/* ---- resume and verify ---- */

/* Whether a shard matches its checksum in the stripe and in the mirror. */
static bool shard_right(const struct pack *p, struct bulk *files, uint32_t stripe, uint64_t offset,
                        uint64_t bytes, uint64_t checksum, void *buf)
{
    for (uint32_t f = stripe; f < p->file_count; f += p->manifest.stripe_count) {
        uint64_t got;
        if (bulk_read(&files[f], buf, bytes, offset, &got, NULL) || got != bytes ||
            XXH3_64bits(buf, bytes) != checksum)
            return false;
    }
    return true;
}

/* Reads the shards of a unit back; true if all match their checksums. */
static bool unit_right(const struct pack *p, struct bulk *files, uint32_t unit,
                       const uint64_t *checksums, void *buf)
{
    const struct store_manifest *m = &p->manifest;
    for (uint32_t t = 0; t < m->precision_count; t++) {
        uint64_t offset = store_record(m, p->table, t, pack_layer(p, unit), unit % m->experts)[0];
        uint64_t pages = store_group_of(m, t, pack_layer(p, unit))->slot_pages;
        uint64_t each = store_shard_pages(m, pages);
        uint32_t first_stripe = store_first_stripe(m, pack_layer(p, unit), unit % m->experts);
        if (offset == STORE_ABSENT) {
            checksums += m->stripe_count;
            continue;
        }
        for (uint32_t s = 0; s < m->stripe_count; s++, checksums++) {
            uint64_t first = s < first_stripe ? pages : (s - first_stripe) * each;
            uint64_t n = first < pages ? pages - first : 0;
            n = (n < each ? n : each) * PAGE_BYTES;
            if (n == 0 ? *checksums != 0 : !shard_right(p, files, s, offset, n, *checksums, buf))
                return false;
        }
    }
    return true;
}

static void unit_take(struct pack *p, uint32_t unit, const uint64_t *checksums)
{
    const struct store_manifest *m = &p->manifest;
    for (uint32_t t = 0; t < m->precision_count; t++, checksums += m->stripe_count)
        memcpy(store_table_record(m, p->table, t, pack_layer(p, unit), unit % m->experts) + 1,
               checksums, 8 * m->stripe_count);
    p->done[unit] = true;
    p->resumed++;
}

static int resume(struct pack *p, struct bulk *files, void *buf, struct error *error)
{
    uint64_t each = record_bytes(p);
    uint64_t record[2 + PRECISION__COUNT * MODEL_STRIPES_MAX];
    uint64_t end = RECORDS_OFFSET;
    while (pread(p->journal_fd, record, each, (off_t)end) == (ssize_t)each &&
           record[each / 8 - 1] == XXH3_64bits(record, each - 8) && record[0] < p->expert_count) {
        uint32_t unit = (uint32_t)record[0];
        end += each;
        if (!p->done[unit] && unit_right(p, files, unit, record + 1, buf))
            unit_take(p, unit, record + 1);
    }
    p->journal_bytes = end;
    return ftruncate(p->journal_fd, (off_t)end) == 0 ? 0 : journal_error(p, errno, error);
}

/* Files and buffer for reading units back. */
struct reading {
    struct bulk files[PACK_FILES_MAX];
    uint32_t opened;
    void *buf; /* the largest shard */
};

static int reading_open(struct reading *r, const struct pack *p, struct error *error)
{
    uint64_t largest = 0;
    for (uint32_t g = 0; g < p->manifest.group_count; g++)
        if (p->manifest.groups[g].slot_pages > largest)
            largest = p->manifest.groups[g].slot_pages;
    r->opened = 0;
    r->buf = bulk_buffer(store_shard_pages(&p->manifest, largest) * PAGE_BYTES);
    if (!r->buf)
        return error_set(error, ERR_NO_MEMORY, "out of memory (buffer to read the store back)");
    for (; r->opened < p->file_count; r->opened++)
        if (bulk_open(&r->files[r->opened], p->file_path[r->opened], O_RDONLY, error))
            return -1;
    return 0;
}

static void reading_close(struct reading *r)
{
    while (r->opened > 0)
        bulk_close(&r->files[--r->opened]);
    free(r->buf);
}

int journal_resume(struct pack *p, struct error *error)
{
    struct reading r;
    int status = reading_open(&r, p, error);
    if (status == 0)
        status = resume(p, r.files, r.buf, error);
    reading_close(&r);
    p->journal_ns = clock_now_ns();
    atomic_store(&p->meters.experts_done, p->resumed);
    return status;
}

int journal_verify(const struct pack *p, struct error *error)
{
    struct reading r;
    uint64_t record[2 + PRECISION__COUNT * MODEL_STRIPES_MAX];
    int status = reading_open(&r, p, error);
    for (uint32_t unit = 0; unit < p->expert_count && status == 0; unit++) {
        record_fill(p, unit, record);
        if (!unit_right(p, r.files, unit, record + 1, r.buf))
            status = error_set(error, ERR_IO,
                               "layer %" PRIu32 ", expert %" PRIu32
                               " does not match its checksum when read back",
                               pack_layer(p, unit), unit % p->manifest.experts);
    }
    reading_close(&r);
    return status;
}
