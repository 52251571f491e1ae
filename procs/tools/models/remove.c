/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/tunings/tunings.h"
#include "procs/tools/models/models.h"

#define STORE_NAME                                                                                 \
    "*.tuned-????????????????" /* other directories are not removed, whatever is in a record */

static const char *const store_files[] = {"manifest.json", "model.gguf",   "entries.bin",
                                          "experts.*.bin", "pack.journal", NULL};
static const char *const cache_files[] = {"tuning-*", "plan-*",    "profile-*",
                                          "job-*",    "tune.lock", NULL};

struct removing {
    const char *hash;
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

static void remove_store(void *arg, const char *hash, const char *path, const struct tuning *t)
{
    struct removing *r = arg;
    (void)path;
    const char *name = strrchr(t->store, '/');
    if (strcmp(hash, r->hash) == 0 && name && fnmatch(STORE_NAME, name + 1, 0) == 0)
        remove_files(r, t->store, store_files);
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
    char path[PATH_MAX], lock[PATH_MAX + 16];
    if (find_hash(model, hash, error) != 0 || tunings_directory(hash, path, error) != 0)
        return -1;
    snprintf(lock, sizeof lock, "%s/tune.lock", path);
    int fd = open(lock, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        rmdir(path);
        return error_set(error, ERR_NOT_FOUND, "no tuning of %.200s", model);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return error_set(error, ERR_BUSY, "a tuning of this model is in progress");
    }
    struct removing r = {.hash = strrchr(path, '/') + 1};
    int status = tunings_each(remove_store, NULL, &r, error);
    if (status == 0)
        remove_files(&r, path, cache_files);
    close(fd);
    *bytes = r.bytes;
    if (status == 0 && r.failed > 0)
        return error_set(error, ERR_IO, "%u files could not be removed", r.failed);
    return status;
}
