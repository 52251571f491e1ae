/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels as host code need in addition to be a module that compute opens (cuda_fake). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/cuda/cuda.h"
#include "tests/harness/cuda/memory.h"

/* While there is a file FAILS next to the module, the GPU fails; BUSY: others have its memory. */
#define FAILS "fails"
#define BUSY  "busy"

static char fails[4096], busy[4096];

__attribute__((constructor)) static void begin(void)
{
    Dl_info info;
    if (dladdr((const void *)fails, &info) == 0 ||
        strlen(info.dli_fname) + sizeof FAILS > sizeof fails)
        return;
    strcpy(fails, info.dli_fname);
    char *slash = strrchr(fails, '/');
    strcpy(slash ? slash + 1 : fails, FAILS);
    fake_fail_if(fails);
    strcpy(busy, fails);
    slash = strrchr(busy, '/');
    strcpy(slash ? slash + 1 : busy, BUSY);
    fake_busy_if(busy);
}

void log_panic(const char *file, int line, const char *function, const char *format, ...)
{
    (void)format;
    fprintf(stderr, "cuda_fake: %s:%d: %s: an assertion failed\n", file, line, function);
    abort();
}
