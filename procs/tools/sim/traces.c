/* SPDX-License-Identifier: Apache-2.0 */
/* The traces that are replayed: one as it was recorded, or the sequences of several together. */
#include <stdlib.h>
#include <string.h>

#include "lib/sim/options.h"
#include "lib/sim/replay/together.h"
#include "procs/tools/sim/sim_program.h"

#define GAP_MS_MAX 3600000 /* as that of the engine */

int traces_parallel(struct traces *t, const char *list, struct error *error)
{
    char item[ITEM_BYTES];
    t->parallels = 0;
    while (value_next(&list, item)) {
        double n = 0;
        if (t->parallels == PARALLEL_MAX)
            return error_set(error, ERR_BAD_INPUT, "--parallel: more than %d numbers",
                             PARALLEL_MAX);
        if (sim_option_number("parallel", item, 1, SEQUENCES_MAX, &n, error) != 0)
            return -1;
        t->parallel[t->parallels++] = (uint32_t)n;
    }
    return t->parallels > 0 ? 0
                            : error_set(error, ERR_BAD_INPUT, "--parallel: no number of sequences");
}

int traces_gap(struct traces *t, const char *text, struct error *error)
{
    double ms = 0;
    if (sim_option_number("max-token-gap", text, 0, GAP_MS_MAX, &ms, error) != 0)
        return -1;
    t->limited = true;
    t->gap_ns = (uint64_t)(ms * 1e6);
    return 0;
}

static uint32_t most(const struct traces *t)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < t->parallels; i++)
        most = t->parallel[i] > most ? t->parallel[i] : most;
    return most;
}

int traces_together(const struct traces *t, uint32_t parallel, const struct sim_compute *compute,
                    struct trace *out, struct error *error)
{
    const struct trace_header header = out->header;
    const struct together_limit limit = {.gap_ns = t->gap_ns, .compute = *compute};
    trace_free(out);
    if (together_trace(t->together, parallel, t->limited ? &limit : NULL, out, error) != 0)
        return -1;
    out->header = header;
    return 0;
}

static int read_files(struct traces *t, struct error *error)
{
    struct trace_import how;
    if (t->import && import_settings(t->import, &how, error) != 0)
        return -1;
    for (uint32_t i = 0; i < t->count; i++) {
        struct trace *to = &t->trace[i];
        if (t->path[i] && (t->import ? trace_import_file(t->path[i], &how, to, error)
                                     : trace_read(t->path[i], to, error)) != 0)
            return -1;
    }
    return 0;
}

int traces_read(struct traces *t, struct trace *out, struct error *error)
{
    if (read_files(t, error) != 0)
        return -1;
    if (t->count == 1 && t->parallels == 0) {
        *out = t->trace[0];
        t->trace[0] = (struct trace){.records = NULL};
        return 0;
    }
    t->together = together_create(t->trace, t->count, most(t), error);
    if (!t->together)
        return -1;
    return together_trace(t->together, t->parallels > 0 ? t->parallel[0] : 1, NULL, out, error);
}

int traces_contenders(const struct traces *t, struct grid *g, struct error *error)
{
    uint32_t each = g->contenders;
    g->together = t->parallels > 0;
    if (each * t->parallels > LABELS_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "--parallel: %u presets with %u numbers of sequences are more than %d",
                         each, t->parallels, LABELS_MAX);
    for (uint32_t n = t->parallels; n > 0; n--)
        for (uint32_t i = 0; i < each; i++) {
            struct contender *to = &g->contender[(n - 1) * each + i];
            *to = g->contender[i];
            to->parallel = t->parallel[n - 1];
        }
    g->contenders = t->parallels > 0 ? each * t->parallels : each;
    return 0;
}

uint32_t traces_longest_list(const struct trace *t)
{
    uint32_t longest = 0, length = 0;
    for (uint64_t i = 0; i < t->count; i++) {
        const struct trace_record *r = &t->records[i], *before = i > 0 ? r - 1 : r;
        bool goes_on = r->sequence == before->sequence && r->position == before->position &&
                       r->layer == before->layer && before->kind == TRACE_PREDICTED;
        if (r->kind != TRACE_PREDICTED || r->prefill)
            length = 0;
        else
            length = goes_on ? length + 1 : 1;
        longest = length > longest ? length : longest;
    }
    return longest;
}

void traces_free(struct traces *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        trace_free(&t->trace[i]);
    together_destroy(t->together);
}
