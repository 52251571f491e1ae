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
