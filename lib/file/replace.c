/* SPDX-License-Identifier: Apache-2.0 */
/* Renames a written file to its name, and syncs the file and its directory. */
#include "lib/file/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int sync_path(const char *path, int flags)
{
    int fd = open(path, flags | O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int why = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return why;
}

static int sync_directory_of(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) + 1 : 1; /* with the slash: "/" is a directory */
    if (n >= (int)sizeof dir)
        return ENAMETOOLONG;
    snprintf(dir, sizeof dir, "%.*s", n, slash ? path : ".");
    int why = sync_path(dir, O_DIRECTORY);
    return why == EINVAL ? 0 : why; /* a file system without fsync of directories */
}

/* link(2) fails if the name exists; file systems without links get a check first. */
static int rename_to_new(const char *temporary, const char *path)
{
    if (link(temporary, path) == 0)
        return unlink(temporary) == 0 ? 0 : errno;
    if (errno == EEXIST)
        return EEXIST;
    if (access(path, F_OK) == 0)
        return EEXIST;
    return rename(temporary, path) == 0 ? 0 : errno;
}

int file_replace(const char *temporary, const char *path, bool overwrite)
{
    int why = sync_path(temporary, 0);
    if (why == 0 && overwrite)
        why = rename(temporary, path) == 0 ? 0 : errno;
    else if (why == 0)
        why = rename_to_new(temporary, path);
    return why == 0 ? sync_directory_of(path) : why;
}
