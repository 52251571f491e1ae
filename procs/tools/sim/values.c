/* SPDX-License-Identifier: Apache-2.0 */
/* Lists, additional precisions, and the settings of --synthetic and --import. */
#include <ctype.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/sim/options.h"
#include "lib/tensor/precision.h"
#include "procs/tools/sim/sim_program.h"

bool value_next(const char **list, char item[ITEM_BYTES])
{
    const char *at = *list;
    while (*at == ',' || isspace((unsigned char)*at))
        at++;
    size_t n = strcspn(at, ",");
    *list = at + n;
    while (n > 0 && isspace((unsigned char)at[n - 1]))
        n--;
    if (n == 0)
        return false;
    snprintf(item, ITEM_BYTES, "%.*s", (int)(n < ITEM_BYTES ? n : ITEM_BYTES - 1), at);
    return true;
}

int omit_preset(const char *name, const char *policy, struct error *error)
{
    struct knobs alone;
    struct error of_policy;
    if (!policy || preset_find(name) == POLICY_NONE ||
        knobs_resolve("lod", NULL, policy, &alone, &of_policy) != 0)
        return -1;
    fprintf(stderr, "sluice sim: omitting %s: %s\n", name, error->text);
    return 0;
}

/* ---- --precisions ------------------------------------------------------------------------- */

int take_precisions(const char *list, struct trace_header *h, struct error *error)
{
    char item[ITEM_BYTES];
    for (list = list ? list : ""; value_next(&list, item);) {
        char *value = strchr(item, '=');
        double percent;
        uint64_t bytes = 0;
        if (value)
            *value++ = 0;
        enum precision t = precision_find(item);
        if (value && strchr(value, '%') && percent_parse(value, &percent))
            bytes = percent_of(percent, h->precision_bytes[PRECISION_NATIVE]);
        else if (value && !bytes_parse(value, &bytes))
            bytes = 0;
        if (t == PRECISION__COUNT || t == PRECISION_NATIVE || bytes == 0)
            return error_set(
                error, ERR_BAD_INPUT,
                "--precisions: '%s' is not int8, int4 or int2 with a percentage or a size", item);
        h->precision_mask |= 1u << t;
        h->precision_bytes[t] = bytes;
    }
    return trace_check(h, NULL, 0, error);
}

/* ---- --synthetic --------------------------------------------------------------------- */

static int synthetic_value(struct trace_synthetic *s, const char *name, const char *value,
                           struct error *error)
{
    struct {
        const char *name;
        uint32_t *field;
    } whole[] = {
        {"layers", &s->layers},          {"experts", &s->experts}, {"top-k", &s->top_k},
        {"prompt", &s->prompt},          {"tokens", &s->tokens},   {"sequences", &s->sequences},
        {"predictions", &s->predictions}};
    double x = 0;
    uint64_t bytes;
    for (size_t i = 0; i < ARRAY_LEN(whole); i++)
        if (strcmp(name, whole[i].name) == 0) {
            if (sim_option_number(name, value, 0, 1e8, &x, error) != 0)
                return -1;
            *whole[i].field = (uint32_t)x;
            return 0;
        }
    if (strcmp(name, "skew") == 0)
        return sim_option_number(name, value, 0, 10, &s->skew, error);
    if (strcmp(name, "locality") == 0)
        return sim_option_number(name, value, 0, 1, &s->locality, error);
    if (strcmp(name, "recall") == 0)
        return sim_option_number(name, value, 0, 1, &s->recall, error);
    if (strcmp(name, "seed") == 0) {
        if (sim_option_number(name, value, 0, 0x1p53, &x, error) != 0)
            return -1;
        s->seed = (uint64_t)x;
        return 0;
    }
    if (strcmp(name, "expert-bytes") == 0 && bytes_parse(value, &bytes)) {
        s->expert_bytes = bytes;
        return 0;
    }
    return error_set(error, ERR_BAD_INPUT, "--synthetic: invalid setting %.40s=%.40s", name, value);
}

int make_synthetic(const char *settings, struct trace *out, struct error *error)
{
    struct trace_synthetic s;
    char item[ITEM_BYTES];
    trace_synthetic_defaults(&s);
    for (const char *list = settings; value_next(&list, item);) {
        char *value = strchr(item, '=');
        if (!value)
            return error_set(error, ERR_BAD_INPUT, "--synthetic: '%s' is not name=value", item);
        *value++ = 0;
        if (synthetic_value(&s, item, value, error) != 0)
            return -1;
    }
    return trace_synthesise(&s, out, error);
}

/* ---- --import ------------------------------------------------------------------------ */

static int import_value(struct trace_import *t, const char *name, const char *value,
                        struct error *error)
{
    static const char *const prompts[] = {[TRACE_IMPORT_CHUNK] = "chunk",
                                          [TRACE_IMPORT_TOKENS] = "tokens",
                                          [TRACE_IMPORT_DROP] = "drop"};
    struct {
        const char *name;
        double max;
        uint32_t *field;
    } whole[] = {{"experts", MODEL_EXPERTS_MAX, &t->experts},
                 {"dense", MODEL_LAYERS_MAX - 1, &t->dense}};
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
        double x = 0;
        if (strcmp(name, whole[i].name) != 0)
            continue;
        if (sim_option_number(name, value, 0, whole[i].max, &x, error) != 0)
            return -1;
        *whole[i].field = (uint32_t)x;
        return 0;
    }
    for (size_t i = 0; strcmp(name, "prompt") == 0 && i < ARRAY_LEN(prompts); i++)
        if (strcmp(value, prompts[i]) == 0) {
            t->prompt = (enum trace_import_prompt)i;
            return 0;
        }
    if (strcmp(name, "expert-bytes") == 0 && bytes_parse(value, &t->expert_bytes))
        return 0;
    return error_set(error, ERR_BAD_INPUT, "--import: invalid setting %.40s=%.40s", name, value);
}

int import_settings(const char *settings, struct trace_import *t, struct error *error)
{
    char item[ITEM_BYTES];
    *t = (struct trace_import){.experts = 0};
    for (const char *list = settings; value_next(&list, item);) {
        char *value = strchr(item, '=');
        if (!value)
            return error_set(error, ERR_BAD_INPUT, "--import: '%s' is not name=value", item);
        *value++ = 0;
        if (import_value(t, item, value, error) != 0)
            return -1;
    }
    return 0;
}
