/* sluice eval --offline: a model in this process instead of an engine, so that lossy systems are
 * judged without depending on time. */
#ifndef SLUICE_EVAL_IN_PROCESS_H
#define SLUICE_EVAL_IN_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/params.h"
#include "lib/base/error.h"

#define IN_PROCESS_TEXTS_MAX 64

struct in_process {
    const char *model_path;
    const char *text_path[IN_PROCESS_TEXTS_MAX];
    size_t texts;
    const struct params *params; /* system, plan, knobs, experts, threads */
    uint32_t window;
    int64_t windows_max; /* 0: all */
    bool compare;        /* KLD and agreement as well */
    bool json;
};

/* Evaluates and prints. 0, or -1 with *error. */
int in_process_eval(const struct in_process *e, struct error *error);

#endif
