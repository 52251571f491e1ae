/* SPDX-License-Identifier: Apache-2.0 */
/* CPU time of another process. /proc counts ticks of 10 ms: too coarse for a tenth of a second. */
#ifndef SLUICE_CLIENTS_COMMON_CPU_TIME_H
#define SLUICE_CLIENTS_COMMON_CPU_TIME_H

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "lib/base/clock.h"

/* Of all threads of a process, in programs and in the kernel. 0: it has ended. */
static inline uint64_t cpu_time_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

#endif
