/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a skeleton, DIRECTORY/IDENTITY/skeleton-KEY. IDENTITY is a hash of what the
 * server has (of the size, the header and samples of a GGUF file; of the manifest of a store), KEY
 * one of the URL: a model that changes on the server gets another directory, and no file that an
 * engine reads is ever written again.
 *
 * The file `progress` says how many bytes are safe on storage, in the order in which this program
 * fetches them: "sluice skeleton 1: DONE of TOTAL bytes". It is replaced after a sync of what it
 * counts, so that an interrupted fetch continues there. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/file/replace.h"
#include "procs/engine/fetch/fetch.h"

#define PROGRESS   "sluice skeleton 1: %" PRIu64 " of %" PRIu64 " bytes\n"
#define SCANNED    "sluice skeleton 1: %" SCNu64 " of %" SCNu64 " bytes"
#define NOTE_BYTES (64 * MIB) /* fetched again at most, after an interruption */
#define SHOW_NS    (2 * NS_PER_S)

static int make(const char *path, struct error *error)
{
    struct stat st;
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return error_set_errno(error, ERR_IO, errno, "cannot make %.250s", path);
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        (st.st_mode & 022) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "%.250s is not a directory that only this user may write", path);
    return 0;
}

static int path_in(const struct fetch *f, const char *name, char path[PATH_MAX],
                   struct error *error)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", f->place, name);
    return n > 0 && n < PATH_MAX
               ? 0
               : error_set(error, ERR_BAD_INPUT, "the path %.200s/... is too long", f->place);
}

static int read_progress(struct fetch *f, struct error *error)
{
    char path[PATH_MAX];
    uint64_t done, total;
    if (path_in(f, "progress", path, error) != 0)
        return -1;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, SCANNED, &done, &total) == 2 && done <= total) {
        f->done = f->noted = done;
        f->complete = done == total;
    }
    if (file)
        (void)fclose(file);
    return 0;
}

static int lock(struct fetch *f, struct error *error)
{
    f->lock_fd = open(f->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->lock_fd < 0)
        return error_set_errno(error, ERR_IO, errno, "cannot open %.250s", f->place);
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    log_info("another start fetches this model into %s; waiting for it", f->place);
    return flock(f->lock_fd, LOCK_EX) == 0
               ? 0
               : error_set_errno(error, ERR_IO, errno, "cannot lock %.250s", f->place);
}

int place_take(struct fetch *f, const uint8_t identity[16], struct error *error)
{
    char hex[33];
    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", identity[i]);
    int n = snprintf(f->place, sizeof f->place, "%s/%s", f->directory, hex);
    if (n < 0 || n + 32 > PATH_MAX)
        return error_set(error, ERR_BAD_INPUT, "the path %.200s is too long", f->directory);
    if (make(f->place, error) != 0)
        return -1;
    snprintf(f->place + n, sizeof f->place - (size_t)n, "/skeleton-%016" PRIx64,
             (uint64_t)XXH3_64bits(f->key, strlen(f->key)));
    if (make(f->place, error) != 0 || lock(f, error) != 0)
        return -1;
    f->started_ns = f->shown_ns = clock_now_ns();
    return read_progress(f, error);
}

int place_open(const struct fetch *f, const char *name, uint64_t bytes, struct error *error)
{
    char path[PATH_MAX];
    if (path_in(f, name, path, error) != 0)
        return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    error_set_errno(error, ERR_IO, errno, "cannot make %.250s", path);
    if (fd >= 0)
        close(fd);
    return -1;
}

static int write_progress(struct fetch *f, struct error *error)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    if (path_in(f, "progress", path, error) != 0 ||
        path_in(f, "progress.new", temporary, error) != 0)
        return -1;
    FILE *file = fopen(temporary, "we");
    bool written = file && fprintf(file, PROGRESS, f->done, f->total) > 0;
    if (file && fclose(file) != 0)
        written = false;
    int why = written ? file_replace(temporary, path, true) : errno;
    return why == 0 ? 0 : error_set_errno(error, ERR_IO, why, "cannot write %.250s", path);
}

static void show(struct fetch *f)
{
    uint64_t now = clock_now_ns();
    if (now - f->shown_ns < SHOW_NS)
        return;
    f->shown_ns = now;
    log_info("fetching %s: %.1f of %.1f MiB", f->key, (double)f->done / (double)MIB,
             (double)f->total / (double)MIB);
}

int place_note(struct fetch *f, int fd, uint64_t bytes, struct error *error)
{
    f->done += bytes;
    show(f);
    if (f->done - f->noted < NOTE_BYTES)
        return 0;
    if (fdatasync(fd) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot write to %.250s", f->place);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    f->noted = f->done;
    return write_progress(f, error);
}

int place_complete(struct fetch *f, struct error *error)
{
    f->done = f->total;
    if (fsync(f->lock_fd) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot write to %.250s", f->place);
    if (write_progress(f, error) != 0)
        return -1;
    log_info("%s: %.1f MiB are in %s", f->key, (double)f->total / (double)MIB, f->place);
    return 0;
}
