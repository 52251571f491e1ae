/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes the file with the rates that were measured on this machine. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/file/replace.h"
#include "lib/rates/rates.h"
#include "lib/warm/warm.h"

#define NAME      "/rates.json"
#define TEMPORARY ".new." /* and the number of the process */
#define NUMBER    12

static int path_of(char path[PATH_MAX], struct error *error)
{
    if (warm_cache(path, PATH_MAX - sizeof NAME - sizeof TEMPORARY - NUMBER, error) != 0)
        return -1;
    memcpy(path + strlen(path), NAME, sizeof NAME);
    return 0;
}

int rates_read(struct rates *r, struct error *error)
{
    char path[PATH_MAX];
    struct error why;
    memset(r, 0, sizeof *r);
    if (path_of(path, error) != 0)
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return 0;
    char *text = fd >= 0 ? malloc(RATES_BYTES_MAX + 1) : NULL;
    ssize_t n = text ? read(fd, text, RATES_BYTES_MAX + 1) : -1;
    int number = errno;
    if (fd >= 0)
        close(fd);
    int status = 0;
    if (n < 0)
        status = error_set_errno(error, ERR_IO, number, "cannot read %.200s", path);
    else if (rates_parse(text, (size_t)n, r, &why) != 0)
        status = error_set(error, ERR_BAD_INPUT, "%.200s is ignored: %.120s", path, why.text);
    free(text);
    return status;
}

static int write_file(const char *path, const char *text)
{
    size_t n = strlen(text);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    ssize_t done = write(fd, text, n);
    int why = done == (ssize_t)n ? 0 : done < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && why == 0)
        why = errno;
    return why;
}

int rates_write(const struct rates *r, struct error *error)
{
    char path[PATH_MAX], temporary[PATH_MAX + sizeof TEMPORARY + NUMBER];
    if (path_of(path, error) != 0)
        return -1;
    char *text = rates_format(r, error);
    if (!text)
        return -1;
    snprintf(temporary, sizeof temporary, "%s" TEMPORARY "%d", path, (int)getpid());
    int why = write_file(temporary, text);
    free(text);
    if (why == 0)
        why = file_replace(temporary, path, true);
    if (why == 0)
        return 0;
    unlink(temporary);
    return error_set_errno(error, ERR_IO, why, "cannot write %.200s", path);
}
