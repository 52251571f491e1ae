/* SPDX-License-Identifier: Apache-2.0 */
/* sluice eval --offline and --read-bandwidth: evaluates lossy presets in this process instead of an
 * engine, so that results do not depend on timing. */
#ifndef SLUICE_CLIENTS_EVAL_IN_PROCESS_H
#define SLUICE_CLIENTS_EVAL_IN_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/params.h"
#include "lib/base/error.h"
#include "lib/tensor/kv_type.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/quant_method.h"

#define IN_PROCESS_TEXTS_MAX      64
#define IN_PROCESS_WINDOW_DEFAULT 512 /* tokens */

#define EVAL_OUTPUTS "text|json|csv|md"
enum eval_output { EVAL_TEXT, EVAL_JSON, EVAL_CSV, EVAL_MD };

struct in_process {
    const char *model_path;
    const char *text_path[IN_PROCESS_TEXTS_MAX];
    size_t texts;
    const struct params *params; /* preset, plan, policy, resident_experts, threads */
    uint32_t window;
    int64_t windows_max;   /* of each text; 0: all */
    uint64_t memory;       /* maximum; 0: as the budget, or the default */
    int64_t cloze;         /* items of a cloze task; 0: none */
    bool compare;          /* also KL divergence and top-1 agreement */
    double read_bandwidth; /* bytes/s: token by token with a simulated clock; 0: worst case */
    const char *against, *record, *npy; /* logits files; NULL: none */
    enum quant_method method;           /* of precisions other than native */
    enum precision dense;               /* of dense weights, if dense_given; else as planned */
    bool dense_given;
    enum kv_type reference_kv_type; /* of the lossless model that is compared with */
    enum eval_output output;
};

/* Of one of the texts; NaN: not measured. */
struct outcome_text {
    const char *path;
    uint64_t tokens;
    double loss, kld_mean, top1_same;
};

/* Result of an evaluation; its numbers are the rows of outcome.tbl.h. */
struct outcome {
    const char *preset;
    const struct outcome_text *text; /* [texts] those with windows; in json */
    size_t texts;
#define OUTCOME_REAL(name, doc)  double name;
#define OUTCOME_COUNT(name, doc) uint64_t name;
#include "procs/clients/eval/outcome.tbl.h"
    const char *note; /* one line about the preset's decisions; "": none */
};
void outcome_print(const struct outcome *o, enum eval_output output);

/* Evaluates and prints. 0, or -1 with *error. */
int in_process_eval(const struct in_process *e, struct error *error);

#endif
