/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes the size, the start and 32 samples of a large file. */
#include "lib/file/sample_hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/bytes.h"
#include "lib/file/skeleton.h"

#define HEAD    MIB
#define SAMPLE  (64 * KIB)
#define SAMPLES (SAMPLE_HASH_RANGES - 1)

struct sample_hash {
    XXH3_state_t *state;
    char buffer[SAMPLE];
};

struct sample_hash *sample_hash_start(void)
{
    struct sample_hash *h = malloc(sizeof *h);
    if (!h)
        return NULL;
    h->state = XXH3_createState();
    if (!h->state) {
        free(h);
        return NULL;
    }
    XXH3_128bits_reset(h->state);
    return h;
}

bool sample_hash_range(uint64_t size, uint32_t number, uint64_t *at, uint64_t *bytes)
{
    uint64_t head = size < HEAD ? size : HEAD;
    *at = number == 0 ? 0 : (size - SAMPLE) / SAMPLES * number;
    *bytes = number == 0 ? head : SAMPLE;
    return number == 0 || (size > head && number <= SAMPLES);
}

void sample_hash_size(struct sample_hash *h, uint64_t size)
{
    XXH3_128bits_update(h->state, &size, sizeof size);
}

void sample_hash_bytes(struct sample_hash *h, const void *bytes, uint64_t count)
{
    XXH3_128bits_update(h->state, bytes, count);
}

static int add_range(struct sample_hash *h, int fd, uint64_t at, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t want = bytes < SAMPLE ? bytes : SAMPLE;
        ssize_t n = pread(fd, h->buffer, want, (off_t)at);
        if (n <= 0)
            return n < 0 ? errno : ENODATA;
        if (at == 0)
            skeleton_restore(h->buffer, (size_t)n);
        sample_hash_bytes(h, h->buffer, (uint64_t)n);
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

int sample_hash_add(struct sample_hash *h, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return errno;
    uint64_t size = (uint64_t)st.st_size, at, bytes;
    int why = 0;
    sample_hash_size(h, size);
    for (uint32_t i = 0; why == 0 && sample_hash_range(size, i, &at, &bytes); i++)
        why = add_range(h, fd, at, bytes);
    return why;
}

void sample_hash_result(const struct sample_hash *h, uint8_t hash[SAMPLE_HASH_BYTES])
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(h->state));
    memcpy(hash, canonical.digest, SAMPLE_HASH_BYTES);
}

void sample_hash_free(struct sample_hash *h)
{
    if (h)
        XXH3_freeState(h->state);
    free(h);
}
