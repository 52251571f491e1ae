/* SPDX-License-Identifier: Apache-2.0 */
/* Read bandwidth of a storage device for all sizes, depths and read methods of the loader, at
 * random offsets of a file. In a directory this is a scratch file without a name, which the kernel
 * removes when doctor exits. Memory: the larger of BUFFERS_MIN and DEPTH_MAX reads of the largest
 * size. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "config/params.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/random.h"
#include "lib/io/bulk.h"
#include "lib/io/io.h"
#include "procs/tools/doctor/doctor.h"

#define SCRATCH_BYTES (256 * MIB)
#define FILE_MIN      (16 * MIB) /* too small a file does not represent the device */
#define DEPTH_MAX     16u
/* Total size of the buffers, used round-robin: larger than the CPU caches, because an engine reads
 * into slots that are not cached. Virtual devices copy the data: with few buffers they measure 3 to
 * 5 % faster. */
#define BUFFERS_MIN   (128 * MIB)
#define AGAIN_SHARE   0.25 /* of the time: to measure the best cells again */
#define WAYS          4u
#define READ_LIMIT_MS 10000
#define SEED          1u

enum { SIZE_SMALL, SIZE_CHUNK, SIZE_EXPERT, SIZES };

static const uint32_t depths[ESTIMATE_DEPTHS] = {1, 2, 4, 8, 16};

static const struct way {
    const char *name;
    bool direct;
    const struct io_backend *backend;
} ways[WAYS] = {
    {"direct io_uring", true, &io_backend_uring},
    {"direct pread", true, &io_backend_pread},
    {"buffered io_uring", false, &io_backend_uring},
    {"buffered pread", false, &io_backend_pread},
};

struct storage {
    struct findings *findings; /* for progress */
    const char *name;          /* of the path, for progress */
    const char *section;
    char path[300];
    int fd[2]; /* buffered, direct; -1: not available */
    uint64_t bytes;
    bool scratch;
    uint32_t sizes[SIZES];
    char *buffers; /* at least DEPTH_MAX of the largest size */
    uint64_t buffers_bytes;
    uint32_t *blocks; /* a shuffle of the file's blocks of the current size */
    uint32_t block_count;
    double rate[WAYS][SIZES][ARRAY_LEN(depths)]; /* bytes/s; 0: not measured */
    double latency_ms[WAYS][SIZES];              /* at depth 1 */
    double again[2]; /* bytes/s of the best method, buffered and direct, at SIZE_EXPERT: measured
                        again, because the maximum of many samples is biased upwards */
};

/* ---- file ---- */

static int fill_scratch(struct storage *d, struct error *error)
{
    struct random random;
    uint64_t piece = 4 * MIB, *data = bulk_buffer(piece);
    if (!data)
        return error_set(error, ERR_NO_MEMORY, "out of memory (buffer of the scratch file)");
    random_seed(&random, SEED, 0);
    int rc = 0;
    for (uint64_t at = 0; at < d->bytes && rc == 0; at += piece) {
        for (uint64_t i = 0; i < piece / sizeof *data; i++)
            data[i] = random_u64(&random);
        for (uint64_t done = 0; done < piece && rc == 0;) {
            ssize_t n = pwrite(d->fd[0], (char *)data + done, piece - done, (off_t)(at + done));
            if (n < 0 && errno != EINTR)
                rc = error_set_errno(error, ERR_IO, errno, "%s: cannot write a scratch file",
                                     d->path);
            done += n > 0 ? (uint64_t)n : 0;
        }
    }
    free(data);
    if (rc == 0 && fdatasync(d->fd[0]) != 0)
        rc = error_set_errno(error, ERR_IO, errno, "%s: cannot sync a scratch file", d->path);
    return rc;
}

static int make_scratch(struct storage *d, struct error *error)
{
    struct statvfs fs;
    char size[16];
    if (statvfs(d->path, &fs) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "%s", d->path);
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    d->bytes = SCRATCH_BYTES;
    if (available / 4 < d->bytes)
        return error_set(
            error, ERR_BAD_INPUT,
            "%s: only %s free, a scratch file needs 1 GiB; use another --path, or --no-device",
            d->path, bytes_format(available, size));
    d->fd[0] = open(d->path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (d->fd[0] < 0) { /* a file system without O_TMPFILE */
        char name[PATH_MAX];
        snprintf(name, sizeof name, "%s/sluice-doctor.XXXXXX", d->path);
        d->fd[0] = mkostemp(name, O_CLOEXEC);
        if (d->fd[0] >= 0)
            unlink(name);
    }
    if (d->fd[0] < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "%s: cannot create a scratch file",
                               d->path);
    d->scratch = true;
    return fill_scratch(d, error);
}

/* A second descriptor of the file for direct reads: a file without a name is opened through
 * /proc. */
static void open_direct(struct storage *d)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", d->fd[0]);
    d->fd[1] = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
}

static int open_file(struct storage *d, struct error *error)
{
    struct stat st;
    if (stat(d->path, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "%s", d->path);
    if (S_ISDIR(st.st_mode)) {
        if (make_scratch(d, error) != 0)
            return -1;
    } else {
        d->fd[0] = open(d->path, O_RDONLY | O_CLOEXEC);
        if (d->fd[0] < 0)
            return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %s", d->path);
        if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < FILE_MIN)
            return error_set(error, ERR_BAD_INPUT, "%s: not a regular file of at least %u MiB",
                             d->path, (unsigned)(FILE_MIN / MIB));
        d->bytes = (uint64_t)st.st_size;
    }
    (void)posix_fadvise(d->fd[0], 0, 0, POSIX_FADV_RANDOM);
    open_direct(d);
    return 0;
}

/* ---- one cell ---- */

static void shuffle_blocks(struct storage *d, uint32_t size, struct random *random)
{
    uint64_t count = d->bytes / size;
    d->block_count = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
    if (d->block_count > SCRATCH_BYTES / (256 * KIB) * 4)
        d->block_count = (uint32_t)(SCRATCH_BYTES / (256 * KIB) * 4);
    uint64_t stride = count / d->block_count;
    for (uint32_t i = 0; i < d->block_count; i++)
        d->blocks[i] = (uint32_t)(i * stride);
    for (uint32_t i = d->block_count - 1; i > 0; i--) {
        uint32_t j = (uint32_t)random_below(random, i + 1), t = d->blocks[i];
        d->blocks[i] = d->blocks[j];
        d->blocks[j] = t;
    }
}

struct cell {
    const struct storage *storage;
    const struct way *way;
    struct io *io;
    int ready_fd;
    uint32_t size, depth, next, in_flight, buffer;
    uint64_t bytes, failed;
};

static bool submit_one(struct cell *c)
{
    const struct storage *d = c->storage;
    bool repeat = c->way->direct; /* a buffered read of the same block would hit the page cache */
    if (c->next >= d->block_count && !repeat)
        return false;
    struct io_read read = {
        .fd = d->fd[c->way->direct],
        .bytes = c->size,
        .file_offset = (uint64_t)d->blocks[c->next % d->block_count] * c->size,
        .buffer = d->buffers + (uint64_t)c->buffer * c->size,
    };
    c->next++;
    /* Two reads in flight may share a buffer: the data is not used. */
    c->buffer = (c->buffer + 1) % (uint32_t)(d->buffers_bytes / c->size);
    if (c->way->backend->submit(c->io, &read, 1) != 1)
        return false;
    c->in_flight++;
    return true;
}

/* Collects completions; with `resubmit`, starts a read for each. */
static void take_done(struct cell *c, bool resubmit)
{
    struct io_done done[DEPTH_MAX];
    uint32_t n = c->way->backend->poll(c->io, done, DEPTH_MAX);
    for (uint32_t i = 0; i < n; i++) {
        c->in_flight--;
        c->bytes += done[i].result > 0 ? (uint64_t)done[i].result : 0;
        c->failed += done[i].result <= 0;
        if (resubmit && c->failed == 0)
            submit_one(c);
    }
}

/* Reads into our buffers are still in flight and cannot be cancelled: exit. */
static _Noreturn void give_up(const struct storage *d)
{
    fprintf(stderr, "sluice doctor: %s: a read did not complete within %d s\n", d->path,
            READ_LIMIT_MS / 1000);
    exit(1);
}

static double run_cell(struct cell *c, uint64_t ns)
{
    uint64_t start_ns = clock_now_ns(), now = start_ns;
    for (uint32_t i = 0; i < c->depth; i++)
        submit_one(c);
    while (c->in_flight > 0) {
        struct pollfd p = {.fd = c->ready_fd, .events = POLLIN};
        if (poll(&p, 1, READ_LIMIT_MS) == 0)
            give_up(c->storage);
        take_done(c, clock_now_ns() - start_ns < ns);
    }
    now = clock_now_ns();
    return c->failed || now == start_ns ? 0 : (double)c->bytes * 1e9 / (double)(now - start_ns);
}

/* Bytes per second; 0 if this method is not available. */
static double measure_cell(struct storage *d, uint32_t way, uint32_t size, uint32_t depth,
                           uint64_t ns)
{
    struct error ignored;
    struct cell c = {
        .storage = d, .way = &ways[way], .size = d->sizes[size], .depth = depths[depth]};
    if (d->fd[c.way->direct] < 0)
        return 0;
    c.io = c.way->backend->open(&(struct io_source){.depth = c.depth}, &c.ready_fd, &ignored);
    if (!c.io)
        return 0;
    if (!c.way->direct)
        (void)posix_fadvise(d->fd[0], 0, 0, POSIX_FADV_DONTNEED);
    double rate = run_cell(&c, ns);
    c.way->backend->close(c.io);
    return rate;
}

static void measure_row(struct storage *d, uint32_t way, uint32_t size, uint64_t ns)
{
    for (uint32_t i = 0; i < ARRAY_LEN(depths); i++)
        d->rate[way][size][i] = measure_cell(d, way, size, i, ns);
    if (d->rate[way][size][0] > 0)
        d->latency_ms[way][size] = 1e3 * d->sizes[size] / d->rate[way][size][0];
}

/* The bandwidth of the best cell of that size, 0 if none; sets way and depth. */
static double best_of(const struct storage *d, bool direct, uint32_t size, uint32_t *way,
                      uint32_t *depth)
{
    double best = 0;
    for (uint32_t w = 0; w < WAYS; w++)
        for (uint32_t i = 0; ways[w].direct == direct && i < ARRAY_LEN(depths); i++)
            if (d->rate[w][size][i] > best) {
                best = d->rate[w][size][i];
                *way = w;
                *depth = i;
            }
    return best;
}

static void measure_again(struct storage *d, bool direct, uint64_t ns)
{
    uint32_t way = 0, depth = 0;
    double best = best_of(d, direct, SIZE_EXPERT, &way, &depth);
    double again = best > 0 ? measure_cell(d, way, SIZE_EXPERT, depth, ns) : 0;
    d->again[direct] = again > 0 ? again : best; /* the second measurement may fail */
}

static void measure_all(struct storage *d, double seconds)
{
    struct random random;
    uint64_t cells = WAYS * SIZES * ARRAY_LEN(depths);
    uint64_t ns = (uint64_t)((1 - AGAIN_SHARE) * seconds * 1e9 / (double)cells);
    random_seed(&random, SEED, 1);
    for (uint32_t s = 0; s < SIZES; s++) {
        shuffle_blocks(d, d->sizes[s], &random);
        for (uint32_t w = 0; w < WAYS; w++) {
            if (isatty(STDERR_FILENO))
                progress(d->findings, "reading %.40s, %u of %u", d->name, s * WAYS + w + 1,
                         SIZES * WAYS);
            measure_row(d, w, s, ns);
        }
    }
    for (int direct = 0; direct < 2; direct++)
        measure_again(d, direct, (uint64_t)(AGAIN_SHARE / 2 * seconds * 1e9));
}

/* ---- findings ---- */

/* The minimum depth with 9/10 of the best bandwidth at that size. */
static uint32_t enough_depth(const struct storage *d, bool direct, uint32_t size)
{
    uint32_t way = 0, depth = 0;
    double best = best_of(d, direct, size, &way, &depth);
    for (uint32_t i = 0; i < ARRAY_LEN(depths); i++)
        for (uint32_t w = 0; w < WAYS; w++)
            if (ways[w].direct == direct && d->rate[w][size][i] >= 0.9 * best)
                return depths[i];
    return depths[ARRAY_LEN(depths) - 1];
}

static void report_rows(struct findings *f, const struct storage *d)
{
    json_t *cells = json_array();
    for (uint32_t s = 0; s < SIZES; s++)
        for (uint32_t w = 0; w < WAYS; w++) {
            char name[64], size[16], text[96] = "";
            snprintf(name, sizeof name, "%s %s", ways[w].name, bytes_format(d->sizes[s], size));
            for (uint32_t i = 0; i < ARRAY_LEN(depths); i++) {
                size_t used = strlen(text);
                snprintf(text + used, sizeof text - used, "%s%.0f", i ? " " : "",
                         d->rate[w][s][i] / 1e6);
                json_array_append_new(cells,
                                      json_pack("{s:s, s:b, s:s, s:I, s:i, s:f}", "way",
                                                ways[w].name, "direct", ways[w].direct, "backend",
                                                io_backend_info(ways[w].backend->id)->name, "bytes",
                                                (json_int_t)d->sizes[s], "depth", (int)depths[i],
                                                "bytes_per_s", d->rate[w][s][i]));
            }
            if (d->latency_ms[w][s] > 0)
                finding(f, d->section, name, json_real(d->latency_ms[w][s]), text,
                        "MB/s at depth 1 2 4 8 16; a single read takes %.2f ms",
                        d->latency_ms[w][s]);
            else
                finding(f, d->section, name, json_real(0), "unavailable", "%s",
                        "this way of reading is not available here");
        }
    finding_quiet(f, d->section, "cells", cells);
}

static void report_verdicts(struct findings *f, const struct storage *d)
{
    double direct = d->again[1], buffered = d->again[0],
           best = direct > buffered ? direct : buffered;
    char text[96], size[16];
    finding_quiet(f, d->section, "path", json_string(d->path));
    finding_quiet(f, d->section, "scratch", json_boolean(d->scratch));
    snprintf(text, sizeof text, "%.0f MB/s", best / 1e6);
    finding(f, d->section, "bytes_per_s", json_real(best), text,
            "an expert of %s takes %.1f ms; tokens/s is at most this / missed bytes per token",
            bytes_format(d->sizes[SIZE_EXPERT], size),
            best > 0 ? 1e3 * d->sizes[SIZE_EXPERT] / best : 0);
    bool use_direct = d->fd[1] >= 0 && direct >= 0.8 * buffered;
    if (d->fd[1] < 0)
        snprintf(text, sizeof text, "unavailable");
    else
        snprintf(text, sizeof text, "%s, %.0f vs %.0f MB/s", use_direct ? "on" : "off",
                 direct / 1e6, buffered / 1e6);
    finding(
        f, d->section, "direct", json_boolean(use_direct), text,
        d->fd[1] < 0
            ? "O_DIRECT is not available: loaders read through the page cache and drop the pages"
        : use_direct ? "O_DIRECT is not slower than buffered reads: keep --direct-io on"
                     : "buffered reads are faster here: try --direct-io off");
    finding(f, d->section, "depth", json_integer(enough_depth(d, use_direct, SIZE_CHUNK)), NULL,
            "reads of %s in flight for 9/10 of the bandwidth; --queue-depth is %d by default",
            bytes_format(d->sizes[SIZE_CHUNK], size), PARAMS_QUEUE_DEPTH);
    if (d->scratch)
        finding(f, d->section, "note", json_string("scratch file"), "scratch file",
                "just written: the host of a virtual machine may cache it; --path MODEL reads the "
                "model instead");
}

/* Huge pages where available, as in the arena of an engine: a read into single pages has hundreds
 * of segments, which can halve the bandwidth of a virtual device. */
static char *make_buffers(uint64_t bytes)
{
    uint64_t whole = align_up(bytes, HUGE_PAGE_BYTES);
    char *p = aligned_alloc(HUGE_PAGE_BYTES, whole);
    if (!p)
        return NULL;
    (void)madvise(p, whole, MADV_HUGEPAGE);
    memset(p, 0, whole);
    return p;
}

static int prepare(struct storage *d, const struct storage_job *job, struct error *error)
{
    uint32_t largest = (uint32_t)align_up(job->expert_bytes, PAGE_BYTES);
    snprintf(d->path, sizeof d->path, "%s", job->path);
    d->sizes[SIZE_SMALL] = 256 * KIB < largest ? 256 * KIB : largest;
    d->sizes[SIZE_CHUNK] = job->chunk_bytes < largest ? job->chunk_bytes : largest;
    d->sizes[SIZE_EXPERT] = largest;
    d->buffers_bytes = (uint64_t)DEPTH_MAX * largest;
    if (d->buffers_bytes < BUFFERS_MIN)
        d->buffers_bytes = BUFFERS_MIN;
    d->buffers = make_buffers(d->buffers_bytes);
    d->blocks = malloc(SCRATCH_BYTES / (256 * KIB) * 4 * sizeof *d->blocks);
    if (!d->buffers || !d->blocks)
        return error_set(error, ERR_NO_MEMORY, "out of memory (read buffers)");
    return open_file(d, error);
}

/* The best method at every depth, at the size of loaders' reads. */
static void result_of(const struct storage *d, struct storage_result *r)
{
    r->chunk_bytes = d->sizes[SIZE_CHUNK];
    r->scratch = d->scratch;
    uint32_t way = 0, depth = 0; /* of reads beside decode */
    (void)best_of(d, true, SIZE_CHUNK, &way, &depth);
    r->reads = (struct device_reads){.fd = d->fd[1] < 0 ? -1 : fcntl(d->fd[1], F_DUPFD_CLOEXEC, 0),
                                     .chunk_bytes = d->sizes[SIZE_CHUNK],
                                     .bytes = d->bytes,
                                     .backend = ways[way].backend};
    for (uint32_t i = 0; i < ARRAY_LEN(depths); i++) {
        r->bytes_per_s[i] = 0;
        if (i > 0) /* a deeper queue is never slower: lower values are noise */
            r->bytes_per_s[i] = r->bytes_per_s[i - 1];
        for (uint32_t w = 0; w < WAYS; w++)
            if (d->rate[w][SIZE_CHUNK][i] > r->bytes_per_s[i])
                r->bytes_per_s[i] = d->rate[w][SIZE_CHUNK][i];
    }
}

int storage_examine(struct findings *f, const char *section, const struct storage_job *job,
                    struct storage_result *result, struct error *error)
{
    struct storage *d = calloc(1, sizeof *d);
    if (!d)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    d->section = section;
    d->fd[0] = d->fd[1] = -1;
    int rc = prepare(d, job, error);
    if (rc == 0) {
        if (!isatty(STDERR_FILENO))
            progress(f, "reading %.60s, %.0f s", job->path, job->seconds);
        d->findings = f;
        d->name =
            strrchr(d->path, '/') && strrchr(d->path, '/')[1] ? strrchr(d->path, '/') + 1 : d->path;
        measure_all(d, job->seconds);
        report_rows(f, d);
        report_verdicts(f, d);
        result_of(d, result);
    }
    if (d->fd[0] >= 0) {
        (void)posix_fadvise(d->fd[0], 0, 0, POSIX_FADV_DONTNEED);
        close(d->fd[0]);
    }
    if (d->fd[1] >= 0)
        close(d->fd[1]);
    free(d->buffers);
    free(d->blocks);
    free(d);
    return rc;
}
