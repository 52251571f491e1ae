/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises skeletons of models on servers. */
#include "lib/file/skeleton.h"

#include <unistd.h>

bool skeleton_is(int fd)
{
    char first[SKELETON_MAGIC_BYTES];
    ssize_t n = pread(fd, first, sizeof first, 0);
    return n == (ssize_t)sizeof first && skeleton_begins(first, sizeof first);
}

const char *skeleton_identity(const char *path)
{
    const char *last = NULL;
    for (const char *at = path; (at = strstr(at, SKELETON_DIRECTORY)); at++)
        last = at;
    return last && last - path >= SKELETON_IDENTITY_CHARS ? last - SKELETON_IDENTITY_CHARS : NULL;
}
