/* SPDX-License-Identifier: Apache-2.0 */
/* The hash of a model file: header and samples. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/tunings/tunings.h"

#define HEAD    MIB
#define SAMPLE  (64 * KIB)
#define SAMPLES 32
#define PARTS   65535u

static int add_range(XXH3_state_t *state, int fd, uint64_t at, uint64_t bytes, char *buffer)
{
    while (bytes > 0) {
        uint64_t want = bytes < SAMPLE ? bytes : SAMPLE;
        ssize_t n = pread(fd, buffer, want, (off_t)at);
        if (n <= 0)
            return n < 0 ? errno : EIO;
        XXH3_128bits_update(state, buffer, (size_t)n);
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int add_samples(XXH3_state_t *state, int fd, uint64_t size, char *buffer)
{
    uint64_t head = size < HEAD ? size : HEAD;
    XXH3_128bits_update(state, &size, sizeof size);
    int why = add_range(state, fd, 0, head, buffer);
    for (uint64_t i = 1; why == 0 && size > head && i <= SAMPLES; i++) {
        uint64_t sample = size < SAMPLE ? size : SAMPLE;
        why = add_range(state, fd, (size - sample) / SAMPLES * i, sample, buffer);
    }
    return why;
}

static int add_file(XXH3_state_t *state, const char *path, char *buffer, struct error *error)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        return error_set_errno(error, ERR_BAD_INPUT, why, "cannot open model %.200s", path);
    }
    int why = S_ISREG(st.st_mode) ? add_samples(state, fd, (uint64_t)st.st_size, buffer) : EINVAL;
    close(fd);
    if (why == EINVAL)
        return error_set(error, ERR_BAD_INPUT, "%.200s is not a model file", path);
    return why == 0 ? 0 : error_set_errno(error, ERR_IO, why, "cannot read %.200s", path);
}

/* Parts of NAME-00002-of-00003.gguf: 3, and where the number is. Other names: 1. */
static unsigned parts_of(const char *path, size_t *number)
{
    unsigned n, of;
    char rest;
    size_t length = strlen(path), tail = strlen("-00001-of-00001.gguf");
    if (length <= tail || sscanf(path + length - tail, "-%5u-of-%5u.ggu%c", &n, &of, &rest) != 3 ||
        rest != 'f' || of == 0 || of > PARTS)
        return 1;
    *number = length - tail + 1;
    return of;
}

int tunings_hash(const char *path, uint8_t hash[TUNINGS_HASH_BYTES], struct error *error)
{
    char part[PATH_MAX], digits[16];
    size_t at = 0;
    if (strlen(path) >= sizeof part)
        return error_set(error, ERR_BAD_INPUT, "the model's path is too long");
    strcpy(part, path);
    unsigned parts = parts_of(path, &at);
    char *buffer = malloc(SAMPLE);
    XXH3_state_t *state = XXH3_createState();
    int status = buffer && state ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (hash)");
    if (status == 0)
        XXH3_128bits_reset(state);
    for (unsigned i = 1; status == 0 && i <= parts; i++) {
        snprintf(digits, sizeof digits, "%05u", i);
        if (parts > 1)
            memcpy(part + at, digits, 5);
        status = add_file(state, part, buffer, error);
    }
    if (status == 0) {
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
        memcpy(hash, canonical.digest, TUNINGS_HASH_BYTES);
    }
    XXH3_freeState(state);
    free(buffer);
    return status;
}
