/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: each takes an expert, reads it in runs of rows, converts every run to all precisions,
 * and streams the slots to the stripes. Memory per worker is a few buffers, independent of the size
 * of an expert. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/tensor/precision.h"
#include "procs/tools/pack/pack.h"

#define READ_BYTES  (2 * MIB) /* of a run of source rows */
#define FLOAT_BYTES (4 * MIB) /* the run as F32 */
#define SLOT_BYTES  (1 * MIB) /* write buffer of a slot */
#define STACK_BYTES (128 * KIB)

/* A slot being written to the stripes. */
struct slot {
    struct bulk *files; /* stripes, then mirrors */
    const struct pack *pack;
    uint64_t offset, pages, each; /* offset in the stripes; pages of the slot; bytes per shard */
    uint64_t at;                  /* slot bytes so far, buffered ones included */
    uint64_t filled;
    char *buffer;
    XXH3_state_t *hash;
    uint32_t first;      /* stripe of page 0 */
    uint32_t stripe;     /* stripe of the shard being hashed */
    uint64_t *checksums; /* in the table */
};

struct worker {
    struct pack *pack;
    const struct bulk *files; /* of the source; shared */
    pthread_t thread;
    struct bulk stores[PACK_FILES_MAX];
    struct slot slot[PRECISION__COUNT];
    void *in; /* READ_BYTES and two pages */
    struct source_reader reader;
    void *converted; /* READ_BYTES; of a directory */
    float *rows;
    void *made;
    uint64_t storage_ns; /* of the current unit */
};

static void fail(struct pack *p, const struct error *why)
{
    pthread_mutex_lock(&p->lock);
    if (p->failure.code == ERR_NONE)
        p->failure = *why;
    pthread_mutex_unlock(&p->lock);
    atomic_store(&p->stop, true);
}

/* Waits until the bytes moved so far comply with --rate. */
static void throttle(const struct pack *p)
{
    uint64_t rate = p->options.bytes_per_s;
    if (rate == 0)
        return;
    double bytes =
        (double)(atomic_load(&p->meters.bytes_read) + atomic_load(&p->meters.bytes_written));
    uint64_t due = p->started_ns + (uint64_t)(bytes / (double)rate * (double)NS_PER_S);
    struct timespec t = {(time_t)(due / NS_PER_S), (long)(due % NS_PER_S)};
    while (!atomic_load(&p->stop) &&
           clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

/* ---- slots ---- */

static void slot_start(struct slot *s, const struct pack *p, uint32_t precision, uint32_t layer,
                       uint32_t expert)
{
    const struct store_manifest *m = &p->manifest;
    uint64_t *record = store_table_record(m, p->table, precision, layer, expert);
    s->pages = store_group_of(m, precision, layer)->slot_pages;
    s->each = store_shard_pages(m, s->pages) * PAGE_BYTES;
    s->offset = record[0];
    s->checksums = record + 1;
    s->at = s->filled = 0;
    s->first = s->stripe = store_first_stripe(m, layer, expert);
    XXH3_64bits_reset(s->hash);
    memset(s->checksums, 0, 8 * m->stripe_count);
}

/* Writes whole pages to a stripe and its mirror. */
static int slot_write(struct slot *s, uint32_t stripe, const char *data, uint64_t bytes,
                      uint64_t offset, uint64_t *storage_ns, struct error *error)
{
    struct error why;
    uint32_t stripes = s->pack->manifest.stripe_count;
    for (uint32_t f = stripe; f < s->pack->file_count; f += stripes) {
        uint64_t from = clock_now_ns();
        int status = bulk_write(&s->files[f], data, bytes, offset, &why);
        *storage_ns += clock_now_ns() - from;
        if (status)
            return error_set(error, why.code, "%.200s: %.150s", s->pack->file_path[f], why.text);
    }
    return 0;
}

/* Writes the buffer (whole pages) to its stripes. */
static int slot_flush(struct slot *s, uint64_t *storage_ns, struct error *error)
{
    sl_assert(s->filled % PAGE_BYTES == 0);
    uint64_t base = s->at - s->filled;
    for (uint64_t done = 0, n; done < s->filled; done += n) {
        uint64_t shard = (base + done) / s->each, in_shard = base + done - shard * s->each;
        uint32_t stripe = s->first + (uint32_t)shard;
        n = s->each - in_shard < s->filled - done ? s->each - in_shard : s->filled - done;
        if (stripe != s->stripe) {
            s->checksums[s->stripe] = XXH3_64bits_digest(s->hash);
            XXH3_64bits_reset(s->hash);
            s->stripe = stripe;
        }
        XXH3_64bits_update(s->hash, s->buffer + done, n);
        if (slot_write(s, stripe, s->buffer + done, n, s->offset + in_shard, storage_ns, error))
            return -1;
    }
    s->filled = 0;
    return 0;
}

/* data NULL: zeros. */
static int slot_put(struct slot *s, const void *data, uint64_t bytes, uint64_t *storage_ns,
                    struct error *error)
{
    const char *from = data;
    while (bytes > 0) {
        uint64_t n = SLOT_BYTES - s->filled < bytes ? SLOT_BYTES - s->filled : bytes;
        if (from) {
            memcpy(s->buffer + s->filled, from, n);
            from += n;
        } else {
            memset(s->buffer + s->filled, 0, n);
        }
        s->filled += n;
        s->at += n;
        bytes -= n;
        if (s->filled == SLOT_BYTES && slot_flush(s, storage_ns, error))
            return -1;
    }
    return 0;
}

static int slot_to(struct slot *s, uint64_t at, uint64_t *storage_ns, struct error *error)
{
    sl_assert(at >= s->at);
    return slot_put(s, NULL, at - s->at, storage_ns, error);
}

static int slot_end(struct slot *s, uint64_t *storage_ns, struct error *error)
{
    if (slot_to(s, s->pages * PAGE_BYTES, storage_ns, error) || slot_flush(s, storage_ns, error))
        return -1;
    s->checksums[s->stripe] = XXH3_64bits_digest(s->hash);
    return 0;
}

/* ---- experts ---- */

/* Adds rows of a matrix to the slot of one precision. */
static int put_rows(struct worker *w, uint32_t precision, const struct model_matrix *to,
                    const struct model_matrix *from, const void *data, uint32_t n, bool *loaded,
                    struct error *error)
{
    if (w->pack->manifest.precision[precision].method == QUANT_COPY)
        return slot_put(&w->slot[precision], data, n * to->row_bytes, &w->storage_ns, error);
    if (!*loaded)
        quantise_load(from->type, data, from->row_bytes, from->k, n, w->rows);
    *loaded = true;
    if (quantise_rows(to->type, w->rows, to->k, n, w->made, error))
        return -1;
    return slot_put(&w->slot[precision], w->made, n * to->row_bytes, &w->storage_ns, error);
}

static int read_rows(struct worker *w, const struct hf_extent *from, uint64_t at, uint64_t bytes,
                     const void **data, struct error *error)
{
    struct error why;
    throttle(w->pack);
    uint64_t start_ns = clock_now_ns();
    int status = source_read(&w->files[from->file], w->in, from->offset + at, bytes, data, &why);
    w->storage_ns += clock_now_ns() - start_ns;
    atomic_fetch_add(&w->pack->meters.bytes_read, bytes);
    return status ? error_set(error, why.code, "%.200s: %.150s",
                              w->pack->source.files[from->file].path, why.text)
                  : 0;
}

/* Rows of a matrix that is converted, as rows of the source's index. */
static int convert_rows(struct worker *w, const struct hf_extent *from, uint32_t row, uint32_t n,
                        const void **data, struct error *error)
{
    struct error why;
    throttle(w->pack);
    int status = reader_rows(&w->reader, &w->files[from->file], row, n, w->converted, &why);
    w->storage_ns += w->reader.read_ns;
    atomic_fetch_add(&w->pack->meters.bytes_read, w->reader.read_bytes);
    w->reader.read_ns = w->reader.read_bytes = 0;
    *data = w->converted;
    return status ? error_set(error, why.code, "%.200s: %.150s",
                              w->pack->source.files[from->file].path, why.text)
                  : 0;
}

static uint32_t rows_per_run(const struct model_matrix *m)
{
    uint64_t rows = READ_BYTES / m->row_bytes, floats = FLOAT_BYTES / (4 * (uint64_t)m->k);
    rows = rows < floats ? rows : floats;
    rows = rows < m->n ? rows : m->n;
    return rows > 0 ? (uint32_t)rows : 1;
}

static int pack_matrix(struct worker *w, uint32_t layer, uint32_t expert, enum expert_matrix which,
                       struct error *error)
{
    const struct pack *p = w->pack;
    const struct model_index *index = p->source.index;
    const struct model_matrix *from =
        &model_index_entries(index)[model_entry_expert(index, layer, expert)].matrix[which];
    struct hf_extent extent = source_expert(&p->source, layer, expert, which);
    const struct model_matrix *to[PRECISION__COUNT];
    for (uint32_t t = 0; t < p->manifest.precision_count; t++) {
        const struct store_group *group = store_group_of(&p->manifest, t, layer);
        to[t] = store_writes(&p->manifest, t, layer, expert) ? &group->matrix[which] : NULL;
        if (to[t] && slot_to(&w->slot[t], to[t]->slot_offset, &w->storage_ns, error))
            return -1;
    }
    uint32_t run = rows_per_run(from);
    uint32_t tensor = source_converted(&p->source, layer, expert, which);
    int status = tensor == SOURCE_SAME ? 0 : reader_plane(&w->reader, tensor, expert, error);
    for (uint32_t row = 0; row < from->n && status == 0; row += run) {
        uint32_t n = from->n - row < run ? from->n - row : run;
        const void *data;
        bool loaded = false;
        status = tensor != SOURCE_SAME ? convert_rows(w, &extent, row, n, &data, error)
                                       : read_rows(w, &extent, row * from->row_bytes,
                                                   n * from->row_bytes, &data, error);
        for (uint32_t t = 0; t < p->manifest.precision_count && status == 0; t++)
            if (to[t])
                status = put_rows(w, t, to[t], from, data, n, &loaded, error);
    }
    return status;
}

static int pack_unit(struct worker *w, uint32_t unit, struct error *error)
{
    struct pack *p = w->pack;
    uint32_t layer = pack_layer(p, unit), expert = unit % p->manifest.experts;
    uint64_t start_ns = clock_now_ns(), written = 0;
    bool any = false; /* of a delta, an expert may stay in the model file alone */
    w->storage_ns = 0;
    for (uint32_t t = 0; t < p->manifest.precision_count; t++)
        if (store_writes(&p->manifest, t, layer, expert)) {
            slot_start(&w->slot[t], p, t, layer, expert);
            any = true;
        }
    for (int m = 0; any && m < EXPERT__COUNT; m++)
        if (hparams_expert_has(&p->source.index->hparams, (enum expert_matrix)m) &&
            pack_matrix(w, layer, expert, (enum expert_matrix)m, error))
            return -1;
    for (uint32_t t = 0; t < p->manifest.precision_count; t++) {
        if (!store_writes(&p->manifest, t, layer, expert))
            continue;
        if (slot_end(&w->slot[t], &w->storage_ns, error))
            return -1;
        written += w->slot[t].at;
    }
    atomic_fetch_add(&p->meters.bytes_written, written);
    atomic_fetch_add(&p->meters.storage_ns, w->storage_ns);
    atomic_fetch_add(&p->meters.quantiser_ns, clock_now_ns() - start_ns - w->storage_ns);
    if (journal_unit(p, unit, written, error))
        return -1;
    atomic_fetch_add(&p->meters.experts_done, 1);
    return 0;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct pack *p = w->pack;
    struct error error = {0};
    while (!atomic_load(&p->stop)) {
        uint32_t unit = atomic_fetch_add(&p->next_unit, 1);
        if (unit >= p->expert_count)
            break;
        if (!p->done[unit] && pack_unit(w, unit, &error)) {
            fail(p, &error);
            break;
        }
    }
    atomic_fetch_sub(&p->workers, 1);
    return NULL;
}

/* ---- start and stop ---- */

static int worker_open(struct worker *w, struct pack *p, const struct bulk *files,
                       struct error *error)
{
    w->pack = p;
    w->files = files;
    w->in = bulk_buffer(READ_BYTES + 2 * PAGE_BYTES);
    reader_open(&w->reader, &p->source);
    w->converted = p->source.is_hf ? bulk_buffer(READ_BYTES) : NULL;
    w->rows = bulk_buffer(FLOAT_BYTES);
    w->made = bulk_buffer(FLOAT_BYTES);
    bool memory = w->in && w->rows && w->made && (w->converted || !p->source.is_hf);
    for (uint32_t t = 0; t < p->manifest.precision_count; t++) {
        w->slot[t] = (struct slot){.pack = p,
                                   .files = w->stores,
                                   .buffer = bulk_buffer(SLOT_BYTES),
                                   .hash = XXH3_createState()};
        memory = memory && w->slot[t].buffer && w->slot[t].hash;
    }
    if (!memory)
        return error_set(error, ERR_NO_MEMORY, "out of memory (buffers of a worker)");
    for (uint32_t f = 0; f < p->file_count; f++)
        if (bulk_open(&w->stores[f], p->file_path[f], O_WRONLY, error))
            return -1;
    return 0;
}

static void worker_close(struct worker *w)
{
    for (uint32_t f = 0; f < PACK_FILES_MAX; f++)
        bulk_close(&w->stores[f]);
    for (int t = 0; t < PRECISION__COUNT; t++) {
        free(w->slot[t].buffer);
        XXH3_freeState(w->slot[t].hash);
    }
    free(w->made);
    free(w->rows);
    free(w->converted);
    reader_close(&w->reader);
    free(w->in);
}

static void run_workers(struct pack *p, struct worker *workers)
{
    struct progress progress;
    unsigned started = 0;
    atomic_store(&p->workers, p->options.threads);
    for (; started < p->options.threads; started++)
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0) {
            struct error why;
            error_set(&why, ERR_FAILED, "cannot start a thread");
            fail(p, &why);
            atomic_fetch_sub(&p->workers, p->options.threads - started);
            break;
        }
    progress_start(&progress, p);
    while (atomic_load(&p->workers) > 0)
        progress_tick(&progress);
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    progress_end(&progress);
}

int pack_fit_workers(struct pack *p, struct error *error)
{
    uint64_t buffers = READ_BYTES + 2 * PAGE_BYTES + 2 * FLOAT_BYTES +
                       p->manifest.precision_count * SLOT_BYTES +
                       (p->source.is_hf ? READ_BYTES + reader_bytes_max(&p->source) : 0);
    return pack_fit_threads(&p->options, buffers + STACK_BYTES, error);
}

int pack_experts(struct pack *p, struct error *error)
{
    struct worker *workers = calloc(p->options.threads, sizeof *workers);
    struct bulk *files = calloc(p->source.file_count, sizeof *files);
    uint32_t opened = 0;
    int status = workers && files ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (workers)");
    for (unsigned i = 0; status == 0 && i < p->options.threads; i++)
        for (uint32_t f = 0; f < PACK_FILES_MAX; f++)
            workers[i].stores[f].fd = -1;
    while (status == 0 && opened < p->source.file_count) {
        status = bulk_open(&files[opened], p->source.files[opened].path, O_RDONLY, error);
        opened += status == 0;
    }
    unsigned ready = 0;
    while (status == 0 && ready < p->options.threads)
        status = worker_open(&workers[ready++], p, files, error);
    if (status == 0) {
        run_workers(p, workers);
        if (p->failure.code != ERR_NONE) {
            *error = p->failure;
            status = -1;
        }
    }
    /* Finished units are recorded even after a failure. */
    if (journal_flush(p, status ? NULL : error))
        status = -1;
    while (ready > 0)
        worker_close(&workers[--ready]);
    while (opened > 0)
        bulk_close(&files[--opened]);
    free(files);
    free(workers);
    return status;
}

int pack_stripes(struct pack *p, struct error *error)
{
    unsigned char *page = bulk_buffer(PAGE_BYTES);
    int status = page ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory");
    for (uint32_t f = 0; f < p->file_count && status == 0; f++) {
        struct bulk file;
        struct error why;
        uint32_t s = f % p->manifest.stripe_count;
        store_stripe_page(&p->manifest, s, page);
        status = bulk_open(&file, p->file_path[f], O_RDWR | O_CREAT, error);
        if (status)
            break;
        /* Allocates the space now, contiguous if the file system can. */
        if (fallocate(file.fd, 0, 0, (off_t)p->manifest.stripe[s].bytes) != 0 &&
            errno != EOPNOTSUPP)
            status = error_set_errno(&why, ERR_IO, errno, "cannot allocate space");
        if (status || bulk_truncate(&file, p->manifest.stripe[s].bytes, &why) ||
            bulk_write(&file, page, PAGE_BYTES, 0, &why) || bulk_sync(&file, &why))
            status = error_set(error, why.code, "%.200s: %.150s", p->file_path[f], why.text);
        bulk_close(&file);
    }
    free(page);
    return status;
}
