/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the file of a loader, counts its failures, and notices stalls and changes. */
#include "procs/engine/loader/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/model/index/model_index.h"

#define CHECK_EVERY_NS (500 * NS_PER_MS)

/* Through /proc: another open file of the same inode, whether its path still names it or not. */
static int open_again(const struct storage *d, int inherited, bool *direct)
{
    char link[32];
    int flags = O_RDONLY | O_CLOEXEC;
    snprintf(link, sizeof link, "/proc/self/fd/%d", inherited);
    int fd = d->want_direct ? open(link, flags | O_DIRECT) : -1;
    *direct = fd >= 0;
    if (fd < 0)
        fd = open(link, flags);
    if (fd >= 0 && !*direct)
        (void)posix_fadvise(
            fd, 0, 0, POSIX_FADV_RANDOM); /* no read-ahead: its pages count against our memory */
    return fd;
}

static void take_descriptor(struct storage *d, int inherited)
{
    d->fd = open_again(d, inherited, &d->direct);
    if (d->fd < 0) {
        log_error("%s: cannot be opened again: %s", d->path, strerror(errno));
        d->missing = true;
    } else if (d->want_direct && !d->direct) {
        log_warn("%s: direct reads are not supported, reading through the page cache", d->path);
    }
}

static void storage_init(struct storage *d, const char *path, struct directory_file *file,
                         bool quarantined)
{
    *d = (struct storage){.fd = -1,
                          .file = file,
                          .missing = !file->held,
                          .failed_entry = ENTRY_NONE,
                          .quarantined = quarantined};
    size_t n = strlen(path);
    sl_assert(n < sizeof d->path);
    memcpy(d->path, path, n + 1);
}

void storage_open(struct storage *d, const char *path, bool direct, int inherited,
                  struct directory_file *file, bool quarantined)
{
    storage_init(d, path, file, quarantined);
    d->want_direct = direct;
    if (d->missing)
        return; /* then `inherited` is not a descriptor of ours */
    if (!quarantined)
        take_descriptor(d, inherited);
    close(inherited);
}

void storage_open_server(struct storage *d, const char *url, struct directory_file *file,
                         bool quarantined)
{
    storage_init(d, url, file, quarantined);
    d->server = d->away = true;
    d->away_ns = clock_now_ns();
}

bool storage_note_link(struct storage *d, bool up, uint64_t since_ns, uint64_t now_ns)
{
    bool changed = d->away == up;
    d->away = !up;
    d->away_ns = up ? 0 : since_ns;
    if (changed && up)
        d->quiet_ns = now_ns; /* what waited is sent now */
    return changed;
}

void storage_read_started(struct storage *d, uint64_t now_ns)
{
    if (d->inflight++ == 0)
        d->quiet_ns = now_ns;
}

void storage_read_ended(struct storage *d, uint64_t now_ns)
{
    sl_assert(d->inflight > 0);
    d->inflight--;
    d->quiet_ns = now_ns;
}

bool storage_stalled(const struct storage *d, uint64_t now_ns, uint64_t awake_ns, uint64_t limit_ns)
{
    uint64_t since = d->quiet_ns > awake_ns ? d->quiet_ns : awake_ns;
    return d->inflight > 0 && !d->away && now_ns > since && now_ns - since >= limit_ns;
}

bool storage_failed(struct storage *d, uint32_t entry, uint64_t limit)
{
    if (d->failed > 0 && entry == d->failed_entry)
        return false;
    d->failed_entry = entry;
    return ++d->failed >= limit;
}

void storage_delivered(struct storage *d)
{
    d->failed = 0;
}

void storage_suspect(struct storage *d)
{
    d->next_check_ns = 0;
}

bool storage_unchanged(struct storage *d)
{
    if (d->changed || d->missing || d->server || d->cache)
        return !d->changed;
    enum run_file_state state = run_file_check(d->fd, d->path, d->file);
    d->moved |= state == RUN_FILE_MOVED;
    d->changed = state == RUN_FILE_CHANGED;
    return !d->changed;
}

void storage_tick(struct storage *d, uint64_t now_ns)
{
    if (now_ns < d->next_check_ns)
        return;
    d->next_check_ns = now_ns + CHECK_EVERY_NS;
    (void)storage_unchanged(d);
}

void storage_fall_back(struct storage *d)
{
    int flags = fcntl(d->fd, F_GETFL);
    if (!d->direct || flags < 0 || fcntl(d->fd, F_SETFL, flags & ~O_DIRECT) != 0)
        return;
    d->direct = false;
    d->want_direct = false;
    (void)posix_fadvise(d->fd, 0, 0, POSIX_FADV_RANDOM);
    log_warn("%s: direct reads fail, reading through the page cache", d->path);
}

void storage_drop_cache(const struct storage *d, uint64_t offset, uint64_t bytes)
{
    if (!d->direct && !d->server)
        (void)posix_fadvise(d->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
}
