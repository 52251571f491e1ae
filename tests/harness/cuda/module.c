/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the kernels as host code a module that compute opens (cuda_fake). */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/cuda/cuda.h"
#include "tests/harness/cuda/memory.h"

/* While there is a file FAILS next to the module, the GPUs fail, or that whose number is in it;
 * BUSY: others have its memory; PROMPT: what a query asks for has happened. */
#define FAILS  "fails"
#define BUSY   "busy"
#define PROMPT "prompt"

static char fails[4096], busy[4096], prompt[4096];

/* The file with that name next to the module. */
static const char *next_to(char *path, const char *module, const char *name)
{
    snprintf(path, sizeof fails, "%s", module);
    char *slash = strrchr(path, '/');
    char *end = slash ? slash + 1 : path;
    snprintf(end, sizeof fails - (size_t)(end - path), "%s", name);
    return path;
}

__attribute__((constructor)) static void begin(void)
{
    Dl_info info;
    if (dladdr((const void *)fails, &info) == 0 ||
        strlen(info.dli_fname) + sizeof PROMPT > sizeof fails)
        return;
    fake_fail_if(next_to(fails, info.dli_fname, FAILS));
    fake_busy_if(next_to(busy, info.dli_fname, BUSY));
    fake_prompt_if(next_to(prompt, info.dli_fname, PROMPT));
}

void log_panic(const char *file, int line, const char *function, const char *format, ...)
{
    (void)format;
    fprintf(stderr, "cuda_fake: %s:%d: %s: an assertion failed\n", file, line, function);
    abort();
}
