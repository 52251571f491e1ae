/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures: their names and hyper-parameters. Layers and tensors: tensors.c. */
#include "lib/model/arch/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/text/printable.h"

#define ROWS_OF_REALS (ARCH_ROWS(ROOT) | ARCH_ROWS(CONST_FLOAT)) /* floats without a key */

const struct arch *const arch_list[ARCH_COUNT] = {
#define ARCH(id) &arch_##id,
#include "lib/model/arch/arch.tbl.h"
};

const struct arch *arch_find(const char *name, size_t bytes)
{
    for (int i = 0; i < ARCH_COUNT; i++)
        if (strlen(arch_list[i]->name) == bytes && memcmp(arch_list[i]->name, name, bytes) == 0)
            return arch_list[i];
    return NULL;
}

static float float_of(const struct model_hparams *h, size_t offset)
{
    float v;
    memcpy(&v, (const char *)h + offset, sizeof v);
    return v;
}

static void set_float(struct model_hparams *h, size_t offset, float value)
{
    memcpy((char *)h + offset, &value, sizeof value);
}

void arch_full_key(const struct arch *arch, const char *key, char buf[ARCH_KEY_BYTES])
{
    int n = snprintf(buf, ARCH_KEY_BYTES, "%s.%s", arch->name, key);
    sl_assert(n > 0 && n < ARCH_KEY_BYTES);
}

/* Does a row say that all layers with experts have the same number? */
static bool has_same(const struct arch *arch, size_t offset)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(SAME))
        if (row->offset == offset)
            return true;
    return false;
}

/* Is the key of this row an array? Then the row of the array reads it. */
static bool is_array(const struct arch *arch, const struct arch_row *row, const char *key,
                     const struct gguf *g)
{
    struct gguf_array a;
    bool heads;
    const char *list = arch_recurrent_key(arch, &heads);
    bool may_be = arch_window_field(arch, row->offset) != 0 || has_same(arch, row->offset) ||
                  (list && strcmp(list, row->key) == 0);
    return may_be && gguf_get_uints(g, key, &a, NULL) != 0;
}

static int missing_key(const struct arch *arch, const struct arch_row *row, const char *key,
                       struct error *error)
{
    const struct arch_row *m;
    ARCH_EACH (m, arch, ARCH_ROWS(MISSING))
        if (strcmp(m->key, row->key) == 0)
            return error_set(error, ERR_BAD_INPUT, "key '%s' is missing: %s", key, m->text);
    return error_set(error, ERR_BAD_INPUT, "key '%s' is missing%s", key,
                     row->offset == offsetof(struct model_hparams, experts)
                         ? ": a model without experts is not supported"
                         : "");
}

/* Files of this architecture have something else in the key of a row that it shares. */
static bool is_unread(const struct arch *arch, const struct arch_row *row)
{
    const struct arch_row *r;
    ARCH_EACH (r, arch, ARCH_ROWS(UNREAD))
        if (strcmp(r->key, row->key) == 0)
            return true;
    return false;
}

static int read_uint(const struct arch *arch, const struct arch_row *row, const char *key,
                     const struct gguf *g, struct model_hparams *h, struct error *error)
{
    uint64_t value;
    bool flag = false, is_flag = row->kind == ARCH_FLAG;
    if (is_array(arch, row, key, g))
        return 0;
    if (is_unread(arch, row)) {
        gguf_get_uint(g, key, &value, NULL); /* known, so nobody is warned of it */
        return 0;
    }
    int found =
        is_flag ? gguf_get_bool(g, key, &flag, error) : gguf_get_uint(g, key, &value, error);
    if (found < 0)
        return -1;
    if (is_flag)
        value = flag;
    if (!found)
        return row->required ? missing_key(arch, row, key, error) : 0;
    /* Checked here and not only in arch_check_hparams: the value has 64 bits, the field 32. */
    if (value < (uint64_t)row->min || value > (uint64_t)row->max)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is %" PRIu64 ": not between %.0f and %.0f",
                         key, value, row->min, row->max);
    *arch_uint(h, row->offset) = (uint32_t)value;
    return 0;
}

static bool is_text(const char *text, size_t bytes, const char *expected)
{
    return bytes == strlen(expected) && memcmp(text, expected, bytes) == 0;
}

/* Does a row of the field have the text? */
static bool is_known_text(const struct arch *arch, size_t offset, const char *text, size_t bytes)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(TEXT))
        if (row->offset == offset && is_text(text, bytes, row->text))
            return true;
    return false;
}

/* The name of a setting. */
static int read_text(const struct arch *arch, const struct arch_row *row, const char *key,
                     const struct gguf *g, struct model_hparams *h, struct error *error)
{
    const char *text;
    size_t n;
    int found = gguf_get_string(g, key, &text, &n, error);
    if (found <= 0)
        return found;
    if (is_text(text, n, row->text))
        *arch_uint(h, row->offset) = (uint32_t)row->value;
    if (!is_text(text, n, "none") && !is_known_text(arch, row->offset, text, n))
        return error_set(error, ERR_BAD_INPUT, "key '%s' is '%s', which is not supported", key,
                         printable(text, n).text);
    return 0;
}

static int read_float(const struct arch *arch, const struct arch_row *row, const char *key,
                      const struct gguf *g, struct model_hparams *h, struct error *error)
{
    (void)arch;
    double value;
    int found = gguf_get_float(g, key, &value, error);
    if (found < 0)
        return -1;
    if (!found && row->required)
        return error_set(error, ERR_BAD_INPUT, "key '%s' is missing", key);
    if (found || float_of(h, row->offset) == 0) /* or by an older name */
        set_float(h, row->offset, (float)(found ? value : row->value));
    return 0;
}

const struct arch_row *arch_uint_row(const struct arch *arch, size_t offset)
{
    const struct arch_row *r;
    ARCH_EACH (r, arch, ARCH_ROWS(UINT) | ARCH_ROWS(FLAG))
        if (r->offset == offset)
            return r;
    sl_panic("a field of %s without a key", arch->name);
}

/* From another key. */
static int read_else(const struct arch *arch, const struct arch_row *row, const char *key,
                     const struct gguf *g, struct model_hparams *h, struct error *error)
{
    char own_key[ARCH_KEY_BYTES];
    uint64_t value;
    if (arch_uint_of(h, row->offset) != 0)
        return 0;
    const struct arch_row *own = arch_uint_row(arch, row->offset);
    int found = gguf_get_uint(g, key, &value, error);
    if (found < 0)
        return -1;
    if (found == 1 && row->divided)
        value /= arch_uint_of(h, row->other); /* a required key, not 0 */
    if (found == 1 && value >= (uint64_t)own->min && value <= (uint64_t)own->max) {
        *arch_uint(h, row->offset) = (uint32_t)value;
    } else if (own->min > 0) {
        arch_full_key(arch, own->key, own_key);
        return missing_key(arch, own, own_key, error);
    }
    return 0;
}

static int read_lacks(const struct arch *arch, const struct arch_row *row, const char *key,
                      const struct gguf *g, struct model_hparams *h, struct error *error)
{
    double value;
    (void)arch, (void)error;
    if (gguf_get_float(g, key, &value, NULL) == 0)
        *arch_uint(h, row->offset) = (uint32_t)row->value;
    return 0;
}

static int read_rows(const struct arch *arch, uint64_t kinds, arch_read_row *read,
                     const struct gguf *g, struct model_hparams *h, struct error *error)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, kinds) {
        char key[ARCH_KEY_BYTES];
        arch_full_key(arch, row->key ? row->key : "", key);
        if (read(arch, row, key, g, h, error) != 0)
            return -1;
    }
    return 0;
}

/* The keys that need no other ones but those of earlier lines. */
static int read_keys(const struct arch *arch, const struct gguf *g, struct model_hparams *h,
                     struct error *error)
{
    static const struct {
        uint64_t kinds;
        arch_read_row *read;
    } passes[] = {
        {ARCH_ROWS(UINT) | ARCH_ROWS(FLAG), read_uint},
        {ARCH_ROWS(FLOAT) | ARCH_ROWS(FLOAT_OLD), read_float},
        {ARCH_ROWS(TEXT), read_text},
        {ARCH_ROWS(ELSE), read_else},
        {ARCH_ROWS(LACKS), read_lacks},
        {ARCH_ROWS(ONLY) | ARCH_ROWS(ONLY_FLOAT) | ARCH_ROWS(ONLY_WHY) | ARCH_ROWS(BELOW) |
             ARCH_ROWS(WIDE),
         arch_check_only},
        {ARCH_ROWS(TENSOR), arch_read_tensor},
    };
    for (size_t i = 0; i < ARRAY_LEN(passes); i++)
        if (read_rows(arch, passes[i].kinds, passes[i].read, g, h, error) != 0)
            return -1;
    return arch_read_scaling(arch, g, h, error);
}

void arch_set_where(const struct arch *arch, struct model_hparams *h)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(WHERE))
        if (arch_uint_of(h, row->other) == row->is)
            *arch_uint(h, row->offset) = (uint32_t)row->value;
}

static void set_defaults(const struct arch *arch, struct model_hparams *h, uint32_t tokens)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(DEFAULT))
        if ((row->layers == 0 || (row->layers == h->layers && row->vocab == tokens)) &&
            arch_uint_of(h, row->offset) == 0)
            *arch_uint(h, row->offset) = (uint32_t)row->value;
    arch_set_where(arch, h);
}

/* Blocks that the file states and does not have are none. */
static void find_skipped(const struct arch *arch, const struct gguf *g, struct model_hparams *h)
{
    const struct arch_row *row = arch_first(arch->rows, ARCH_ROWS(SKIPPED_NAME));
    uint32_t number, first = h->layers - h->skipped_layers;
    for (uint32_t i = 0; row && i < g->tensor_count; i++)
        if (arch_name_matches(row->key, g->tensors[i].name, &number) && number == first)
            return;
    h->skipped_layers = row ? 0 : h->skipped_layers;
}

/* The number of layers that are used: arrays with an element per layer may leave out the others. */
static int drop_skipped(struct model_hparams *h, struct error *error)
{
    if (h->skipped_layers >= h->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "nextn_predict_layers %" PRIu32 " leave none of %" PRIu32 " blocks",
                         h->skipped_layers, h->layers);
    h->layers -= h->skipped_layers;
    return 0;
}

void arch_set_shares(const struct arch *arch, struct model_hparams *h)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(SHARE))
        if (arch_uint_of(h, row->offset) == 0)
            *arch_uint(h, row->offset) = arch_uint_of(h, row->other) / row->divisor;
}

void arch_derive_streams(struct model_hparams *h)
{
    if (h->bank_block > 0)
        h->streams = 1 + model_bank_sums(h, h->layers, false);
}

/* Computes the hyper-parameters that are missing in the file (still 0). */
static void derive_absent(const struct arch *arch, struct model_hparams *h, uint32_t tokens)
{
    arch_derive_mla(h);
    arch_derive_streams(h);
    if (!h->kv_heads)
        h->kv_heads = h->heads;
    if (!h->head_size)
        h->head_size = h->hidden / h->heads;
    if (!h->value_size)
        h->value_size = h->head_size;
    arch_set_shares(arch, h);
    if (!h->rope_dims)
        h->rope_dims = h->head_size;
    if (!h->vocab)
        h->vocab = tokens;
    arch_derive_scaling(h);
}

/* The value of a float without a key. */
static float real_of(const struct model_hparams *h, const struct arch_row *row)
{
    return row->kind == ARCH_ROOT ? sqrtf((float)arch_uint_of(h, row->other)) : (float)row->value;
}

void arch_set_reals(const struct arch *arch, struct model_hparams *h)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ROWS_OF_REALS)
        set_float(h, row->offset, real_of(h, row));
}

void arch_set_constants(const struct arch *arch, struct model_hparams *h)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(CONST))
        *arch_uint(h, row->offset) = (uint32_t)row->value;
}

int arch_read_hparams(const struct arch *arch, const struct gguf *g, uint32_t tokens,
                      struct model_hparams *h, struct error *error)
{
    int listed = 0;
    *h = (struct model_hparams){0};
    if (read_keys(arch, g, h, error) != 0)
        return -1;
    set_defaults(arch, h, tokens);
    find_skipped(arch, g, h);
    if (drop_skipped(h, error) || arch_read_kinds(arch, g, h, error) ||
        read_rows(arch, ARCH_ROWS(ARRAY), arch_read_array, g, h, error) ||
        read_rows(arch, ARCH_ROWS(LIMITS), arch_read_limits, g, h, error) ||
        (listed = arch_read_recurrent(arch, g, h, error)) < 0 ||
        arch_read_networks(arch, g, h, error))
        return -1;
    derive_absent(arch, h, tokens);
    if (!listed)
        arch_set_recurrent(h);
    memset(h->layer_kind + h->layers, LAYER_FULL, sizeof h->layer_kind - h->layers);
    if (read_rows(arch, ARCH_ROWS(CHOICE), arch_read_choice, g, h, error) ||
        arch_read_flags(arch, g, h, error))
        return -1;
    arch_set_parts(arch, h);
    if (read_rows(arch, ARCH_ROWS(SAME), arch_read_same, g, h, error) != 0)
        return -1;
    if (!h->shared_inner) /* a product beyond 32 bits is of sizes that are rejected below */
        h->shared_inner = h->shared_count * h->expert_inner;
    arch_set_constants(arch, h);
    if (read_rows(arch, ARCH_ROWS(WIDTH), arch_read_width, g, h, error) != 0)
        return -1;
    arch_set_reals(arch, h);
    if (h->vocab != tokens)
        return error_set(error, ERR_BAD_INPUT,
                         "vocab_size is %" PRIu32 " but tokenizer.ggml.tokens has %" PRIu32,
                         h->vocab, tokens);
    return arch_check_hparams(arch, h, error);
}

static int check_uint(const struct arch *arch, const struct arch_row *row,
                      const struct model_hparams *h, struct error *error)
{
    double v = arch_uint_of(h, row->offset);
    size_t window = arch_window_field(arch, row->offset);
    double w = window ? arch_uint_of(h, window) : 0;
    if (w != 0 && (w < row->min || w > row->max))
        v = w;
    if (v < row->min || v > row->max)
        return error_set(error, ERR_BAD_INPUT, "%s.%s is %.0f: not between %.0f and %.0f",
                         arch->name, row->key, v, row->min, row->max);
    return 0;
}

static int check_float(const struct arch *arch, const struct arch_row *row,
                       const struct model_hparams *h, struct error *error)
{
    double v = (double)float_of(h, row->offset);
    /* with a tolerance, because the value was rounded to float; also rejects NaN */
    if (!(v >= row->min - fabs(row->min) * 1e-6 && v <= row->max + fabs(row->max) * 1e-6))
        return error_set(error, ERR_BAD_INPUT, "%s.%s is %g: not between %g and %g", arch->name,
                         row->key, v, row->min, row->max);
    return 0;
}

static bool has_key(const struct arch *arch, size_t offset)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(UINT) | ARCH_ROWS(FLAG))
        if (row->offset == offset)
            return true;
    return false;
}

/* The value of a field that has no key, by a row of WHERE and the default. */
static uint32_t settled(const struct arch *arch, const struct model_hparams *h,
                        const struct arch_row *where)
{
    const struct arch_row *row;
    if (arch_uint_of(h, where->other) == where->is)
        return (uint32_t)where->value;
    ARCH_EACH (row, arch, ARCH_ROWS(DEFAULT))
        if (row->offset == where->offset && row->layers == 0)
            return (uint32_t)row->value;
    return 0;
}

static int check_ranges(const struct arch *arch, const struct model_hparams *h, struct error *error)
{
    const struct arch_row *row;
    ARCH_EACH (row, arch, ARCH_ROWS(UINT) | ARCH_ROWS(FLAG))
        if (check_uint(arch, row, h, error) != 0)
            return -1;
    ARCH_EACH (row, arch, ARCH_ROWS(FLOAT) | ARCH_ROWS(FLOAT_OLD))
        if (check_float(arch, row, h, error) != 0)
            return -1;
    bool fixed = true;
    ARCH_EACH (row, arch, ARCH_ROWS(CONST))
        fixed &= arch_uint_of(h, row->offset) == (uint32_t)row->value;
    ARCH_EACH (row, arch, ARCH_ROWS(LACKS))
        fixed &= arch_uint_of(h, row->offset) == (uint32_t)row->value ||
                 arch_uint_of(h, row->offset) == 0 || has_key(arch, row->offset);
    ARCH_EACH (row, arch, ARCH_ROWS(WHERE))
        fixed &=
            has_key(arch, row->offset) || arch_uint_of(h, row->offset) == settled(arch, h, row);
    ARCH_EACH (row, arch, ROWS_OF_REALS)
        fixed &= float_of(h, row->offset) == real_of(h, row);
    return fixed ? 0
                 : error_set(error, ERR_BAD_INPUT, "a fixed parameter of %s has another value",
                             arch->name);
}

/* True if a row sets the field at `offset`. */
static bool has_row(const struct arch *arch, size_t offset)
{
    uint64_t kinds = ARCH_ROWS(UINT) | ARCH_ROWS(FLAG) | ARCH_ROWS(FLOAT) | ARCH_ROWS(FLOAT_OLD) |
                     ARCH_ROWS(TEXT) | ARCH_ROWS(TENSOR) | ARCH_ROWS(LACKS) | ARCH_ROWS(WIDTH) |
                     ARCH_ROWS(CONST) | ARCH_ROWS(ARRAY) | ARCH_ROWS(SHARE) | ARCH_ROWS(WHERE) |
                     ARCH_ROWS(NGRAMS) | ARCH_ROWS(CHOICE) | ROWS_OF_REALS;
    const struct arch_row *row;
    ARCH_EACH (row, arch, kinds)
        if (row->offset == offset)
            return true;
    if (offset == offsetof(struct model_hparams, streams)) /* arch_derive_streams */
        return has_row(arch, offsetof(struct model_hparams, bank_block));
    return offset == offsetof(struct model_hparams, tied_output) ||
           (offset == offsetof(struct model_hparams, index_tail) &&
            arch_first(arch->rows, ARCH_ROWS(CHOICE)));
}

/* Fields that the architecture does not use must be 0: of a shared expert, of a norm, reserved
 * ones. */
static int check_others(const struct arch *arch, const struct model_hparams *h, struct error *error)
{
    _Static_assert(sizeof *h % sizeof(uint32_t) == 0, "all fields are words");
    for (size_t at = 0; at < offsetof(struct model_hparams, layer_kind); at += sizeof(uint32_t))
        if (arch_uint_of(h, at) != 0 && !has_row(arch, at))
            return error_set(error, ERR_BAD_INPUT, "a parameter that %s does not have is not 0",
                             arch->name);
    return 0;
}

static int check_groups(const struct model_hparams *h, struct error *error)
{
    if (h->groups < 2)
        return 0;
    if (h->experts % h->groups != 0 || h->groups_used < 1 || h->groups_used > h->groups ||
        h->groups_used * (uint64_t)(h->experts / h->groups) < h->experts_used)
        return error_set(error, ERR_BAD_INPUT,
                         "%" PRIu32 " of %" PRIu32 " groups of %" PRIu32
                         " experts do not fit expert_used_count %" PRIu32,
                         h->groups_used, h->groups, h->experts, h->experts_used);
    return 0;
}

/* Streams are read before a part, and its result is added after it: parts that read or add in
 * another order know one stream alone. */
static int check_residual(const struct model_hparams *h, struct error *error)
{
    bool gated = h->residual == RESIDUAL_GATED, bank = h->residual == RESIDUAL_BANK;
    bool mixes = h->stream_steps > 0; /* else streams are weighed only */
    bool mixed = h->residual == RESIDUAL_MIXED, several = gated || bank || mixed;
    if (h->residual >= RESIDUAL__COUNT || several != (h->streams > 1) ||
        (!bank && h->streams > MODEL_STREAMS_MAX) || gated != (h->stream_rank > 0) ||
        mixed != (mixes != (h->stream_magnitude > 0)) || (mixes && !mixed) ||
        h->stream_head > mixed || bank != (h->bank_block > 0) ||
        (bank && h->streams != 1 + model_bank_sums(h, h->layers, false)))
        return error_set(error, ERR_BAD_INPUT, "%" PRIu32 " streams of an impossible kind",
                         h->streams);
    if (several && (uint64_t)h->streams * h->hidden > MODEL_ROW_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "%s: %" PRIu32 " streams of %" PRIu32 " elements are more than %d",
                         bank ? "attn_res.block_size" : "hyper_connection.count", h->streams,
                         h->hidden, MODEL_ROW_MAX);
    if (several && (h->parallel || h->router_first || h->normed_scale != 0))
        return error_set(error, ERR_BAD_INPUT,
                         "parts of a layer that do not read one after another, with %" PRIu32
                         " streams, are not supported",
                         h->streams);
    return 0;
}

int arch_check_hparams(const struct arch *arch, const struct model_hparams *h, struct error *error)
{
    if (check_ranges(arch, h, error) || check_others(arch, h, error))
        return -1;
    if (arch_check_kinds(h, error) || arch_check_recurrent(h, error) || arch_check_mla(h, error))
        return -1;
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        struct layer_attention a = model_attention_of(h, layer);
        if (layer_has_keys((enum layer_kind)h->layer_kind[layer]) &&
            arch_check_attention(&a, error))
            return -1;
    }
    if (arch_check_scaling(h, error) || arch_check_limits(arch, h, error))
        return -1;
    if (h->dense_layers >= h->layers)
        return error_set(error, ERR_BAD_INPUT,
                         "leading_dense_block_count is %" PRIu32 " of %" PRIu32
                         " layers: no layer has experts",
                         h->dense_layers, h->layers);
    if (h->experts_used > h->experts)
        return error_set(error, ERR_BAD_INPUT,
                         "expert_used_count %" PRIu32 " is more than expert_count %" PRIu32,
                         h->experts_used, h->experts);
    if (h->dense_layers > 0 && h->dense_inner == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "key '%s.feed_forward_length' is missing: the first %" PRIu32
                         " layers have no experts",
                         arch->name, h->dense_layers);
    if (h->expert_width > h->hidden)
        return error_set(error, ERR_BAD_INPUT,
                         "latents of experts with %" PRIu32 " elements are wider than layers of "
                         "%" PRIu32 ", which is not supported",
                         h->expert_width, h->hidden);
    if (h->weighted_input && h->experts_used != 1)
        return error_set(error, ERR_BAD_INPUT,
                         "expert_used_count is %" PRIu32 ": experts whose input is weighted are "
                         "supported one at a time",
                         h->experts_used);
    if (check_groups(h, error) || arch_check_flags(arch, h, error) || check_residual(h, error) ||
        arch_check_ngrams(h, error))
        return -1;
    if (h->tied_output > 1)
        return error_set(error, ERR_BAD_INPUT, "tied_output is neither 0 nor 1");
    return arch_check_parts(arch, h, error);
}
