/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a GPU that is none, and its copies, in one stream. What a stream leaves open is random, by the seed of
 * fibres_seed: a download may run at once, at a later call or only at the wait; an upload takes the bytes when it is
 * called. Launches run at once (fibres.h), which is legal, too: those before have run.
 *
 * Errors, each status 1: a copy or a fill that is not within one allocation; a release of something else.
 * New memory has bytes 0xff. Shared host memory may be tagged (tests/harness/tagged.h), so that a kernel which reads
 * it faults: copies remove the tag. */
#ifndef SLUICE_TESTS_HARNESS_CUDA_MEMORY_H
#define SLUICE_TESTS_HARNESS_CUDA_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int fake_allocate(size_t bytes, void **out);
int fake_release(void *memory);
int fake_upload(void *to, const void *from, size_t bytes);
int fake_download(void *to, const void *from, size_t bytes);
int fake_fill(void *to, int value, size_t bytes);
int fake_wait(void);
int fake_memory(size_t *unused, size_t *total);
const char *fake_error_text(void); /* of the last launch that failed */

size_t fake_bytes(void);             /* allocated now */
uint32_t fake_pending(void);         /* downloads that have not run */
void fake_fail_if(const char *file); /* while the file exists, waits fail */
void fake_busy_if(const char *file); /* while the file exists, others have all memory */
void fake_limit(size_t bytes);       /* more than that cannot be allocated; 0: no limit */

#ifdef __cplusplus
}
#endif

#endif
