/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program: a kernel with pages of 16 KiB. */
#include <dlfcn.h>
#include <unistd.h>

long sysconf(int name)
{
    static long (*next)(int);
    if (name == _SC_PAGESIZE)
        return 16384;
    if (!next)
        next = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return next(name);
}
