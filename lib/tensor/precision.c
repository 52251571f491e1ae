/* SPDX-License-Identifier: Apache-2.0 */
/* Names the precisions of an expert, and reads them from options. */
#include "lib/tensor/precision.h"

#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

static const char *const names[] = {[PRECISION_NATIVE] = "native",
                                    [PRECISION_INT8] = "int8",
                                    [PRECISION_INT4] = "int4",
                                    [PRECISION_INT2] = "int2"};
_Static_assert(ARRAY_LEN(names) == PRECISION__COUNT, "a name for each precision");

const char *precision_name(enum precision precision)
{
    sl_assert((unsigned)precision < PRECISION__COUNT);
    return names[precision];
}

enum precision precision_find(const char *name)
{
    unsigned p = 0;
    while (p < PRECISION__COUNT && strcmp(names[p], name) != 0)
        p++;
    return (enum precision)p;
}

int precision_dense_option(const char *what, const char *value, enum precision *dense, bool *given,
                           struct error *error)
{
    bool automatic = given && strcmp(value, "auto") == 0;
    enum precision p = automatic ? PRECISION_NATIVE : precision_find(value);
    if (p == PRECISION__COUNT || !(PRECISION_DENSE >> p & 1))
        return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not one of native|int8|int4%s", what,
                         value, given ? "|auto" : "");
    *dense = p;
    if (given)
        *given = !automatic;
    return 0;
}
