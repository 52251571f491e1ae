/* SPDX-License-Identifier: Apache-2.0 */
/* Between memory.c and streams.c. */
#ifndef SLUICE_TESTS_HARNESS_CUDA_STREAMS_H
#define SLUICE_TESTS_HARNESS_CUDA_STREAMS_H

#include <stdbool.h>
#include <stddef.h>

bool fake_on_device(const void *p, size_t bytes); /* within one allocation of the selected GPU */
int fake_selected(void);
void fake_show(int number); /* its memory can be used, that of the others faults */
bool fake_pinned(const void *p, size_t bytes);
bool fake_prompt(void); /* copies are fast: what a query asks for has happened */
int fake_lost(void);    /* the status of waits while the GPU is lost; 0: it is not */
void fake_run_all(void);
/* While a stream records a graph: the status of a call that is not legal then. */
int fake_unless_recording(const char *what);

#endif
