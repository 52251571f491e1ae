/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the time slice of the calling thread by sched_setattr. */
#include "lib/base/timeslice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct sched_attr of sched_setattr(2), first version; glibc 2.36 does not declare it. */
struct kernel_sched_attr {
    uint32_t bytes, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};
_Static_assert(sizeof(struct kernel_sched_attr) == 48, "layout of the kernel ABI");

void timeslice_set(uint64_t ns)
{
    struct kernel_sched_attr attr;
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0 || attr.policy != SCHED_OTHER)
        return;
    attr.runtime_ns = ns;
    (void)syscall(SYS_sched_setattr, 0, &attr, 0); /* when denied, the default slice stays */
}
