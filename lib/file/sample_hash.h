/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies large files without reading all of them: XXH3-128 of the size, the first MiB and 32
 * samples of 64 KiB of each file, in order. Equal files have equal hashes; a file that changed
 * between the samples is not noticed. */
#ifndef SLUICE_FILE_SAMPLE_HASH_H
#define SLUICE_FILE_SAMPLE_HASH_H

#include <stdint.h>

#define SAMPLE_HASH_BYTES 16

struct sample_hash;

/* NULL: out of memory. */
struct sample_hash *sample_hash_start(void);

/* Adds an open regular file. 0, or an errno of fstat or pread; ENODATA: it ends before its size. */
int sample_hash_add(struct sample_hash *h, int fd);

/* The hash of the files that were added, big-endian. */
void sample_hash_result(const struct sample_hash *h, uint8_t hash[SAMPLE_HASH_BYTES]);

void sample_hash_free(struct sample_hash *h); /* NULL: nothing */

#endif
