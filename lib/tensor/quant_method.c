/* SPDX-License-Identifier: Apache-2.0 */
/* Names the methods of quantisation, and chooses the one that makes a precision. */
#include "lib/tensor/quant_method.h"

#include <string.h>

#include "lib/base/assert.h"

static const char *const names[] = {
#define X(id, name) name,
    QUANT_METHODS(X)
#undef X
};

enum quant_method quant_method_of(enum precision precision, enum quant_method wanted)
{
    if (precision == PRECISION_NATIVE)
        return QUANT_COPY;
    return precision == PRECISION_INT8 ? QUANT_CHANNEL : wanted;
}

const char *quant_method_name(enum quant_method method)
{
    sl_assert((unsigned)method < QUANT_METHOD__COUNT);
    return names[method];
}

enum quant_method quant_method_find(const char *name)
{
    unsigned m = 0;
    while (m < QUANT_METHOD__COUNT && strcmp(names[m], name) != 0)
        m++;
    return (enum quant_method)m;
}

int quant_method_option(const char *what, const char *value, enum quant_method *method,
                        struct error *error)
{
    enum quant_method m = quant_method_find(value);
    if (m == QUANT_COPY || m == QUANT_METHOD__COUNT)
        return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not one of channel|hqq", what,
                         value);
    *method = m;
    return 0;
}
