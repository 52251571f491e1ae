/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: pidfd_open is forbidden, as in some containers. */
#include <errno.h>
#include <sys/pidfd.h>

int pidfd_open(pid_t pid, unsigned flags)
{
    (void)pid;
    (void)flags;
    errno = EPERM;
    return -1;
}
