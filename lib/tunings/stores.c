/* SPDX-License-Identifier: Apache-2.0 */
/* Notes of stores: store-HASH in the directory of a model, HASH of the path, with the path in it.
 * Untrusted when they are read: only directories whose name ends like a tuned store, and in them
 * only files of a store, are removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/file/replace.h"
#include "lib/tunings/tunings.h"

#define NOTE       "store-????????????????"
#define STORE_NAME "*.tuned-????????????????"
#define TEMPORARY  ".new"

static const char *const store_files[] = {"manifest.json", "manifest.json.*", "model.gguf",
                                          "model.gguf.*",  "entries.bin",     "entries.bin.*",
                                          "experts.*.bin", "pack.journal",    "pack.journal.*"};

static bool is_store_path(const char *path)
{
    const char *name = strrchr(path, '/');
    for (const char *c = path; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return false;
    return path[0] == '/' && fnmatch(STORE_NAME, name + 1, 0) == 0;
}

static bool is_store_file(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(store_files); i++)
        if (fnmatch(store_files[i], name, 0) == 0)
            return true;
    return false;
}

static int note_path(const char *directory, const char *store, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/store-%016llx", directory,
                     (unsigned long long)XXH3_64bits(store, strlen(store)));
    return n + (int)sizeof TEMPORARY < PATH_MAX ? 0 : -1;
}

int tunings_store_note(const char *directory, const char *store, struct error *error)
{
    char path[PATH_MAX], temporary[PATH_MAX + sizeof TEMPORARY];
    if (!is_store_path(store) || note_path(directory, store, path) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: too long, or a control character in the path of the store",
                         store);
    snprintf(temporary, sizeof temporary, "%s" TEMPORARY, path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int why = fd < 0 ? errno : 0;
    size_t bytes = strlen(store);
    ssize_t n = fd < 0 ? -1 : write(fd, store, bytes);
    if (why == 0 && n != (ssize_t)bytes)
        why = n < 0 ? errno : ENOSPC;
    if (fd >= 0 && close(fd) != 0 && why == 0)
        why = errno;
    if (why == 0)
        why = file_replace(temporary, path, true);
    if (why == 0)
        return 0;
    unlink(temporary);
    return error_set_errno(error, ERR_IO, why, "cannot write %.200s", path);
}

/* The path in a note; false: damaged. */
static bool read_note(const char *path, char store[PATH_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, store, PATH_MAX);
    if (fd >= 0)
        close(fd);
    if (n <= 0 || n >= PATH_MAX || memchr(store, 0, (size_t)n))
        return false;
    store[n] = 0;
    return is_store_path(store);
}

/* The files of a store: their number; *bytes of all. With `drop` they are removed, and then those
 * that are left counted. */
static size_t files_of(const char *store, bool drop, uint64_t *bytes)
{
    size_t left = 0;
    struct stat st;
    DIR *dir = opendir(store);
    *bytes = 0;
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (!is_store_file(e->d_name) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode))
            continue;
        if (!drop || unlinkat(dirfd(dir), e->d_name, 0) != 0)
            left++;
        if (!drop || faccessat(dirfd(dir), e->d_name, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
            *bytes += (uint64_t)st.st_size;
    }
    if (dir)
        closedir(dir);
    return left;
}

/* The device of a store that cannot be reached now may come back. */
static bool may_return(const char *store)
{
    return access(store, F_OK) != 0 && !tunings_is_gone(store);
}

int tunings_store_drop(const char *directory, const char *store, uint64_t *bytes)
{
    char path[PATH_MAX];
    *bytes = 0;
    if (!is_store_path(store))
        return 0;
    size_t left = files_of(store, true, bytes);
    rmdir(store); /* unless it has other files */
    if (left > 0 || may_return(store))
        return -1;
    return note_path(directory, store, path) == 0 && unlink(path) != 0 && errno != ENOENT ? -1 : 0;
}

/* ---- which are used ---- */

struct looking {
    const char *store;
    bool used;
};

static void note_use(void *arg, const char *path, const struct tuning *t)
{
    struct looking *l = arg;
    (void)path;
    l->used = l->used || strcmp(t->store, l->store) == 0;
}

static enum tuning_use use_of(const char *directory, const char *store)
{
    struct looking l = {.store = store};
    bool all = tunings_of(directory, note_use, &l, NULL, NULL);
    return l.used ? TUNING_STORE_USED : all ? TUNING_STORE_UNUSED : TUNING_STORE_UNKNOWN;
}

void tunings_stores(const char *directory, tunings_store_visit *visit, void *arg)
{
    struct dirent **names = NULL;
    char path[PATH_MAX], store[PATH_MAX];
    struct tuning_store s = {.hash = strrchr(directory, '/') + 1, .path = store};
    int count = scandir(directory, &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (fnmatch(NOTE, names[i]->d_name, 0) == 0 &&
            snprintf(path, sizeof path, "%s/%s", directory, names[i]->d_name) < (int)sizeof path &&
            read_note(path, store)) {
            s.files = files_of(store, false, &s.bytes);
            s.use = use_of(directory, store);
            visit(arg, &s);
        }
        free(names[i]);
    }
    if (count >= 0)
        free(names);
}

struct pruning {
    const char *directory, *keep;
    tunings_say *say;
    void *arg;
};

static void prune(void *arg, const struct tuning_store *s)
{
    const struct pruning *p = arg;
    char line[PATH_MAX + 100], size[16];
    uint64_t bytes;
    if (s->use == TUNING_STORE_USED || (p->keep && strcmp(p->keep, s->path) == 0))
        return;
    if (s->use == TUNING_STORE_UNKNOWN) {
        snprintf(line, sizeof line,
                 "store %s is kept: a tuning of this model, which may use it, cannot be read",
                 s->path);
        if (p->say)
            p->say(p->arg, line);
        return;
    }
    int status = tunings_store_drop(p->directory, s->path, &bytes);
    if (s->files == 0 || !p->say)
        return;
    snprintf(line, sizeof line, "%s store %s, which no tuning uses (%s)",
             status == 0 ? "removed" : "cannot remove all of", s->path, bytes_format(bytes, size));
    p->say(p->arg, line);
}

void tunings_prune(const char *directory, const char *keep, tunings_say *say, void *arg)
{
    struct pruning p = {.directory = directory, .keep = keep, .say = say, .arg = arg};
    tunings_stores(directory, prune, &p);
}
