/* SPDX-License-Identifier: Apache-2.0 */
/* The files that the loaders read, opened once. A loader gets a descriptor of each of its copies,
 * so that it never reads another file that was moved to the same path; only `ctl replace` opens a
 * path again, and only in place of a copy that failed or was missing. Loaders notice what happens
 * to these files (run_files.h); here it is reported, once. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/log.h"
#include "procs/engine/child/run_files.h"
#include "procs/engine/child/run_storage.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

static void copies_of(const struct supervisor *s, uint32_t loader, enum run_source source,
                      struct run_copies *copies)
{
    struct error error;
    int rc = run_copies(&s->params, s->model, s->options.model, loader, source, copies, &error);
    sl_assert(rc == 0); /* files_open has made all of them */
}

static struct held_file *find(struct supervisor *s, const char *path)
{
    for (uint32_t i = 0; i < s->files_count; i++)
        if (strcmp(s->files[i].path, path) == 0)
            return &s->files[i];
    return NULL;
}

static int open_path(const char *path, struct error *error)
{
    /* Not blocking: the path may name a FIFO. It makes no difference to a regular file. */
    int fd = fd_high(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    return fd >= 0 ? fd
                   : error_set_errno(error, errno == ENOENT ? ERR_GONE : ERR_IO, errno,
                                     "cannot open %.250s", path);
}

/* The model itself is read through the descriptor that inspect has read. */
static int open_first(const struct supervisor *s, const char *path, struct error *error)
{
    if (run_files(s->model) > 0 || strcmp(path, s->options.model) != 0)
        return open_path(path, error);
    int fd = fcntl(s->model_fd, F_DUPFD_CLOEXEC, FD_MIN);
    return fd >= 0 ? fd
                   : error_set_errno(error, ERR_FAILED, errno, "cannot duplicate %.250s", path);
}

/* ---- at the start ---------------------------------------------------------------------------- */

/* Whether this path is the one that inspect has read, not a copy of it. */
static bool is_inspected(const struct supervisor *s, uint32_t loader, enum run_source source,
                         const char *path)
{
    if (source == RUN_DENSE)
        return true;
    const struct model_stripe *own = model_loader_file(s->model, loader);
    return strcmp(path, own ? own->path : s->options.model) == 0;
}

/* *missing: why a copy is left out; no text: it is held, or was left out before. */
static int hold(struct supervisor *s, uint32_t loader, enum run_source source, const char *path,
                struct error *missing, struct error *error)
{
    struct error why;
    missing->text[0] = 0;
    if (find(s, path))
        return 0;
    sl_assert(s->files_count < HELD_FILES_MAX);
    struct held_file *f = &s->files[s->files_count++];
    *f = (struct held_file){.fd = -1};
    memcpy(f->path, path, strlen(path) + 1);
    if (io_url_is(path)) { /* the loader connects to it, and compares its size */
        f->seen.held = 1;
        f->seen.bytes = run_inspected(s->model, loader, source)->bytes;
        return 0;
    }
    f->fd = open_first(s, path, &why);
    if (f->fd >= 0 &&
        run_file_accept(f->fd, path, run_inspected(s->model, loader, source), &f->seen, &why) == 0)
        return 0;
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    f->seen.held = 0;
    if (is_inspected(s, loader, source, path))
        return error_set(error, why.code, "%s", why.text);
    *missing = why;
    return 0;
}

/* A start with fewer copies than were named must be noticed: a device may have failed. */
static void report_missing(uint32_t loader, const struct error *missing, const char *used)
{
    if (missing->text[0] && used)
        log_warn("loader.%" PRIu32 ": %s; the engine starts without this copy and reads %s "
                 "instead; when the file is there: sluice ctl replace loader.%" PRIu32,
                 loader, missing->text, used, loader);
    else if (missing->text[0])
        log_error("%s: %s", error_name(missing->code), missing->text);
}

/* A server may come back; without another copy, reads wait for it. */
static bool any_server(const struct run_copies *copies)
{
    for (uint32_t i = 0; i < copies->count; i++)
        if (io_url_is(copies->path[i]))
            return true;
    return false;
}

/* At least one copy of each file: without any, no sequence would ever end. */
static int hold_source(struct supervisor *s, uint32_t loader, enum run_source source,
                       struct error *error)
{
    struct run_copies copies;
    struct error missing[RUN_COPIES_MAX];
    const char *used = NULL;
    if (run_copies(&s->params, s->model, s->options.model, loader, source, &copies, error) != 0)
        return -1;
    for (uint32_t i = 0; i < copies.count; i++) {
        if (hold(s, loader, source, copies.path[i], &missing[i], error) != 0)
            return -1;
        if (!used && find(s, copies.path[i])->fd >= 0)
            used = copies.path[i];
    }
    for (uint32_t i = 0; i < copies.count; i++)
        report_missing(loader, &missing[i], used);
    if (copies.count > 0 && !used && !any_server(&copies))
        return error_set(error, ERR_BAD_INPUT, "loader.%" PRIu32 " can read no copy of its file",
                         loader);
    return 0;
}

int files_open(struct supervisor *s, struct error *error)
{
    for (uint32_t loader = 0; loader < s->params.loaders; loader++)
        for (uint32_t source = 0; source < RUN_SOURCES; source++)
            if (hold_source(s, loader, (enum run_source)source, error) != 0)
                return -1;
    return 0;
}

/* ---- for a loader ---------------------------------------------------------------------------- */

void files_publish(struct supervisor *s, uint32_t loader)
{
    for (uint32_t source = 0; source < RUN_SOURCES; source++) {
        struct run_copies copies;
        copies_of(s, loader, (enum run_source)source, &copies);
        for (uint32_t i = 0; i < copies.count; i++) {
            uint32_t at = run_file_index((enum run_source)source, i);
            const struct directory_file *seen = &find(s, copies.path[i])->seen;
            struct directory_file *file = &s->directory.head->files[loader][at];
            /* Of the same file, the loader may have a newer state: what changed harmlessly. */
            if (file->held != seen->held || file->dev != seen->dev || file->ino != seen->ino)
                *file = *seen;
        }
    }
}

void files_inherit(struct supervisor *s, uint32_t loader, posix_spawn_file_actions_t *actions)
{
    for (uint32_t source = 0; source < RUN_SOURCES; source++) {
        struct run_copies copies;
        copies_of(s, loader, (enum run_source)source, &copies);
        for (uint32_t i = 0; i < copies.count; i++) {
            const struct held_file *f = find(s, copies.path[i]);
            int to = INHERITED_FILES + (int)run_file_index((enum run_source)source, i);
            if (f->fd >= 0)
                posix_spawn_file_actions_adddup2(actions, f->fd, to);
        }
    }
}

/* ---- ctl replace ----------------------------------------------------------------------------- */

/* The file open at fd, found at the path of f, may be read in place of what f holds: it is the same
 * file, which has not changed, or another one that is right. */
static bool acceptable(struct supervisor *s, const struct held_file *f, int fd, uint32_t loader,
                       enum run_source source, const struct directory_file *known,
                       struct directory_file *now)
{
    struct error why;
    if (run_file_accept(fd, f->path, run_inspected(s->model, loader, source), now, &why) != 0) {
        log_error("loader.%" PRIu32 ": %s", loader, why.text);
        return false;
    }
    if (known->held && known->dev == now->dev && known->ino == now->ino) {
        *now = *known;
        if (run_file_check(fd, f->path, now) == RUN_FILE_CHANGED) {
            log_error("loader.%" PRIu32 ": %s %s; move a right copy to that path", loader, f->path,
                      run_errno_text(ESTALE));
            return false;
        }
    }
    return true;
}

/* A path that cannot be opened leaves the file that is held, unless that one changed. */
static bool still_right(struct held_file *f, const struct directory_file *known,
                        const struct error *why)
{
    struct directory_file now = *known;
    if (f->fd >= 0 && run_file_check(f->fd, f->path, &now) != RUN_FILE_CHANGED)
        return true;
    log_error("%s: %s", error_name(why->code), why->text);
    return false;
}

/* Opens the path of a copy that failed or is missing again. False: it stays unusable. */
static bool renew(struct supervisor *s, uint32_t loader, enum run_source source, uint32_t copy,
                  const char *path)
{
    struct held_file *f = find(s, path);
    struct directory_file *file = &s->directory.head->files[loader][run_file_index(source, copy)];
    struct directory_file now;
    struct error why;
    if (io_url_is(path))
        return true;
    int fd = open_path(path, &why);
    if (fd < 0)
        return still_right(f, file, &why);
    if (!acceptable(s, f, fd, loader, source, file, &now)) {
        close(fd);
        return false;
    }
    if (f->fd >= 0)
        close(f->fd);
    f->fd = fd;
    f->seen = *file = now;
    f->reported = false;
    return true;
}

uint32_t files_renew(struct supervisor *s, uint32_t loader, uint32_t quarantined)
{
    struct directory_head *head = s->directory.head;
    uint32_t left = 0;
    for (uint32_t source = 0; source < RUN_SOURCES; source++) {
        struct run_copies copies;
        copies_of(s, loader, (enum run_source)source, &copies);
        for (uint32_t i = 0; i < copies.count; i++) {
            uint32_t bit = quarantine_bit((enum run_source)source, i);
            bool failed = (quarantined & bit) != 0;
            if (!failed && find(s, copies.path[i])->fd >= 0)
                continue;
            if (renew(s, loader, (enum run_source)source, i, copies.path[i]))
                atomic_fetch_and_explicit(&head->replaced[loader], ~bit, memory_order_relaxed);
            else if (failed)
                left |= bit;
        }
    }
    return left;
}

/* ---- what happens to them -------------------------------------------------------------------- */

static void report_replaced(struct supervisor *s, uint32_t loader)
{
    uint32_t word =
        atomic_load_explicit(&s->directory.head->replaced[loader], memory_order_acquire);
    for (uint32_t source = 0; source < RUN_SOURCES && word != 0; source++) {
        struct run_copies copies;
        copies_of(s, loader, (enum run_source)source, &copies);
        for (uint32_t i = 0; i < copies.count; i++) {
            struct held_file *f = find(s, copies.path[i]);
            if (!(word & quarantine_bit((enum run_source)source, i)) || f->reported)
                continue;
            f->reported = true;
            log_warn("%s was replaced or removed; the engine continues with the file that it "
                     "opened at the start",
                     f->path);
        }
    }
}

/* Every copy is in quarantine or missing, and the last reason was a change in place. */
static bool source_changed(const struct supervisor *s, uint32_t loader, enum run_source source,
                           uint32_t word)
{
    struct run_copies copies;
    copies_of(s, loader, source, &copies);
    bool any = false;
    for (uint32_t i = 0; i < copies.count; i++) {
        bool failed = (word & quarantine_bit(source, i)) != 0;
        any |= failed;
        if (!failed && s->directory.head->files[loader][run_file_index(source, i)].held)
            return false;
    }
    return any;
}

static uint32_t changed_word(const struct supervisor *s)
{
    for (uint32_t loader = 0; loader < s->params.loaders; loader++) {
        uint32_t word =
            atomic_load_explicit(&s->directory.head->quarantined[loader], memory_order_acquire);
        if (quarantine_errno(word) != ESTALE)
            continue;
        for (uint32_t source = 0; source < RUN_SOURCES; source++)
            if (source_changed(s, loader, (enum run_source)source, word))
                return run_changed_word(loader, (enum run_source)source);
    }
    return 0;
}

bool files_changed(const struct supervisor *s, struct error *error)
{
    uint32_t word = s->directory.head ? atomic_load_explicit(&s->directory.head->model_changed,
                                                             memory_order_relaxed)
                                      : 0;
    if (word != 0)
        (void)run_changed_error(&s->params, s->model, s->options.model, word, error);
    return word != 0;
}

void files_watch(struct supervisor *s)
{
    struct error error;
    uint32_t word = changed_word(s);
    uint32_t before =
        atomic_exchange_explicit(&s->directory.head->model_changed, word, memory_order_release);
    if (word != 0 && before == 0 && files_changed(s, &error))
        log_error("%s: %s; all sequences fail", error_name(error.code), error.text);
    if (word == 0 && before != 0)
        log_info("the model can be read again");
    for (uint32_t loader = 0; loader < s->params.loaders; loader++)
        report_replaced(s, loader);
}

json_t *files_replaced(const struct supervisor *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < s->files_count; i++) {
        if (!s->files[i].reported)
            continue;
        json_t *text = json_string(s->files[i].path); /* NULL when it is not UTF-8 */
        json_array_append_new(list, text ? text : json_string("?"));
    }
    return list;
}
