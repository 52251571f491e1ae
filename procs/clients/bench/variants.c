/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the variants that bench compares from --vary and --variant. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/clients/bench/bench.h"
#include "procs/clients/common/options.h"

static const char *const listed[] = {"budget",   "resident-experts", "preset",
                                     "throttle", "threads",          "parallel"};

#define GRAMMAR "grammar" /* beside the parameters of the engine */

static int add_list(struct varied *v, const char *name, size_t name_bytes, const char *values,
                    struct error *error)
{
    if (v->count == BENCH_VARIED_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %u parameters are varied",
                         BENCH_VARIED_MAX);
    if (name_bytes >= sizeof v->list[0].name || strlen(values) >= sizeof v->list[0].values)
        return error_set(error, ERR_BAD_INPUT, "--%.40s: list too long", name);
    snprintf(v->list[v->count].name, sizeof v->list[0].name, "%.*s", (int)name_bytes, name);
    snprintf(v->list[v->count].values, sizeof v->list[0].values, "%s", values);
    if (!params_known(v->list[v->count].name) && strcmp(v->list[v->count].name, GRAMMAR) != 0)
        return error_set(error, ERR_BAD_INPUT, "--vary: '%.40s' is not a parameter of the engine",
                         v->list[v->count].name);
    v->count++;
    return 0;
}

/* The value of "--NAME VALUE" or "--NAME=VALUE" at argv[i]; *used: arguments it takes. NULL:
 * another option. */
static const char *value_of(char **argv, int argc, int i, const char *name, int *used)
{
    size_t n = strlen(name);
    if (strncmp(argv[i], "--", 2) != 0)
        return NULL;
    for (size_t c = 0; c < n; c++)
        if (argv[i][2 + c] != name[c] && !(name[c] == '-' && argv[i][2 + c] == '_'))
            return NULL;
    *used = 1;
    if (argv[i][2 + n] == '=')
        return argv[i] + 3 + n;
    if (argv[i][2 + n] != 0 || i + 1 >= argc)
        return NULL;
    *used = 2;
    return argv[i + 1];
}

/* Parses one argument: 1 taken, 0 another option, -1 error. */
static int take_one(struct varied *v, char **argv, int argc, int i, int *used, struct error *error)
{
    const char *value = value_of(argv, argc, i, "vary", used);
    if (value) {
        const char *equals = strchr(value, '=');
        if (!equals)
            return error_set(error, ERR_BAD_INPUT, "--vary: '%.80s' is not NAME=V1,V2", value);
        return add_list(v, value, (size_t)(equals - value), equals + 1, error) != 0 ? -1 : 1;
    }
    if ((value = value_of(argv, argc, i, "variant", used)) != NULL) {
        if (v->variant_count == BENCH_VARIANTS_MAX)
            return error_set(error, ERR_BAD_INPUT, "more than %u variants", BENCH_VARIANTS_MAX);
        v->variant[v->variant_count++] = value;
        return 1;
    }
    for (size_t k = 0; k < ARRAY_LEN(listed); k++)
        if ((value = value_of(argv, argc, i, listed[k], used)) != NULL)
            return add_list(v, listed[k], strlen(listed[k]), value, error) != 0 ? -1 : 1;
    return 0;
}

int varied_take_args(struct varied *v, int *argc, char **argv, struct error *error)
{
    int kept = 1;
    for (int i = 1; i < *argc;) {
        int used = 1, taken = take_one(v, argv, *argc, i, &used, error);
        if (taken < 0)
            return -1;
        if (taken)
            i += used;
        else
            argv[kept++] = argv[i++];
    }
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}

/* ---- combinations ---- */

static int set_value(struct variant *variant, const char *name, const char *value,
                     struct error *error)
{
    if (strcmp(name, GRAMMAR) != 0)
        return params_set(&variant->params, name, value, error);
    variant->free = strcmp(value, "off") == 0;
    return variant->free || strcmp(value, "on") == 0
               ? 0
               : error_set(error, ERR_BAD_INPUT, "grammar: '%.40s' is neither on nor off", value);
}

static int set_one(struct variant *variant, const char *name, const char *value, bool several,
                   struct error *error)
{
    if (set_value(variant, name, value, error) != 0)
        return -1;
    if (!several)
        return 0;
    size_t used = strlen(variant->label);
    snprintf(variant->label + used, sizeof variant->label - used, "%s%s=%s", used ? " " : "", name,
             value);
    return 0;
}

/* Adds every combination of the lists from `depth` on to the values in `sofar`. */
static int combine(struct bench *b, const struct varied *v, uint32_t depth,
                   const struct variant *sofar, struct error *error)
{
    if (depth == v->count) {
        if (b->variant_count == BENCH_VARIANTS_MAX)
            return error_set(error, ERR_BAD_INPUT, "more than %u variants", BENCH_VARIANTS_MAX);
        b->variants[b->variant_count++] = *sofar;
        return 0;
    }
    char copy[sizeof v->list[0].values], *rest = copy;
    snprintf(copy, sizeof copy, "%s", v->list[depth].values);
    bool several = strchr(copy, ',') != NULL;
    for (char *value; (value = strsep(&rest, ",")) != NULL;) {
        struct variant variant = *sofar;
        if (set_one(&variant, v->list[depth].name, value, several, error) != 0 ||
            combine(b, v, depth + 1, &variant, error) != 0)
            return -1;
    }
    return 0;
}

/* "label=hobbit; preset=hobbit; policy=t1=0.6,t2=0.9": parameters of one variant, separated by
 * semicolons; the label defaults to the whole text. */
static int set_explicit(struct variant *variant, const char *text, struct error *error)
{
    char copy[1024], *rest = copy;
    if (strlen(text) >= sizeof copy)
        return error_set(error, ERR_BAD_INPUT, "--variant '%.60s...' is too long", text);
    snprintf(copy, sizeof copy, "%s", text);
    snprintf(variant->label, sizeof variant->label, "%s", text);
    for (char *item; (item = strsep(&rest, ";")) != NULL;) {
        item += strspn(item, " ");
        char *equals = strchr(item, '=');
        if (*item == 0)
            continue;
        if (!equals)
            return error_set(error, ERR_BAD_INPUT, "--variant: '%.80s' is not NAME=VALUE", item);
        *equals = 0;
        if (strcmp(item, "label") == 0)
            snprintf(variant->label, sizeof variant->label, "%s", equals + 1);
        else if (set_value(variant, item, equals + 1, error) != 0)
            return -1;
    }
    return 0;
}

static int combine_all(struct bench *b, const struct varied *v, const struct params *base,
                       struct error *error)
{
    struct variant first = {.params = *base};
    if (v->variant_count == 0)
        return combine(b, v, 0, &first, error);
    for (uint32_t i = 0; i < v->variant_count; i++) {
        struct variant variant = first;
        if (set_explicit(&variant, v->variant[i], error) != 0 ||
            combine(b, v, 0, &variant, error) != 0)
            return -1;
    }
    return 0;
}

int variants_make(struct bench *b, const struct varied *v, const struct params *base,
                  struct error *error)
{
    b->variants = calloc(BENCH_VARIANTS_MAX, sizeof *b->variants);
    if (!b->variants)
        return error_set(error, ERR_NO_MEMORY, "out of memory (variants)");
    if (combine_all(b, v, base, error) != 0)
        return -1;
    for (uint32_t i = 0; i < b->variant_count; i++) {
        if (b->variants[i].free && b->grammar.kind == GRAMMAR_NONE)
            return error_set(error, ERR_BAD_INPUT,
                             "grammar=off needs a grammar that other variants have; give "
                             "--json-schema or --grammar");
        uint32_t parallel = (uint32_t)b->variants[i].params.parallel;
        b->sequences_max = parallel > b->sequences_max ? parallel : b->sequences_max;
        if (!b->variants[i].label[0])
            snprintf(b->variants[i].label, sizeof b->variants[i].label, "engine");
        for (uint32_t t = 0; t < b->test_count; t++) {
            b->variants[i].samples[t] = calloc((size_t)b->repetitions, sizeof(struct sample));
            if (!b->variants[i].samples[t])
                return error_set(error, ERR_NO_MEMORY, "out of memory (samples)");
        }
    }
    b->order = calloc((size_t)b->repetitions * b->variant_count, sizeof *b->order);
    return b->order ? 0 : error_set(error, ERR_NO_MEMORY, "out of memory (variants)");
}

static void free_samples(struct sample *samples, int64_t count)
{
    for (int64_t i = 0; samples && i < count; i++) {
        json_decref(samples[i].counters);
        json_decref(samples[i].slices);
    }
    free(samples);
}

void variants_free(struct bench *b)
{
    for (uint32_t i = 0; i < b->variant_count; i++)
        for (uint32_t t = 0; t < b->test_count; t++)
            free_samples(b->variants[i].samples[t], b->repetitions);
    free(b->variants);
    free(b->order);
    b->variants = NULL;
    b->order = NULL;
}

int comparison_add(struct bench *b, const char *text, struct error *error)
{
    char copy[32], *rest = copy;
    int64_t number[2] = {0};
    snprintf(copy, sizeof copy, "%s", text);
    for (int i = 0; i < 2; i++) {
        const char *item = strsep(&rest, ",");
        if (!item)
            return error_set(error, ERR_BAD_INPUT, "--compare: '%.20s' is not A,B", text);
        if (option_i64("--compare", item, 1, b->variant_count, &number[i], error) != 0)
            return -1;
    }
    if (rest)
        return error_set(error, ERR_BAD_INPUT, "--compare: '%.20s' is not A,B", text);
    if (b->comparison_count == BENCH_COMPARISONS_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %u comparisons", BENCH_COMPARISONS_MAX);
    b->comparisons[b->comparison_count++] =
        (struct comparison){(uint32_t)number[0] - 1, (uint32_t)number[1] - 1};
    return 0;
}
