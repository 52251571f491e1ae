/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the sizes of a synthetic model from its options, and writes the keys of its header. */
#include "procs/tools/synth/shape.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/tensor/tensor_type.h"
#include "procs/tools/synth/vocabulary.h"

#define FIELD_BYTES 32

static const struct named_shape {
    const char *name, *arch, *fields;
} shapes[] = {
#define SHAPE(name, arch, fields) {name, arch, fields},
#include "procs/tools/synth/shapes.tbl.h"
};

/* Fields of struct model_hparams that have a key, per architecture. */
static const struct row {
    enum arch_id arch;
    const char *field, *key;
    size_t offset;
    enum { KEY_U32, KEY_F32, KEY_BOOL, KEY_TEXT } kind;
    bool required;
    const char *text; /* KEY_TEXT: the text that stands for the value, which is written for it */
    uint32_t value;
} rows[] = {
#define REQUIRED true
#define DERIVED  false
#define ARCH_UINT(id, field, key, min, max, absent)                                                \
    {ARCH_##id, #field, key, offsetof(struct model_hparams, field), KEY_U32, absent, NULL, 0},
#define ARCH_FLOAT(id, field, key, min, max)                                                       \
    {ARCH_##id, #field, key, offsetof(struct model_hparams, field), KEY_F32, true, NULL, 0},
#define ARCH_FLOAT_ELSE(id, field, key, min, max, value) ARCH_FLOAT(id, field, key, min, max)
#define ARCH_FLOAT_OR_0(id, field, key, min, max)                                                  \
    {ARCH_##id, #field, key, offsetof(struct model_hparams, field), KEY_F32, false, NULL, 0},
#define ARCH_FLAG(id, field, key)                                                                  \
    {ARCH_##id, #field, key, offsetof(struct model_hparams, field), KEY_BOOL, false, NULL, 0},
#define ARCH_TEXT(id, field, key, text, value)                                                     \
    {ARCH_##id, #field, key, offsetof(struct model_hparams, field), KEY_TEXT, false, text, value},
#define ARCH_ARRAY(id, field)                                                                      \
    {ARCH_##id, #field "_window",                                                                  \
     NULL,      offsetof(struct model_hparams, field##_window),                                    \
     KEY_U32,   false,                                                                             \
     NULL,      0},
#include "lib/model/arch/arch.tbl.h"
#undef REQUIRED
#undef DERIVED
};

static const struct {
    enum arch_id arch;
    size_t offset;
    uint32_t value;
} constants[] = {
#define ARCH_CONST(id, field, value) {ARCH_##id, offsetof(struct model_hparams, field), value},
#define ARCH_DEFAULT                 ARCH_CONST
#include "lib/model/arch/arch.tbl.h"
};

/* Fields whose key is an array if layers differ. */
static const struct {
    enum arch_id arch;
    size_t full, window;
} arrays[] = {
#define ARCH_ARRAY(id, field)                                                                      \
    {ARCH_##id, offsetof(struct model_hparams, field),                                             \
     offsetof(struct model_hparams, field##_window)},
#include "lib/model/arch/arch.tbl.h"
    {ARCH__COUNT, 0, 0},
};

/* Keys for other programs: a constant, or the field at `offset`. */
static const struct {
    enum arch_id arch;
    const char *key;
    uint32_t value;
    size_t offset;
} also[] = {
#define ARCH_ALSO(id, key, value)       {ARCH_##id, key, value, SIZE_MAX},
#define ARCH_ALSO_FIELD(id, key, field) {ARCH_##id, key, 0, offsetof(struct model_hparams, field)},
#include "lib/model/arch/arch.tbl.h"
};

static const struct {
    enum arch_id arch;
    const char *key;
} sections[] = {
#define ARCH_SECTIONS(id, key) {ARCH_##id, key},
#include "lib/model/arch/arch.tbl.h"
};

/* Settings that are independent of the architecture. */
static const struct knob {
    const char *name;
    size_t offset;
    double otherwise, max;
    const char *help;
    bool layout; /* the file shows it: no key */
} knobs[] = {
    {"skew", offsetof(struct shape, skew), 0.3, 10,
     "standard deviation of the experts' bias (popularity), 0: none", false},
    {"locality", offsetof(struct shape, locality), 0.4, 1,
     "share of the routing variance common to a group of 64 tokens", false},
    {"update", offsetof(struct shape, update), 4, 100,
     "variance that all layers add to the residual stream of variance 1", false},
    {"sharpness", offsetof(struct shape, sharpness), 1.5, 20,
     "standard deviation of the router logits (inequality of gate weights)", false},
    {"full_every", offsetof(struct shape, full_every), 6, 1000,
     "with a window: every so many layers, the last has none", true},
    {"tied", offsetof(struct shape, tied), 0, 1, "1: the output matrix is the embedding", true},
    {"joined", offsetof(struct shape, joined), 0, 1, "1: gate and up of the experts in one tensor",
     true},
    {"full_v", offsetof(struct shape, full_v), 1, 1,
     "0: no attn_v in layers without a window, where that is possible", true},
};

static void set_u32(struct shape *s, size_t offset, uint32_t value)
{
    memcpy((char *)&s->h + offset, &value, sizeof value);
}

static uint32_t get_u32(const struct shape *s, size_t offset)
{
    uint32_t value;
    memcpy(&value, (const char *)&s->h + offset, sizeof value);
    return value;
}

/* Keeps the sizes that the new architecture also has. */
static int set_arch(struct shape *s, const char *name, struct error *error)
{
    struct model_hparams old = s->h;
    s->arch = arch_find(name, strlen(name));
    if (s->arch == ARCH__COUNT)
        return error_set(error, ERR_BAD_INPUT, "unsupported architecture '%.40s'", name);
    s->h = (struct model_hparams){0};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].arch == s->arch)
            memcpy((char *)&s->h + rows[i].offset, (const char *)&old + rows[i].offset,
                   sizeof(uint32_t));
    for (size_t i = 0; i < ARRAY_LEN(constants); i++)
        if (constants[i].arch == s->arch)
            set_u32(s, constants[i].offset, constants[i].value);
    return 0;
}

static int set_number(struct shape *s, const char *field, const char *text, struct error *error)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(value) || value < 0)
        return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not a number", field, text);
    for (size_t i = 0; i < ARRAY_LEN(knobs); i++) {
        if (strcmp(field, knobs[i].name) != 0)
            continue;
        if (value > knobs[i].max)
            return error_set(error, ERR_BAD_INPUT, "%s must be at most %g", field, knobs[i].max);
        memcpy((char *)s + knobs[i].offset, &value, sizeof value);
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].arch != s->arch || strcmp(field, rows[i].field) != 0)
            continue;
        float real = (float)value;
        if (rows[i].kind == KEY_F32)
            memcpy((char *)&s->h + rows[i].offset, &real, sizeof real);
        else if (value > UINT32_MAX || value != floor(value))
            return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not a whole number", field,
                             text);
        else
            set_u32(s, rows[i].offset, (uint32_t)value);
        return 0;
    }
    return error_set(error, ERR_BAD_INPUT, "%s has no field '%.40s' (see sluice synth --help)",
                     arch_name(s->arch), field);
}

/* A field whose key is a text may be set to that text. */
static bool set_text(struct shape *s, const char *field, const char *text)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *row = &rows[i];
        if (row->arch != s->arch || row->kind != KEY_TEXT || strcmp(row->field, field) != 0 ||
            strcmp(row->text, text) != 0)
            continue;
        set_u32(s, row->offset, row->value);
        return true;
    }
    return false;
}

int shape_set(struct shape *s, const char *setting, struct error *error)
{
    const char *equals = strchr(setting, '=');
    char field[FIELD_BYTES];
    size_t n = equals ? (size_t)(equals - setting) : 0;
    if (n == 0 || n >= sizeof field)
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is not of the form field=value", setting);
    memcpy(field, setting, n);
    field[n] = 0;
    if (strcmp(field, "arch") == 0)
        return set_arch(s, equals + 1, error);
    if (set_text(s, field, equals + 1))
        return 0;
    return set_number(s, field, equals + 1, error);
}

static int set_all(struct shape *s, const char *fields, struct error *error)
{
    char copy[640], *rest = copy;
    sl_assert(strlen(fields) < sizeof copy);
    strcpy(copy, fields);
    for (char *setting; (setting = strsep(&rest, " ")) != NULL;)
        if (*setting && shape_set(s, setting, error) != 0)
            return -1;
    return 0;
}

static int unknown(const char *name, struct error *error)
{
    char list[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < ARRAY_LEN(shapes) && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 shapes[i].name);
    return error_set(error, ERR_BAD_INPUT, "unknown shape '%.40s'; expected one of: %s", name,
                     list);
}

int shape_named(struct shape *s, const char *name, struct error *error)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        if (strcmp(shapes[i].name, name) != 0)
            continue;
        *s = (struct shape){.mixes = {{MIX_Q4_0}, 1}, .seed = 1};
        snprintf(s->name, sizeof s->name, "%s", name);
        for (size_t k = 0; k < ARRAY_LEN(knobs); k++)
            memcpy((char *)s + knobs[k].offset, &knobs[k].otherwise, sizeof(double));
        return set_arch(s, shapes[i].arch, error) != 0 ? -1 : set_all(s, shapes[i].fields, error);
    }
    return unknown(name, error);
}

int shape_finish(struct shape *s, struct error *error)
{
    struct model_hparams *h = &s->h;
    if (h->heads == 0)
        return error_set(error, ERR_BAD_INPUT, "heads must be at least 1");
    arch_derive_mla(h);
    if (h->kv_heads == 0)
        h->kv_heads = h->heads;
    if (h->head_size == 0)
        h->head_size = h->hidden / h->heads;
    if (h->value_size == 0)
        h->value_size = h->head_size;
    if (h->rope_dims == 0)
        h->rope_dims = h->head_size;
    arch_set_kinds(s->arch, h);
    for (uint32_t l = 0; arch_window_key(s->arch) && h->window > 0 && l < h->layers; l++)
        h->layer_kind[l] = fmod(l + 1, s->full_every < 1 ? 1 : floor(s->full_every)) == 0
                               ? LAYER_FULL
                               : LAYER_WINDOW;
    h->tied_output = s->tied == 1;
    arch_derive_scaling(h);
    if (h->shared_inner == 0)
        h->shared_inner = h->shared_count * h->expert_inner;
    arch_set_reals(s->arch, h);
    if (h->skipped_layers > 0)
        return error_set(error, ERR_BAD_INPUT,
                         "skipped_layers: blocks for drafting are not written; it must be 0");
    if (h->vocab < VOCABULARY_MIN)
        return error_set(error, ERR_BAD_INPUT,
                         "vocab must be at least %u: %u bytes, merges and the end token",
                         VOCABULARY_MIN, 256);
    return arch_check_hparams(s->arch, h, error);
}

/* The kinds of the layers, and the fields that differ between them. */
static void put_arrays(const struct shape *s, struct gguf_writer *w)
{
    const char *arch = arch_name(s->arch), *kinds = arch_window_key(s->arch);
    uint32_t values[MODEL_LAYERS_MAX];
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, kinds ? kinds : "");
    if (kinds && s->h.window > 0) /* LAYER_WINDOW is true */
        gguf_put_array(w, key, GGUF_BOOL, s->h.layer_kind, s->h.layers);
    for (size_t i = 0; i < ARRAY_LEN(arrays); i++) {
        if (arrays[i].arch != s->arch || get_u32(s, arrays[i].window) == 0)
            continue;
        for (uint32_t l = 0; l < s->h.layers; l++)
            values[l] =
                get_u32(s, s->h.layer_kind[l] == LAYER_WINDOW ? arrays[i].window : arrays[i].full);
        for (size_t r = 0; r < ARRAY_LEN(rows); r++)
            if (rows[r].arch == s->arch && rows[r].key && rows[r].offset == arrays[i].full)
                snprintf(key, sizeof key, "%s.%s", arch, rows[r].key);
        gguf_put_array(w, key, GGUF_U32, values, s->h.layers);
    }
}

/* Does put_arrays write the key of the field? */
static bool in_array(const struct shape *s, size_t offset)
{
    for (size_t i = 0; i < ARRAY_LEN(arrays); i++)
        if (arrays[i].arch == s->arch && arrays[i].full == offset)
            return get_u32(s, arrays[i].window) != 0;
    return false;
}

/* The key heads of each layer, if it states which are recurrent. */
static bool put_heads(const struct shape *s, const char *row, const char *key,
                      struct gguf_writer *w)
{
    bool heads = false;
    const char *list = arch_recurrent_key(s->arch, &heads);
    if (!list || !heads || strcmp(list, row) != 0)
        return false;
    uint32_t of[MODEL_LAYERS_MAX];
    for (uint32_t i = 0; i < s->h.layers; i++)
        of[i] = s->h.layer_kind[i] == LAYER_RECURRENT ? 0 : s->h.kv_heads;
    gguf_put_array(w, key, GGUF_U32, of, s->h.layers);
    return true;
}

/* Rotated pairs by axis of a position in an image: almost equal parts for three axes. */
static void put_sections(const struct shape *s, const char *row, struct gguf_writer *w)
{
    char key[128];
    int32_t pairs = (int32_t)s->h.rope_dims / 2, third = pairs / 3;
    int32_t parts[4] = {(pairs - third + 1) / 2, (pairs - third) / 2, third, 0};
    snprintf(key, sizeof key, "%s.%s", arch_name(s->arch), row);
    gguf_put_array(w, key, GGUF_I32, parts, ARRAY_LEN(parts));
}

void shape_put_keys(const struct shape *s, struct gguf_writer *w)
{
    char key[128];
    const char *arch = arch_name(s->arch);
    gguf_put_text(w, "general.architecture", arch);
    gguf_put_text(w, "general.name", s->name);
    gguf_put_text(w, "general.description", "random weights, for measuring");
    gguf_put_u32(w, "general.quantization_version", 2);
    gguf_put_u32(w, "general.file_type", mix_file_type(s->mixes.mix[0]));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].arch != s->arch || !rows[i].key || in_array(s, rows[i].offset))
            continue;
        float real;
        memcpy(&real, (const char *)&s->h + rows[i].offset, sizeof real);
        snprintf(key, sizeof key, "%s.%s", arch, rows[i].key);
        if (!rows[i].required && get_u32(s, rows[i].offset) == 0)
            continue;
        if (put_heads(s, rows[i].key, key, w))
            continue;
        if (rows[i].kind == KEY_TEXT) {
            if (get_u32(s, rows[i].offset) == rows[i].value)
                gguf_put_text(w, key, rows[i].text);
        } else if (rows[i].kind == KEY_F32)
            gguf_put_f32(w, key, real);
        else if (rows[i].kind == KEY_BOOL)
            gguf_put_bool(w, key, get_u32(s, rows[i].offset) != 0);
        else
            gguf_put_u32(w, key, get_u32(s, rows[i].offset));
    }
    for (size_t i = 0; i < ARRAY_LEN(also); i++) {
        if (also[i].arch != s->arch)
            continue;
        snprintf(key, sizeof key, "%s.%s", arch, also[i].key);
        gguf_put_u32(w, key,
                     also[i].offset == SIZE_MAX ? also[i].value : get_u32(s, also[i].offset));
    }
    put_arrays(s, w);
    for (size_t i = 0; i < ARRAY_LEN(sections); i++)
        if (sections[i].arch == s->arch)
            put_sections(s, sections[i].key, w);
    gguf_put_u64(w, "synth.seed", s->seed);
    for (size_t i = 0; i < ARRAY_LEN(knobs); i++) {
        if (knobs[i].layout)
            continue;
        double value;
        memcpy(&value, (const char *)s + knobs[i].offset, sizeof value);
        snprintf(key, sizeof key, "synth.%s", knobs[i].name);
        gguf_put_f32(w, key, (float)value);
    }
}

void shape_help(FILE *out)
{
    fprintf(out, "\nShapes:\n");
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        fprintf(out, "  %-15s arch=%s %s\n", shapes[i].name, shapes[i].arch, shapes[i].fields);
    fprintf(out, "\nKeys: arch, those above, and for the routing:\n");
    for (size_t i = 0; i < ARRAY_LEN(knobs); i++)
        fprintf(out, "  %-15s %s (default %g)\n", knobs[i].name, knobs[i].help, knobs[i].otherwise);
}
