/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and sets values of the sampling parameters by their table. */
#include "lib/sampling/sampling.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"

/* Each row has bounds of both types; only those of its own type are used. */
#define REAL(type, value) _Generic((type)0, double : (double)(value), default : 0.0)
#define INT(type, value)  _Generic((type)0, int64_t : (value), default : 0)

static const struct sampling_param parameters[] = {
#define X(type, field, json, def, min, max, help)                                                  \
    {json,                                                                                         \
     SAMPLING_##type,                                                                              \
     offsetof(struct sampling, field),                                                             \
     REAL(type, min),                                                                              \
     REAL(type, max),                                                                              \
     INT(type, min),                                                                               \
     INT(type, max)},
    SAMPLING_PARAMS(X)
#undef X
};

const struct sampling_param *sampling_params(size_t *count)
{
    *count = ARRAY_LEN(parameters);
    return parameters;
}

void sampling_defaults(struct sampling *s)
{
#define X(type, field, json, def, min, max, help) s->field = (def);
    SAMPLING_PARAMS(X)
#undef X
}

const struct sampling_param *sampling_param_named(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(parameters); i++) {
        const char *a = parameters[i].name, *b = name;
        while (*a && (*a == *b || (*a == '_' && *b == '-')))
            a++, b++;
        if (!*a && !*b)
            return &parameters[i];
    }
    return NULL;
}

int sampling_set_real(struct sampling *s, const struct sampling_param *p, double value,
                      struct error *error)
{
    if (!(value >= p->real_min && value <= p->real_max))
        return error_set(error, ERR_BAD_INPUT, "%s must be from %g to %g", p->name, p->real_min,
                         p->real_max);
    memcpy((char *)s + p->offset, &value, sizeof value);
    return 0;
}

int sampling_set_int(struct sampling *s, const struct sampling_param *p, int64_t value,
                     struct error *error)
{
    if (value < p->int_min || value > p->int_max)
        return error_set(error, ERR_BAD_INPUT, "%s must be from %" PRId64 " to %" PRId64, p->name,
                         p->int_min, p->int_max);
    memcpy((char *)s + p->offset, &value, sizeof value);
    return 0;
}

int sampling_set(struct sampling *s, const char *name, const char *text, struct error *error)
{
    const struct sampling_param *p = sampling_param_named(name);
    char *end;
    if (!p)
        return error_set(error, ERR_BAD_INPUT, "unknown sampling parameter '%.40s'", name);
    errno = 0;
    double real = p->type == SAMPLING_double ? strtod(text, &end) : 0;
    int64_t integer = p->type == SAMPLING_int64_t ? strtoll(text, &end, 10) : 0;
    if (end == text || *end || errno == ERANGE)
        return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not a number", p->name, text);
    return p->type == SAMPLING_double ? sampling_set_real(s, p, real, error)
                                      : sampling_set_int(s, p, integer, error);
}
