/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the directory of prefix files, and checks who may write to it. */
#include "lib/prefix/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int check(int fd, const char *path, struct error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "--prefix-dir %.200s", path);
    if (st.st_uid != geteuid())
        return error_set(error, ERR_BAD_INPUT,
                         "--prefix-dir %.200s belongs to user %u, and this process has user %u; "
                         "give it a directory of its own",
                         path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return error_set(error, ERR_BAD_INPUT,
                         "others may write to --prefix-dir %.200s; remove that right (chmod 700)",
                         path);
    return 0;
}

int prefix_directory_open(const char *path, bool make, struct error *error)
{
    if (make && mkdir(path, 0700) != 0 && errno != EEXIST)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot make --prefix-dir %.200s",
                               path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open --prefix-dir %.200s",
                               path);
    if (check(fd, path, error) == 0)
        return fd;
    close(fd);
    return -1;
}
