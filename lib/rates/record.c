/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the rates. The only parser of its bytes. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/json_file.h"
#include "lib/rates/rates.h"

#define FORMAT      "sluice-rates"
#define VERSION     1
#define RATE_MAX    1e15
#define NUMBER_MAX  65535
#define SECONDS_MAX 1.0

static int wrong(const char *name, struct error *error)
{
    return error_set(error, ERR_BAD_INPUT, "'%s' is missing or wrong", name);
}

/* ---- values ---- */

static int take_text(const json_t *o, const char *name, char *to, size_t size, struct error *error)
{
    const char *text = json_string_value(json_object_get(o, name));
    if (!text || strlen(text) >= size)
        return wrong(name, error);
    for (const char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            return wrong(name, error);
    memcpy(to, text, strlen(text) + 1);
    return 0;
}

static int take_integer(const json_t *o, const char *name, uint32_t *to, struct error *error)
{
    const json_t *value = json_object_get(o, name);
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || n > NUMBER_MAX)
        return wrong(name, error);
    *to = (uint32_t)n;
    return 0;
}

static int take_real(const json_t *o, const char *name, double max, double *to, struct error *error)
{
    const json_t *value = json_object_get(o, name);
    double x = json_number_value(value);
    if (!json_is_number(value) || !(x >= 0 && x <= max))
        return wrong(name, error);
    *to = x;
    return 0;
}

/* Files of earlier versions have none. */
static int take_machine(const json_t *o, struct rates_machine *m, struct error *error)
{
    if (!json_object_get(o, "memory"))
        return 0;
    if (take_real(o, "memory", RATE_MAX, &m->memory, error) != 0 ||
        take_real(o, "storage", RATE_MAX, &m->storage, error) != 0)
        return -1;
    return take_real(o, "arithmetic", RATE_MAX, &m->arithmetic, error);
}

static int take_cpu(const json_t *o, struct rates_cpu *c, struct error *error)
{
    if (take_text(o, "name", c->name, sizeof c->name, error) != 0 ||
        take_integer(o, "threads", &c->threads, error) != 0 ||
        take_text(o, "type", c->type, sizeof c->type, error) != 0 ||
        take_real(o, "dense", RATE_MAX, &c->rate.dense, error) != 0 ||
        take_real(o, "experts", RATE_MAX, &c->rate.experts, error) != 0 ||
        take_machine(o, &c->machine, error) != 0)
        return -1;
    return cost_cpu_known(&c->rate) ? 0 : wrong("dense", error);
}

static const char *product_name(unsigned i)
{
    return tensor_type_info(cost_types[i])->name;
}

static int take_gpu(const json_t *o, struct rates_gpu *g, struct error *error)
{
    const json_t *products = json_object_get(o, "product");
    if (take_text(o, "name", g->name, sizeof g->name, error) != 0 ||
        take_integer(o, "number", &g->number, error) != 0 ||
        take_integer(o, "interface", &g->interface, error) != 0 ||
        take_real(o, "pinned", RATE_MAX, &g->rate.pinned, error) != 0 ||
        take_real(o, "pageable", RATE_MAX, &g->rate.pageable, error) != 0 ||
        take_real(o, "wait_s", SECONDS_MAX, &g->rate.wait_s, error) != 0)
        return -1;
    for (unsigned i = 0; i < COST_TYPES; i++)
        if (take_real(products, product_name(i), RATE_MAX, &g->rate.product[i], error) != 0)
            return -1;
    return cost_gpu_known(&g->rate) ? 0 : wrong("product", error);
}

/* ---- the file ---- */

static int take_rows(const json_t *object, struct rates *r, struct error *error)
{
    const json_t *cpus = json_object_get(object, "cpus"), *gpus = json_object_get(object, "gpus");
    if (!json_is_array(cpus) || json_array_size(cpus) > RATES_CPUS_MAX)
        return wrong("cpus", error);
    if (!json_is_array(gpus) || json_array_size(gpus) > RATES_GPUS_MAX)
        return wrong("gpus", error);
    for (; r->cpus < json_array_size(cpus); r->cpus++)
        if (take_cpu(json_array_get(cpus, r->cpus), &r->cpu[r->cpus], error) != 0)
            return -1;
    for (; r->gpus < json_array_size(gpus); r->gpus++)
        if (take_gpu(json_array_get(gpus, r->gpus), &r->gpu[r->gpus], error) != 0)
            return -1;
    return 0;
}

int rates_parse(const char *text, size_t bytes, struct rates *r, struct error *error)
{
    memset(r, 0, sizeof *r);
    json_t *object = json_record(text, bytes, RATES_BYTES_MAX, FORMAT, VERSION, error);
    if (!object)
        return -1;
    int status = take_rows(object, r, error);
    json_decref(object);
    if (status != 0)
        memset(r, 0, sizeof *r);
    return status;
}

static json_t *json_of_cpu(const struct rates_cpu *c)
{
    return json_pack("{s:s, s:I, s:s, s:f, s:f, s:f, s:f, s:f}", "name", c->name, "threads",
                     (json_int_t)c->threads, "type", c->type, "dense", c->rate.dense, "experts",
                     c->rate.experts, "memory", c->machine.memory, "storage", c->machine.storage,
                     "arithmetic", c->machine.arithmetic);
}

static json_t *json_of_gpu(const struct rates_gpu *g)
{
    json_t *products = json_object();
    for (unsigned i = 0; i < COST_TYPES; i++)
        json_object_set_new(products, product_name(i), json_real(g->rate.product[i]));
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:o}", "name", g->name, "number",
                     (json_int_t)g->number, "interface", (json_int_t)g->interface, "pinned",
                     g->rate.pinned, "pageable", g->rate.pageable, "wait_s", g->rate.wait_s,
                     "product", products);
}

char *rates_format(const struct rates *r, struct error *error)
{
    static struct rates again; /* what is written can be read; too large for the stack */
    json_t *cpus = json_array(), *gpus = json_array();
    for (uint32_t i = 0; i < r->cpus; i++)
        json_array_append_new(cpus, json_of_cpu(&r->cpu[i]));
    for (uint32_t i = 0; i < r->gpus; i++)
        json_array_append_new(gpus, json_of_gpu(&r->gpu[i]));
    json_t *object = json_pack("{s:s, s:i, s:o, s:o}", "format", FORMAT, "version", VERSION, "cpus",
                               cpus, "gpus", gpus);
    char *text = object ? json_dumps(object, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(object);
    if (!text) {
        error_set(error, ERR_NO_MEMORY, "out of memory (rates)");
        return NULL;
    }
    struct error why;
    int status = rates_parse(text, strlen(text), &again, &why);
    if (status == 0 && again.cpus == r->cpus && again.gpus == r->gpus)
        return text;
    free(text);
    error_set(error, ERR_BAD_INPUT, "%.200s",
              status != 0 ? why.text : "a row of rates cannot be written");
    return NULL;
}

/* ---- rows ---- */

static bool same_cpu(const struct rates_cpu *a, const struct rates_cpu *b)
{
    return strcmp(a->name, b->name) == 0 && a->threads == b->threads &&
           strcmp(a->type, b->type) == 0;
}

static bool same_gpu(const struct rates_gpu *a, const struct rates_gpu *b)
{
    return a->number == b->number && a->interface == b->interface && strcmp(a->name, b->name) == 0;
}

void rates_set_cpu(struct rates *r, const struct rates_cpu *cpu)
{
    uint32_t at = 0;
    while (at < r->cpus && !same_cpu(&r->cpu[at], cpu))
        at++;
    if (at == RATES_CPUS_MAX)
        at = 0;
    if (at < r->cpus)
        memmove(&r->cpu[at], &r->cpu[at + 1], (--r->cpus - at) * sizeof *r->cpu);
    r->cpu[r->cpus++] = *cpu;
}

void rates_set_gpu(struct rates *r, const struct rates_gpu *gpu)
{
    uint32_t at = 0;
    while (at < r->gpus && !same_gpu(&r->gpu[at], gpu))
        at++;
    if (at == RATES_GPUS_MAX)
        at = 0;
    if (at < r->gpus)
        memmove(&r->gpu[at], &r->gpu[at + 1], (--r->gpus - at) * sizeof *r->gpu);
    r->gpu[r->gpus++] = *gpu;
}

const struct rates_cpu *rates_find_cpu(const struct rates *r, const struct rates_cpu *cpu)
{
    for (uint32_t i = 0; i < r->cpus; i++)
        if (same_cpu(&r->cpu[i], cpu))
            return &r->cpu[i];
    return NULL;
}

const struct cost_gpu *rates_find_gpu(const struct rates *r, const struct rates_gpu *gpu)
{
    for (uint32_t i = 0; i < r->gpus; i++)
        if (same_gpu(&r->gpu[i], gpu))
            return &r->gpu[i].rate;
    return NULL;
}
