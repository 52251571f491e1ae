/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that select computations: those of which only one value is supported. */
#include <inttypes.h>

#include "lib/model/arch/internal.h"

/* An integer key may be written as a bool. */
static int only_number(const struct gguf *g, const char *key, const struct arch_row *row,
                       struct error *error)
{
    bool flag, integer = row->kind != ARCH_ONLY_FLOAT, why = row->kind == ARCH_ONLY_WHY;
    uint64_t value;
    double number = 0;
    int found = integer ? gguf_get_bool(g, key, &flag, NULL) : -1;
    if (found == 1) {
        number = flag;
    } else if (integer) {
        found = gguf_get_uint(g, key, &value, error);
        number = found == 1 ? (double)value : 0;
    } else {
        found = gguf_get_float(g, key, &number, error);
    }
    if (found == 0 && row->kind == ARCH_ONLY && row->required)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is missing", key);
    if (found == 1 && number != row->value)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is %.15g; only %g is supported%s%s", key,
                         number, row->value, why ? ": " : "", why ? row->text : "");
    return found < 0 ? -1 : 0;
}

/* A window that nothing is outside of. */
static int only_wide(const struct gguf *g, const char *key, const struct model_hparams *h,
                     struct error *error)
{
    uint64_t window;
    int found = gguf_get_uint(g, key, &window, error);
    if (found == 1 && window != 0 && window < h->context)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' is %" PRIu64
                         "; only windows of at least the context length %" PRIu32 " are supported",
                         key, window, h->context);
    return found < 0 ? -1 : 0;
}

static int only_below(const struct gguf *g, const char *key, double limit, struct error *error)
{
    uint64_t value;
    int found = gguf_get_uint(g, key, &value, error);
    if (found == 1 && (double)value >= limit)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s' is %" PRIu64 "; only numbers below %g are supported", key, value,
                         limit);
    return found < 0 ? -1 : 0;
}

int arch_check_only(const struct arch *arch, const struct arch_row *row, const char *key,
                    const struct gguf *g, struct model_hparams *h, struct error *error)
{
    (void)arch;
    switch (row->kind) {
    case ARCH_WIDE: return only_wide(g, key, h, error);
    case ARCH_BELOW: return only_below(g, key, row->value, error);
    default: return only_number(g, key, row, error);
    }
}
