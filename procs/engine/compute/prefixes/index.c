/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the directory of prefixes, finds entries, and removes those of the least value. */
#include "procs/engine/compute/prefixes/index.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/prefix/directory.h"

#define LOCK_FILE  "lock"
#define CLEAR_FILE "clear" /* while it exists, no file that was there before is used */

static void lock(struct prefix_index *x)
{
    int rc = pthread_mutex_lock(&x->mutex);
    sl_assert(rc == 0);
}

static void unlock(struct prefix_index *x)
{
    int rc = pthread_mutex_unlock(&x->mutex);
    sl_assert(rc == 0);
}

/* One line for each file, and a number for all. */
static void reject(struct prefix_index *x, const char *name, const char *why)
{
    atomic_fetch_add(&x->counts.rejected, 1);
    log_warn("prefix file %s is not used: %s", name, why);
}

/* ---- entries ---- */

static bool same_engine(const struct prefix_bond *a, const struct prefix_bond *b)
{
    struct prefix_bond c = *a;
    c.preset = b->preset;
    return prefix_same_bond(&c, b);
}

static const char *foreign(const struct prefix_bond *own, const struct prefix_bond *of)
{
    if (memcmp(own->model, of->model, sizeof own->model) != 0)
        return "it is of another model";
    if (own->arithmetic != of->arithmetic)
        return "it is of another version of the arithmetic";
    return own->kv_type != of->kv_type ? "it has another --kv-type" : "its layout differs";
}

static void drop(struct prefix_index *x, uint32_t i)
{
    x->tokens -= x->entry[i].tables ? x->entry[i].head.tokens : 0;
    free(x->entry[i].tables);
    x->entry[i] = x->entry[--x->count];
}

static void drop_all(struct prefix_index *x)
{
    lock(x);
    while (x->count > 0)
        drop(x, 0);
    unlock(x);
}

static uint32_t find_name(const struct prefix_index *x, const char *name)
{
    uint32_t i = 0;
    while (i < x->count && strcmp(x->entry[i].name, name) != 0)
        i++;
    return i;
}

/* It is a file as before, whose bytes count, and is not used any more. */
static void spoil(struct prefix_index *x, const char *name)
{
    lock(x);
    uint32_t i = find_name(x, name);
    struct index_entry *e = &x->entry[i];
    if (i < x->count) {
        x->tokens -= e->tables ? e->head.tokens : 0;
        free(e->tables);
        e->tables = NULL;
        e->known = e->ours = false;
    }
    unlock(x);
}

static void put(struct prefix_index *x, const struct index_entry *e)
{
    uint32_t at = find_name(x, e->name);
    if (at < x->count)
        drop(x, at);
    sl_assert(x->count < INDEX_FILES_MAX);
    x->tokens += e->tables ? e->head.tokens : 0;
    x->entry[x->count++] = *e;
}

/* ---- the writer ---- */

static bool is_part(const char *name)
{
    char whole[PREFIX_NAME_BYTES];
    size_t n = sizeof whole - 1;
    if (strlen(name) != n + strlen(INDEX_SUFFIX_WRITE) || strcmp(name + n, INDEX_SUFFIX_WRITE) != 0)
        return false;
    memcpy(whole, name, n);
    whole[n] = 0;
    return prefix_is_name(whole);
}

/* 0, or -1: it is still there. */
static int remove_file(struct prefix_index *x, const char *name)
{
    if (unlinkat(x->dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    atomic_fetch_add(&x->counts.errors, 1);
    return -1;
}

/* Removes the files of which `chosen` is true; false: some are still there. */
static bool remove_files(struct prefix_index *x, bool (*chosen)(const char *name))
{
    bool all = true;
    int fd = openat(x->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *f; d && (f = readdir(d));)
        if (chosen(f->d_name) && remove_file(x, f->d_name) != 0)
            all = false;
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return d && all;
}

static bool take_lock(struct prefix_index *x)
{
    int fd = openat(x->dir, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return false;
    }
    x->lock = fd;
    remove_files(x, is_part);
    return true;
}

/* ---- the scan ---- */

static void *read_tables(int fd, const struct prefix_head *h, struct error *error)
{
    uint64_t bytes = prefix_tables_bytes(h);
    void *tables = malloc(bytes);
    ssize_t n = tables ? pread(fd, tables, bytes, PREFIX_ALIGN) : -1;
    int rc = !tables               ? error_set(error, ERR_NO_MEMORY, "out of memory")
             : n < 0               ? error_set_errno(error, ERR_IO, errno, "cannot read it")
             : (uint64_t)n < bytes ? error_set(error, ERR_BAD_INPUT, "it is cut off")
                                   : prefix_check_tables(h, tables, error);
    if (rc == 0)
        return tables;
    free(tables);
    return NULL;
}

/* -1 with *error: it is not used, but counts as a file. */
static int read_entry(struct prefix_index *x, int fd, struct index_entry *e, struct error *error)
{
    struct stat st;
    struct prefix_head h = {0};
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return error_set(error, ERR_BAD_INPUT, "it is no regular file");
    e->bytes = (uint64_t)st.st_size;
    e->used_ns = st.st_mtim.tv_sec * (int64_t)NS_PER_S + st.st_mtim.tv_nsec;
    if (pread(fd, &h, sizeof h, 0) < 0)
        return error_set_errno(error, ERR_IO, errno, "cannot read it");
    if (prefix_check_head(&h, e->bytes, error) != 0)
        return -1;
    e->head = h;
    e->known = true;
    if (!same_engine(&h.bond, &x->bond))
        return error_set(error, ERR_BAD_INPUT, "%s", foreign(&x->bond, &h.bond));
    if (x->tokens + h.tokens > INDEX_TOKENS_MAX)
        return error_set(error, ERR_BAD_INPUT, "the others have %u tokens", INDEX_TOKENS_MAX);
    e->tables = read_tables(fd, &h, error);
    e->ours = e->tables != NULL;
    return e->ours ? 0 : -1;
}

static void scan_file(struct prefix_index *x, const char *name)
{
    struct index_entry e = {.ours = false};
    struct error error;
    strcpy(e.name, name);
    int fd = openat(x->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        reject(x, name, strerror(errno));
        return;
    }
    if (read_entry(x, fd, &e, &error) != 0)
        reject(x, name, error.text);
    close(fd);
    lock(x);
    put(x, &e);
    unlock(x);
}

static void scan(struct prefix_index *x)
{
    int fd = openat(x->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        atomic_fetch_add(&x->counts.errors, 1);
        log_warn("the directory of prefixes cannot be listed: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *f; x->count < INDEX_FILES_MAX && (f = readdir(d));)
        if (prefix_is_name(f->d_name))
            scan_file(x, f->d_name);
    closedir(d);
}

static bool is_cleared(const struct prefix_index *x)
{
    return faccessat(x->dir, CLEAR_FILE, F_OK, 0) != 0;
}

/* What a predecessor has begun to remove is removed first; what cannot be removed is not used. */
static void take_stock(struct prefix_index *x)
{
    drop_all(x);
    if (!is_cleared(x))
        index_clear(x);
    if (is_cleared(x))
        scan(x);
}

int index_open(struct prefix_index *x, const char *path, uint64_t limit_bytes,
               const struct prefix_bond *bond, bool clear, struct error *error)
{
    *x = (struct prefix_index){.dir = prefix_directory_open(path, false, error),
                               .lock = -1,
                               .limit_bytes = limit_bytes,
                               .bond = *bond};
    if (x->dir < 0)
        return -1;
    pthread_mutex_init(&x->mutex, NULL);
    if (!take_lock(x))
        log_info("another engine writes to %s: this one only reads prefixes there", path);
    if (clear)
        index_clear_begin(x);
    take_stock(x);
    return 0;
}

void index_close(struct prefix_index *x)
{
    drop_all(x);
    close(x->dir);
    if (x->lock >= 0)
        close(x->lock);
    pthread_mutex_destroy(&x->mutex);
}

bool index_may_write(struct prefix_index *x)
{
    if (x->lock >= 0)
        return true;
    if (!take_lock(x))
        return false;
    take_stock(x);
    return true;
}

/* ---- a prompt ---- */

static uint32_t common_of(const struct index_entry *e, const _Atomic uint32_t *tokens,
                          uint32_t most)
{
    uint32_t n = 0, end = e->head.tokens < most ? e->head.tokens : most;
    while (n < end && e->tables[n] == atomic_load_explicit(&tokens[n], memory_order_relaxed))
        n++;
    return n;
}

bool index_find(struct prefix_index *x, const _Atomic uint32_t *tokens, uint32_t most,
                uint64_t preset, bool recurrent, struct index_found *found)
{
    *found = (struct index_found){.use = {.rows = 0}};
    lock(x);
    for (uint32_t i = 0; i < x->count; i++) {
        const struct index_entry *e = &x->entry[i];
        if (!e->ours || e->head.bond.preset != preset)
            continue;
        uint32_t common = common_of(e, tokens, most);
        struct prefix_use use =
            prefix_use(&e->head, prefix_positions(&e->head, e->tables), common, recurrent);
        if (use.rows > found->use.rows) {
            found->entry = *e;
            found->use = use;
        }
        found->common = common > found->common ? common : found->common;
    }
    unlock(x);
    found->entry.tables = NULL;
    return found->use.rows > 0;
}

uint32_t index_stored(struct prefix_index *x, const _Atomic uint32_t *tokens, uint32_t count,
                      uint64_t preset)
{
    uint32_t stored = 0;
    lock(x);
    for (uint32_t i = 0; i < x->count; i++) {
        const struct index_entry *e = &x->entry[i];
        if (!e->ours || e->head.bond.preset != preset)
            continue;
        uint32_t common = common_of(e, tokens, count);
        if ((common == count || common == e->head.tokens) && common > stored)
            stored = common;
    }
    unlock(x);
    return stored;
}

/* ---- the bound ---- */

static int by_use(const void *a, const void *b)
{
    const struct index_entry *const *l = a, *const *r = b;
    return (*l)->used_ns < (*r)->used_ns ? -1 : (*l)->used_ns > (*r)->used_ns;
}

/* The entry of the least value per byte, by the measure of slots (lib/policy/reuse). One that
 * cannot be read is worth nothing. */
static uint32_t least(struct prefix_index *x)
{
    const struct index_entry *order[INDEX_FILES_MAX];
    struct reuse_table t = {.slots = x->count, .slot = x->value};
    for (uint32_t i = 0; i < x->count; i++)
        order[i] = &x->entry[i];
    qsort(order, x->count, sizeof order[0], by_use);
    for (uint32_t i = 0; i < x->count; i++) {
        const struct index_entry *e = order[i];
        x->value[i] = (struct reuse_slot){.use = REUSE_KEPT,
                                          .rows = e->known ? e->head.tokens : 1,
                                          .used = i + 1,
                                          .uses = e->known ? e->head.uses : 0,
                                          .cost_ns = e->known ? e->head.cost_ns : 0,
                                          .bytes = e->bytes};
    }
    struct reuse_victim v = reuse_least_dense(&t, REUSE_NONE, false);
    return v.slot == REUSE_NONE ? INDEX_FILES_MAX : (uint32_t)(order[v.slot] - x->entry);
}

uint64_t index_bytes(struct prefix_index *x, uint32_t *files)
{
    uint64_t bytes = 0;
    lock(x);
    for (uint32_t i = 0; i < x->count; i++)
        bytes += x->entry[i].bytes;
    *files = x->count;
    unlock(x);
    return bytes;
}

bool index_list(struct prefix_index *x, uint32_t at, struct prefix_listed *listed)
{
    bool found = false;
    lock(x);
    for (uint32_t i = 0; i < x->count && !found; i++) {
        const struct index_entry *e = &x->entry[i];
        found = e->ours && at-- == 0;
        if (found)
            *listed = (struct prefix_listed){.tokens = e->head.tokens,
                                             .uses = e->head.uses,
                                             .bytes = e->bytes,
                                             .used_ns = e->used_ns};
    }
    unlock(x);
    return found;
}

/* No more than half of what would be free without it. */
static uint64_t allowed(const struct prefix_index *x, uint64_t have)
{
    struct statfs fs;
    if (fstatfs(x->dir, &fs) != 0)
        return x->limit_bytes;
    uint64_t half = (have + (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize) / 2;
    return half < x->limit_bytes ? half : x->limit_bytes;
}

/* False: there is none. */
static bool find_least(struct prefix_index *x, char name[PREFIX_NAME_BYTES])
{
    lock(x);
    uint32_t i = least(x);
    bool found = i < x->count;
    if (found)
        memcpy(name, x->entry[i].name, PREFIX_NAME_BYTES);
    unlock(x);
    return found;
}

static uint64_t tokens_of(struct prefix_index *x)
{
    lock(x);
    uint64_t tokens = x->tokens;
    unlock(x);
    return tokens;
}

int index_make_room(struct prefix_index *x, uint64_t bytes, uint32_t tokens)
{
    char name[PREFIX_NAME_BYTES];
    uint32_t files;
    uint64_t have = index_bytes(x, &files), most = allowed(x, have);
    if (bytes > most || tokens > INDEX_TOKENS_MAX)
        return bytes > x->limit_bytes || tokens > INDEX_TOKENS_MAX ? EFBIG : ENOSPC;
    while (have + bytes > most || files == INDEX_FILES_MAX ||
           tokens_of(x) + tokens > INDEX_TOKENS_MAX) {
        if (!find_least(x, name))
            return ENOSPC;
        if (unlinkat(x->dir, name, 0) != 0 && errno != ENOENT)
            return errno;
        index_forget(x, name);
        have = index_bytes(x, &files);
    }
    return 0;
}

/* ---- changes ---- */

/* Whether `e` gives nothing that a file of `head` does not: the same tokens and states. */
static bool includes(const struct prefix_head *head, void *tables, const struct index_entry *e)
{
    const uint32_t *tokens = prefix_tokens(head, tables), *have = prefix_positions(head, tables);
    if (!e->ours || !prefix_same_bond(&e->head.bond, &head->bond) ||
        e->head.tokens > head->tokens ||
        memcmp(e->tables, tokens, e->head.tokens * sizeof *tokens) != 0)
        return false;
    const uint32_t *wants = prefix_positions(&e->head, e->tables);
    for (uint32_t i = 0, j = 0; i < e->head.states; i++) {
        while (j < head->states && have[j] < wants[i])
            j++;
        if (j == head->states || have[j] != wants[i])
            return false;
    }
    return true;
}

static bool find_included(struct prefix_index *x, const char *name, const struct prefix_head *head,
                          void *tables, char victim[PREFIX_NAME_BYTES])
{
    bool found = false;
    lock(x);
    for (uint32_t i = 0; i < x->count && !found; i++) {
        found = strcmp(x->entry[i].name, name) != 0 && includes(head, tables, &x->entry[i]);
        if (found)
            memcpy(victim, x->entry[i].name, PREFIX_NAME_BYTES);
    }
    unlock(x);
    return found;
}

static int64_t real_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * (int64_t)NS_PER_S + now.tv_nsec;
}

void index_add(struct prefix_index *x, const char *name, const struct prefix_head *head,
               void *tables)
{
    char victim[PREFIX_NAME_BYTES];
    while (find_included(x, name, head, tables, victim))
        if (remove_file(x, victim) == 0)
            index_forget(x, victim);
        else
            spoil(x, victim);
    struct index_entry e = {.bytes = prefix_file_bytes(head),
                            .used_ns = real_time_ns(),
                            .known = true,
                            .ours = true,
                            .head = *head,
                            .tables = tables};
    strcpy(e.name, name);
    lock(x);
    put(x, &e);
    unlock(x);
}

void index_used(struct prefix_index *x, const char *name)
{
    lock(x);
    uint32_t i = find_name(x, name);
    if (i < x->count) {
        x->entry[i].used_ns = real_time_ns();
        x->entry[i].head.uses++;
    }
    unlock(x);
    utimensat(x->dir, name, NULL,
              AT_SYMLINK_NOFOLLOW); /* only the order of removal depends on it */
}

void index_forget(struct prefix_index *x, const char *name)
{
    lock(x);
    uint32_t i = find_name(x, name);
    if (i < x->count)
        drop(x, i);
    unlock(x);
}

void index_reject(struct prefix_index *x, const char *name, const char *why)
{
    reject(x, name, why);
    if (x->lock >= 0 && remove_file(x, name) == 0)
        index_forget(x, name);
    else
        spoil(x, name);
}

void index_fail(struct prefix_index *x, const char *name, const char *why)
{
    atomic_fetch_add(&x->counts.errors, 1);
    log_warn("prefix file %s is not used: %s", name, why);
    spoil(x, name);
}

/* ---- removal of all ---- */

void index_clear_begin(struct prefix_index *x)
{
    drop_all(x);
    int fd = openat(x->dir, CLEAR_FILE, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    if (fd < 0 || fsync(x->dir) != 0)
        atomic_fetch_add(&x->counts.errors, 1);
}

static bool is_ours(const char *name)
{
    return prefix_is_name(name) || is_part(name);
}

/* A file that is being written is the writer's. */
void index_clear(struct prefix_index *x)
{
    drop_all(x);
    if (remove_files(x, x->lock >= 0 ? is_ours : prefix_is_name) && fsync(x->dir) == 0)
        remove_file(x, CLEAR_FILE);
}
