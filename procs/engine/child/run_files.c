/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts the descriptor of a model file, and checks later whether the file changed in place. */
#include "procs/engine/child/run_files.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/model/index/model_index.h"

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static uint64_t links_mode_of(const struct stat *st)
{
    return (uint64_t)st->st_nlink << 32 | st->st_mode;
}

static uint64_t owner_of(const struct stat *st)
{
    return (uint64_t)st->st_uid << 32 | st->st_gid;
}

int run_file_accept(int fd, const char *path, const struct model_file_id *inspected,
                    struct directory_file *file, struct error *error)
{
    struct stat st;
    struct error why;
    if (fstat(fd, &st) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot stat %.250s", path);
    bool same = st.st_dev == inspected->dev && st.st_ino == inspected->ino;
    if (same && model_file_unchanged(fd, inspected, &why) != 0)
        return error_set(error, why.code, "%.250s: %.120s", path, why.text);
    if (!same && (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != inspected->bytes))
        return error_set(error, ERR_GONE,
                         "%.250s is neither the model file that was inspected nor a copy of it",
                         path);
    *file = (struct directory_file){.held = 1,
                                    .dev = st.st_dev,
                                    .ino = st.st_ino,
                                    .bytes = (uint64_t)st.st_size,
                                    .mtime_ns = ns_of(&st.st_mtim),
                                    .ctime_ns = ns_of(&st.st_ctim),
                                    .links_mode = links_mode_of(&st),
                                    .owner = owner_of(&st)};
    return 0;
}

static bool named_by(const char *path, const struct directory_file *file)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_dev == file->dev && st.st_ino == file->ino;
}

/* ctime first: a process that ends in between leaves old attributes, which only explain a later
 * ctime, too. */
static void take_over(struct directory_file *file, const struct stat *st)
{
    atomic_store(&file->ctime_ns, ns_of(&st->st_ctim));
    atomic_store(&file->links_mode, links_mode_of(st));
    atomic_store(&file->owner, owner_of(st));
}

enum run_file_state run_file_check(int fd, const char *path, struct directory_file *file)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_dev != file->dev || st.st_ino != file->ino ||
        (uint64_t)st.st_size != file->bytes || ns_of(&st.st_mtim) != file->mtime_ns)
        return RUN_FILE_CHANGED;
    if (ns_of(&st.st_ctim) == atomic_load(&file->ctime_ns))
        return RUN_FILE_SAME;
    bool named = named_by(path, file);
    bool harmless = !named || links_mode_of(&st) != atomic_load(&file->links_mode) ||
                    owner_of(&st) != atomic_load(&file->owner);
    if (!harmless)
        return RUN_FILE_CHANGED;
    take_over(file, &st);
    return named ? RUN_FILE_SAME : RUN_FILE_MOVED;
}
