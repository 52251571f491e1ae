/* How long a thread computes before another one's turn comes. */
#ifndef SLUICE_BASE_TIMESLICE_H
#define SLUICE_BASE_TIMESLICE_H

#include <stdint.h>

#define TIMESLICE_SHORT_NS 100000u /* the least that the kernel gives */

/* Gives the calling thread turns of `ns`, 0: the usual ones; threads it makes have the same. A
 * thread with short turns interrupts one with long ones when it is woken (EEVDF, Linux 6.12).
 * Without effect on older kernels, and on a thread that is not scheduled in the usual way. */
void timeslice_set(uint64_t ns);

#endif
