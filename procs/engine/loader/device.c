/* SPDX-License-Identifier: Apache-2.0 */
#include "procs/engine/loader/device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/model/limits.h"

#define CHECK_EVERY_NS (500 * NS_PER_MS)

/* An open file is usable when it is the inspected one, or another file of the same size (a copy,
 * which must not change from then on, either). */
static int identify(const struct device *d, int fd, struct model_file_id *id, struct error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot stat %s", d->path);
    *id = *d->inspected;
    if (st.st_dev == d->inspected->dev && st.st_ino == d->inspected->ino)
        return model_file_unchanged(fd, id, error);
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != d->inspected->bytes)
        return error_set(error, ERR_GONE,
                         "%s is neither the model file that was inspected nor a copy of it",
                         d->path);
    id->dev = st.st_dev;
    id->ino = st.st_ino;
    id->mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (id->dev == d->id.dev && id->ino == d->id.ino && id->mtime_ns != d->id.mtime_ns)
        return error_set(error, ERR_GONE, "%s changed while it was in use", d->path);
    return 0;
}

static int open_file(const struct device *d, bool *direct, struct error *error)
{
    int flags = O_RDONLY | O_CLOEXEC;
    int fd = d->want_direct ? open(d->path, flags | O_DIRECT) : -1;
    *direct = fd >= 0;
    if (fd < 0)
        fd = open(d->path, flags);
    if (fd < 0)
        return error_set_errno(error, errno == ENOENT ? ERR_GONE : ERR_IO, errno, "cannot open %s",
                               d->path);
    if (!*direct)
        (void)posix_fadvise(
            fd, 0, 0, POSIX_FADV_RANDOM); /* no read-ahead: its pages count against our memory */
    return fd;
}

static int try_open(struct device *d, struct error *error)
{
    bool direct;
    struct model_file_id id;
    int fd = open_file(d, &direct, error);
    if (fd < 0)
        return -1;
    if (identify(d, fd, &id, error) != 0) {
        close(fd);
        return -1;
    }
    if (d->fd >= 0)
        close(d->fd);
    d->fd = fd;
    d->direct = direct;
    d->id = id;
    if (d->want_direct && !direct)
        log_warn("%s: direct reads are not supported, reading through the page cache", d->path);
    return 0;
}

static void set_gone(struct device *d, const struct error *error)
{
    if (!d->gone)
        log_error("%s: %s: %s", error_name(error->code), d->path, error->text);
    d->gone = true;
}

void device_open(struct device *d, const char *path, bool direct,
                 const struct model_file_id *inspected, bool quarantined)
{
    *d = (struct device){.fd = -1,
                         .want_direct = direct,
                         .inspected = inspected,
                         .failed_entry = ENTRY_NONE,
                         .quarantined = quarantined};
    size_t n = strlen(path);
    sl_assert(n < sizeof d->path);
    memcpy(d->path, path, n + 1);
    struct error error;
    if (!quarantined && try_open(d, &error) != 0)
        set_gone(d, &error);
}

void device_read_started(struct device *d, uint64_t now_ns)
{
    if (d->inflight++ == 0)
        d->quiet_ns = now_ns;
}

void device_read_ended(struct device *d, uint64_t now_ns)
{
    sl_assert(d->inflight > 0);
    d->inflight--;
    d->quiet_ns = now_ns;
}

bool device_stalled(const struct device *d, uint64_t now_ns, uint64_t awake_ns, uint64_t limit_ns)
{
    uint64_t since = d->quiet_ns > awake_ns ? d->quiet_ns : awake_ns;
    return d->inflight > 0 && now_ns > since && now_ns - since >= limit_ns;
}

bool device_failed(struct device *d, uint32_t entry, uint64_t limit)
{
    if (d->failed > 0 && entry == d->failed_entry)
        return false;
    d->failed_entry = entry;
    return ++d->failed >= limit;
}

void device_delivered(struct device *d)
{
    d->failed = 0;
}

void device_suspect(struct device *d)
{
    d->next_check_ns = 0;
}

void device_tick(struct device *d, uint64_t now_ns, bool idle)
{
    if (now_ns < d->next_check_ns)
        return;
    d->next_check_ns = now_ns + CHECK_EVERY_NS;
    struct error error;
    if (!d->gone) {
        if (model_file_unchanged(d->fd, &d->id, &error) != 0)
            set_gone(d, &error);
    } else if (idle && try_open(d, &error) == 0) {
        d->gone = false;
        log_info("%s: the inspected file is back", d->path);
    }
}

void device_fall_back(struct device *d)
{
    int flags = fcntl(d->fd, F_GETFL);
    if (!d->direct || flags < 0 || fcntl(d->fd, F_SETFL, flags & ~O_DIRECT) != 0)
        return;
    d->direct = false;
    d->want_direct = false;
    (void)posix_fadvise(d->fd, 0, 0, POSIX_FADV_RANDOM);
    log_warn("%s: direct reads fail, reading through the page cache", d->path);
}

void device_drop_cache(const struct device *d, uint64_t offset, uint64_t bytes)
{
    if (!d->direct)
        (void)posix_fadvise(d->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}
