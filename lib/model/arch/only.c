/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that select computations: those of which only one value is supported. */
#include <inttypes.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/model/arch/internal.h"
#include "lib/text/printable.h"

static const struct only_row {
    enum arch_id arch;
    const char *key;
    enum only_kind { ONLY_UINT, ONLY_FLOAT, ONLY_TEXT, ONLY_WIDE, ONLY_BELOW } kind;
    const char *text;
    double number;
} only_rows[] = {
#define ARCH_ONLY(id, key, value)       {ARCH_##id, (key), ONLY_UINT, NULL, (value)},
#define ARCH_ONLY_FLOAT(id, key, value) {ARCH_##id, (key), ONLY_FLOAT, NULL, (value)},
#define ARCH_WIDE(id, key)              {ARCH_##id, (key), ONLY_WIDE, NULL, 0},
#define ARCH_BELOW(id, key, limit)      {ARCH_##id, (key), ONLY_BELOW, NULL, (limit)},
#define ARCH_ONLY_TEXT(id, key, text)   {ARCH_##id, (key), ONLY_TEXT, (text), 0},
#include "lib/model/arch/arch.tbl.h"
};

static int only_text(const struct gguf *g, const char *key, const char *want, struct error *error)
{
    const char *text;
    size_t n;
    int found = gguf_get_string(g, key, &text, &n, error);
    if (found == 1 && (n != strlen(want) || memcmp(text, want, n) != 0))
        return error_set(error, ERR_BAD_INPUT, "key '%s' is '%s'; only '%s' is supported", key,
                         printable(text, n).text, want);
    return found < 0 ? -1 : 0;
}

/* Checks an ARCH_ONLY or ARCH_ONLY_FLOAT key. An integer key may be written as a bool. */
static int only_number(const struct gguf *g, const char *key, enum only_kind kind, double want,
                       struct error *error)
{
    bool flag;
    uint64_t value;
    double number = 0;
    int found = kind == ONLY_UINT ? gguf_get_bool(g, key, &flag, NULL) : -1;
    if (found == 1) {
        number = flag;
    } else if (kind == ONLY_UINT) {
        found = gguf_get_uint(g, key, &value, error);
        number = found == 1 ? (double)value : 0;
    } else {
        found = gguf_get_float(g, key, &number, error);
    }
    if (found == 1 && number != want)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is %.15g; only %g is supported", key,
                         number, want);
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

int arch_check_only(enum arch_id arch, const struct gguf *g, const struct model_hparams *h,
                    struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(only_rows); i++) {
        const struct only_row *row = &only_rows[i];
        char key[ARCH_KEY_BYTES];
        if (row->arch != arch)
            continue;
        arch_full_key(arch, row->key, key);
        int status = row->kind == ONLY_TEXT    ? only_text(g, key, row->text, error)
                     : row->kind == ONLY_WIDE  ? only_wide(g, key, h, error)
                     : row->kind == ONLY_BELOW ? only_below(g, key, row->number, error)
                                               : only_number(g, key, row->kind, row->number, error);
        if (status != 0)
            return -1;
    }
    return 0;
}
