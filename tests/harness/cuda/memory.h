/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of GPUs that are none, their copies and their streams. What CUDA leaves open is random, by
 * the seed of fibres_seed: what was submitted to a stream runs in its order, at some later call or
 * only at a wait, and streams overtake each other unless one waits for an event. An upload takes
 * the bytes when it is called, from pinned memory when it runs. In the default stream (NULL)
 * launches, uploads and fills run at once, which is legal, too.
 *
 * Each thread uses the GPU that it selected, first number 0. A call with a stream, an event or
 * memory of another one has status 400, and while a task of one GPU runs, memory of the others
 * faults.
 *
 * A graph (fake_capture_begin) is what was submitted to a stream, with the arguments of then;
 * nothing of it runs before it is launched, and each launch runs it in the order of the stream.
 * While a stream records, what CUDA does not allow is an error, also of the recording: waits,
 * events, allocations, the default stream, copies of memory that is not pinned.
 *
 * Errors, each status 1, some of them of the next wait: a copy or a fill that is not within one
 * allocation; a release of something else; a launch that failed. New memory has bytes 0xff. Shared
 * host memory may be tagged (tests/harness/tagged.h), so that a kernel which reads it faults:
 * copies remove the tag. */
#ifndef SLUICE_TESTS_HARNESS_CUDA_MEMORY_H
#define SLUICE_TESTS_HARNESS_CUDA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/harness/cuda/fibres.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_GPUS 2

int fake_select(int number);
int fake_allocate(size_t bytes, void **out);
int fake_release(void *memory);
int fake_upload(void *to, const void *from, size_t bytes, void *stream);
int fake_download(void *to, const void *from, size_t bytes, void *stream);
int fake_fill(void *to, int value, size_t bytes, void *stream);
/* As fibres_run, with a copy of `bytes` of arg. */
int fake_launch(struct fibre_index grid, struct fibre_index block, size_t shared_bytes,
                void (*thread)(const void *arg), const void *arg, size_t bytes, void *stream);
int fake_wait(void *stream);
int fake_host_allocate(size_t bytes, void **out);
int fake_host_release(void *memory);

/* A stream, or an event. */
int fake_make(void **out);
int fake_drop(void *thing);
int fake_record(void *event, void *stream);
int fake_stream_wait(void *stream, void *event);
int fake_event_wait(void *event);
int fake_event_done(void *event); /* 600: it has not happened. The next launch returns that, too */
int fake_last_error(void);        /* and forgets it */

int fake_capture_begin(void *stream);
int fake_capture_end(void *stream, void **graph);
int fake_graph_copy(const void *graph, void **out);
int fake_graph_launch(void *graph, void *stream);
int fake_graph_drop(void *graph);

int fake_memory(size_t *unused, size_t *total);
const char *fake_error_text(void); /* of the last launch that failed */

size_t fake_bytes(void);     /* allocated now, of all GPUs */
uint32_t fake_pending(void); /* what has not run */
struct fake_counts {
    uint64_t launches, graphs; /* of kernels, but those recorded; of graphs */
};
struct fake_counts fake_counts(void);
void fake_fail_if(
    const char
        *file); /* while the file exists, waits fail; with a number in it, those of that GPU */
void fake_busy_if(const char *file); /* while the file exists, others have all memory */
void fake_prompt_if(
    const char *file);   /* while the file exists, an event has happened when it is queried */
void fake_slow(bool on); /* a wait runs only what it waits for, and nothing else runs anything */
void fake_limit(
    size_t bytes); /* more than that cannot be allocated of the selected GPU; 0: no limit */

#ifdef __cplusplus
}
#endif

#endif
