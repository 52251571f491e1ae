/* SPDX-License-Identifier: Apache-2.0 */
/* Removes what tune recorded for a model, and the stores that no tuning uses any more. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/tunings/tunings.h"
#include "procs/tools/models/models.h"

static const char *const cache_files[] = {"tuning-*",    "plan-*",    "profile-*",   "job-*",
                                          "store-*.new", "tune.lock", "stages.lock", NULL};

struct removing {
    const char *directory;
    uint64_t bytes;
    unsigned failed;
};

static bool listed(const char *name, const char *const patterns[])
{
    for (size_t i = 0; patterns[i]; i++)
        if (fnmatch(patterns[i], name, 0) == 0)
            return true;
    return false;
}

static void remove_files(struct removing *r, const char *path, const char *const patterns[])
{
    struct stat st;
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        if (!listed(e->d_name, patterns) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || S_ISDIR(st.st_mode))
            continue;
        if (unlinkat(dirfd(dir), e->d_name, 0) == 0)
            r->bytes += (uint64_t)st.st_size;
        else
            r->failed++;
    }
    if (dir)
        closedir(dir);
    rmdir(path); /* unless it has other files */
}

static void remove_store(struct removing *r, const char *path)
{
    uint64_t bytes;
    if (tunings_store_drop(r->directory, path, &bytes) != 0)
        r->failed++;
    r->bytes += bytes;
}

static void remove_noted(void *arg, const struct tuning_store *s)
{
    remove_store(arg, s->path);
}

/* A record without a note of its store. */
static void remove_recorded(void *arg, const char *path, const struct tuning *t)
{
    (void)path;
    if (t->store[0])
        remove_store(arg, t->store);
}

static bool is_hash(const char *text)
{
    return strlen(text) == (size_t)2 * TUNINGS_HASH_BYTES &&
           text[strspn(text, "0123456789abcdef")] == 0;
}

static int find_hash(const char *model, uint8_t hash[TUNINGS_HASH_BYTES], struct error *error)
{
    if (access(model, F_OK) == 0 || !is_hash(model))
        return tunings_hash(model, hash, error);
    for (size_t i = 0; i < TUNINGS_HASH_BYTES; i++) {
        unsigned byte = 0;
        sscanf(model + 2 * i, "%2x", &byte);
        hash[i] = (uint8_t)byte;
    }
    return 0;
}

int models_remove(const char *model, uint64_t *bytes, struct error *error)
{
    uint8_t hash[TUNINGS_HASH_BYTES];
    char path[PATH_MAX], file[PATH_MAX + 16];
    struct tunings_lock lock;
    if (find_hash(model, hash, error) != 0 || tunings_directory(hash, path, error) != 0)
        return -1;
    snprintf(file, sizeof file, "%s/tune.lock", path);
    if (access(file, F_OK) != 0) {
        rmdir(path);
        return error_set(error, ERR_NOT_FOUND, "no tuning of %.200s", model);
    }
    if (tunings_lock(path, NULL, &lock, error) != 0)
        return -1;
    struct removing r = {.directory = path};
    tunings_stores(path, remove_noted, &r);
    tunings_of(path, remove_recorded, &r, NULL, NULL);
    if (r.failed == 0)
        remove_files(&r, path, cache_files); /* else they are listed, and found by the next try */
    tunings_unlock(&lock);
    *bytes = r.bytes;
    if (r.failed > 0)
        return error_set(error, ERR_IO, "%u stores or files could not be removed", r.failed);
    return 0;
}
