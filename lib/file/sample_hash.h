/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies large files without reading all of them: XXH3-128 of the size, the first MiB and 32
 * samples of 64 KiB of each file, in order. Equal files have equal hashes; a file that changed
 * between the samples is not noticed. */
#ifndef SLUICE_FILE_SAMPLE_HASH_H
#define SLUICE_FILE_SAMPLE_HASH_H

#include <stdbool.h>
#include <stdint.h>

#define SAMPLE_HASH_BYTES 16

struct sample_hash;

/* NULL: out of memory. */
struct sample_hash *sample_hash_start(void);

/* What of a file of `size` bytes is hashed, in order: its start, then the samples. False: there are
 * fewer such ranges. */
#define SAMPLE_HASH_RANGES 33
bool sample_hash_range(uint64_t size, uint32_t number, uint64_t *at, uint64_t *bytes);

/* Adds an open regular file; a skeleton (skeleton.h) as the file that it is one of. 0, or an errno
 * of fstat or pread; ENODATA: it ends before its size. */
int sample_hash_add(struct sample_hash *h, int fd);

/* The same for a file that is not open here: first its size, then the bytes of its ranges in
 * order. */
void sample_hash_size(struct sample_hash *h, uint64_t size);
void sample_hash_bytes(struct sample_hash *h, const void *bytes, uint64_t count);

/* The hash of the files that were added, big-endian. */
void sample_hash_result(const struct sample_hash *h, uint8_t hash[SAMPLE_HASH_BYTES]);

void sample_hash_free(struct sample_hash *h); /* NULL: nothing */

#endif
