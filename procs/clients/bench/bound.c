/* SPDX-License-Identifier: Apache-2.0 */
/* The model's bytes and the machine's rates, for the bound of a pass. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/inspected/inspected.h"
#include "lib/tensor/kv_type.h"
#include "lib/tunings/tunings.h"
#include "procs/clients/bench/bench.h"

static uint32_t threads_of(const struct params *params)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return params->threads > 0 ? (uint32_t)params->threads : cpus > 0 ? (uint32_t)cpus : 1;
}

static bool find_machine(const struct model_index *m, const struct params *params,
                         struct rates_machine *out)
{
    static struct rates rates; /* too large for the stack */
    struct rates_cpu wanted = {.threads = threads_of(params)};
    struct error error;
    if (rates_read(&rates, &error) != 0)
        return false;
    tunings_cpu(wanted.name);
    rates_key(m, params->isa, wanted.type);
    const struct rates_cpu *found = rates_find_cpu(&rates, &wanted);
    if (found)
        *out = found->machine;
    return found && found->machine.memory > 0;
}

/* Half of a context of this size is the mean number of positions before a token of the test. */
static uint32_t context_of(const struct bench *b, const struct test *test)
{
    return (uint32_t)(2 * test->depth + b->tokens);
}

static int take_model(const struct bench *b, const struct model_index *m, const struct params *p,
                      const struct test *test, struct rates_model *out)
{
    struct error error;
    double *hits = calloc((size_t)m->hparams.experts + 1, sizeof *hits); /* of a GPU: none */
    enum kv_type type = kv_type_find(p->kv_type);                        /* a checked parameter */
    int rc = -1;
    if (hits)
        rc = rates_model(m, type, context_of(b, test), 0, hits, out, &error);
    free(hits);
    return rc;
}

bool bound_open(const struct bench *b, const struct variant *v, const struct test *test,
                struct bound *out)
{
    struct model_index *index = NULL;
    struct error error;
    int fd = model_open(b->model, 0, &error);
    if (fd < 0)
        return false;
    bool known = inspected_index(fd, b->model, &index, &error) == 0 &&
                 find_machine(index, &v->params, &out->machine) &&
                 take_model(b, index, &v->params, test, &out->model) == 0;
    close(fd);
    free(index);
    return known;
}

void bound_close(struct bound *bound)
{
    rates_model_free(&bound->model);
}
