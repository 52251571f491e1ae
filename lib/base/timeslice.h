/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduler time slice of a thread. */
#ifndef SLUICE_BASE_TIMESLICE_H
#define SLUICE_BASE_TIMESLICE_H

#include <stdint.h>

#define TIMESLICE_SHORT_NS 100000u /* minimum that the kernel accepts */

/* Sets the time slice of the calling thread, in ns; 0: default. Threads it creates inherit the
 * slice. A waking thread with a short slice preempts one with a long slice (EEVDF, Linux 6.12). No
 * effect on older kernels, or unless the policy is SCHED_OTHER. */
void timeslice_set(uint64_t ns);

#endif
