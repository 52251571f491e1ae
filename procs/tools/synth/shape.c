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
#include "lib/synthetic/routing_law.h"
#include "lib/tensor/tensor_type.h"
#include "procs/tools/synth/layer_keys.h"
#include "procs/tools/synth/vocabulary.h"

#define FIELD_BYTES 32
#define BY_EXPERTS  (-1) /* a setting that routing_law_of gives, if it is not given */

static const struct named_shape {
    const char *name, *arch, *fields;
} shapes[] = {
#define SHAPE(name, arch, fields) {name, arch, fields},
#include "procs/tools/synth/shapes.tbl.h"
};

/* Rows of fields that a setting names; those of CONST and DEFAULT give fields a value. */
#define ROWS_OF_FIELDS                                                                             \
    (ARCH_ROWS(UINT) | ARCH_ROWS(FLAG) | ARCH_ROWS(FLOAT) | ARCH_ROWS(TEXT) | ARCH_ROWS(ARRAY) |   \
     ARCH_ROWS(TENSOR) | ARCH_ROWS(LACKS) | ARCH_ROWS(WIDTH) | ARCH_ROWS(NGRAMS) |                 \
     ARCH_ROWS(CHOICE))

/* Settings that are independent of the architecture. */
static const struct knob {
    const char *name;
    size_t offset;
    double otherwise, max;
    const char *help;
    bool layout; /* the file shows it: no key */
} knobs[] = {
    {"skew", offsetof(struct shape, skew), BY_EXPERTS, 10,
     "standard deviation of the experts' bias (popularity), 0: none", false},
    {"locality", offsetof(struct shape, locality), BY_EXPERTS, 1,
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
    {"no_rope_full", offsetof(struct shape, no_rope_full), 0, 1,
     "1: layers without a window do not rotate, where the file states which do", true},
    {"experts_every", offsetof(struct shape, experts_every), 1, 1000,
     "every so many layers, the last has experts, where the file shows which do", true},
    {"index_every", offsetof(struct shape, index_every), 1, 1000,
     "the first layer, then every so many have an indexer, where the file states which do", true},
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
    const struct arch_row *row;
    s->arch = arch_find(name, strlen(name));
    if (!s->arch)
        return error_set(error, ERR_BAD_INPUT, "unsupported architecture '%.40s'", name);
    s->h = (struct model_hparams){0};
    ARCH_EACH (row, s->arch, ROWS_OF_FIELDS)
        memcpy((char *)&s->h + row->offset, (const char *)&old + row->offset, sizeof(uint32_t));
    ARCH_EACH (row, s->arch, ARCH_ROWS(CONST) | ARCH_ROWS(DEFAULT))
        if (row->kind == ARCH_CONST || row->layers == 0)
            set_u32(s, row->offset, (uint32_t)row->value);
    return 0;
}

/* Of all layers. */
static bool set_limits(struct shape *s, const char *field, double value)
{
    const struct arch_row *row;
    ARCH_EACH (row, s->arch, ARCH_ROWS(LIMITS)) {
        if (strcmp(field, row->field) != 0)
            continue;
        float *limits = (float *)(void *)((char *)&s->h + row->offset);
        for (uint32_t layer = 0; layer < MODEL_LAYERS_MAX; layer++)
            limits[layer] = (float)value;
        return true;
    }
    return false;
}

static bool may_be_negative(const struct shape *s, const char *field)
{
    const struct arch_row *row;
    ARCH_EACH (row, s->arch, ARCH_ROWS(FLOAT))
        if (strcmp(field, row->field) == 0)
            return row->min < 0;
    return false;
}

static int set_number(struct shape *s, const char *field, const char *text, struct error *error)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(value) ||
        (value < 0 && !may_be_negative(s, field)))
        return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not a number", field, text);
    for (size_t i = 0; i < ARRAY_LEN(knobs); i++) {
        if (strcmp(field, knobs[i].name) != 0)
            continue;
        if (value > knobs[i].max)
            return error_set(error, ERR_BAD_INPUT, "%s must be at most %g", field, knobs[i].max);
        memcpy((char *)s + knobs[i].offset, &value, sizeof value);
        return 0;
    }
    if (set_limits(s, field, value))
        return 0;
    const struct arch_row *row;
    ARCH_EACH (row, s->arch, ROWS_OF_FIELDS) {
        if (strcmp(field, row->field) != 0)
            continue;
        float real = (float)value;
        if (row->kind == ARCH_FLOAT)
            memcpy((char *)&s->h + row->offset, &real, sizeof real);
        else if (value > UINT32_MAX || value != floor(value))
            return error_set(error, ERR_BAD_INPUT, "%s: '%.40s' is not a whole number", field,
                             text);
        else
            set_u32(s, row->offset, (uint32_t)value);
        return 0;
    }
    return error_set(error, ERR_BAD_INPUT, "%s has no field '%.40s' (see sluice synth --help)",
                     s->arch->name, field);
}

/* A field whose key is a text may be set to that text. */
static bool set_text(struct shape *s, const char *field, const char *text)
{
    const struct arch_row *row;
    ARCH_EACH (row, s->arch, ARCH_ROWS(TEXT)) {
        if (strcmp(row->field, field) != 0 || strcmp(row->text, text) != 0)
            continue;
        set_u32(s, row->offset, (uint32_t)row->value);
        return true;
    }
    return false;
}

/* The kinds of the layers. */
static int set_pattern(struct shape *s, const char *text, struct error *error)
{
    size_t n = strlen(text);
    if (!arch_network_key(s->arch))
        return error_set(error, ERR_BAD_INPUT,
                         "pattern: each layer of %s has a mixer and a network", s->arch->name);
    if (n == 0 || n >= sizeof s->pattern || strspn(text, "M*E") != n)
        return error_set(error, ERR_BAD_INPUT,
                         "pattern: '%.64s' is not 1 to %zu letters of M (recurrent), * (attention) "
                         "and E (experts)",
                         text, sizeof s->pattern - 1);
    memcpy(s->pattern, text, n + 1);
    return 0;
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
    if (strcmp(field, "pattern") == 0)
        return set_pattern(s, equals + 1, error);
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

/* The first layers without experts are dense_layers. */
static void set_routed(struct shape *s)
{
    struct model_hparams *h = &s->h;
    uint32_t every = s->experts_every < 1 ? 1 : (uint32_t)s->experts_every;
    if (!(arch_given_flags(s->arch) & LAYER_UNROUTED))
        return;
    if (h->dense_layers == 0)
        h->dense_layers = every - 1;
    for (uint32_t l = h->dense_layers; l < h->layers; l++)
        if ((l + 1) % every != 0)
            h->layer_flags[l] |= LAYER_UNROUTED;
}

/* As in DeepSeek-V4-Flash: the first two layers have no entries, the others some of few and of many
 * positions in turn. */
static void set_entries(struct shape *s)
{
    struct model_hparams *h = &s->h;
    if (!arch_first(s->arch->rows, ARCH_ROWS(ENTRIES)))
        return;
    for (uint32_t l = 0; l < h->layers; l++) {
        bool none = l < 2 && h->layers > 3;
        h->layer_flags[l] = none ? 0 : l % 2 == 0 ? LAYER_ENTRIES | LAYER_INDEXED : LAYER_ENTRIES;
    }
}

/* As in Hy4-preview: the first two layers have an indexer, then each of so many. */
static void set_indexed(struct shape *s)
{
    uint32_t every = s->index_every < 1 ? 1 : (uint32_t)s->index_every;
    arch_set_indexed(s->arch, &s->h);
    for (uint32_t l = 1; arch_first(s->arch->rows, ARCH_ROWS(INDEXED)) && l < s->h.layers; l++)
        if ((l - 1) % every != 0)
            s->h.layer_flags[l] &= (uint8_t)~LAYER_INDEXED;
}

static void set_kinds(struct shape *s)
{
    struct model_hparams *h = &s->h;
    arch_set_kinds(s->arch, h);
    for (uint32_t l = 0; arch_window_key(s->arch) && h->window > 0 && l < h->layers; l++)
        h->layer_kind[l] = fmod(l + 1, s->full_every < 1 ? 1 : floor(s->full_every)) == 0
                               ? LAYER_FULL
                               : LAYER_WINDOW;
    const char *pattern = s->pattern[0] ? s->pattern : "ME*E";
    for (uint32_t l = 0; arch_network_key(s->arch) && l < h->layers; l++) {
        char kind = pattern[l % strlen(pattern)];
        h->layer_kind[l] = kind == 'M' ? LAYER_RECURRENT : kind == 'E' ? LAYER_PLAIN : LAYER_FULL;
    }
    for (uint32_t l = 0; arch_rotated_key(s->arch) && s->no_rope_full == 1 && l < h->layers; l++)
        h->layer_flags[l] = h->layer_kind[l] == LAYER_FULL ? LAYER_UNROTATED : 0;
    set_indexed(s);
    set_entries(s);
    set_routed(s);
}

/* A table of n-grams belongs to the second layer, or to the first one if that has a recurrent
 * state; its parts are almost alike. */
static void set_ngrams(struct model_hparams *h)
{
    uint32_t rows = model_ngram_rows(h);
    uint32_t layer = h->layers > 1 && h->layer_kind[1] == LAYER_RECURRENT ? 1 : 0;
    if (h->ngram_rows == 0 || rows == 0 || rows > NGRAM_ROWS_MAX)
        return;
    h->layer_flags[layer] |= LAYER_NGRAMS;
    for (uint32_t i = 0; i < h->ngram_size && i < NGRAM_SIZE_MAX; i++)
        h->ngrams.multiplier[i] = 23703573157769 + i * 3594499511596;
    for (uint32_t i = 0, at = 0; i < rows; at += h->ngrams.count[i++]) {
        h->ngrams.offset[i] = at;
        h->ngrams.count[i] = (h->ngram_rows - at) / (rows - i);
    }
}

static void set_routing(struct shape *s)
{
    const struct routing_law *law = routing_law_of(s->h.experts, s->h.experts_used);
    if (s->skew == BY_EXPERTS)
        s->skew = (double)law->weights_skew;
    if (s->locality == BY_EXPERTS)
        s->locality = (double)law->weights_locality;
}

int shape_finish(struct shape *s, struct error *error)
{
    struct model_hparams *h = &s->h;
    if (h->heads == 0)
        return error_set(error, ERR_BAD_INPUT, "heads must be at least 1");
    if (h->layers < 1 || h->layers > MODEL_LAYERS_MAX) /* the arrays below have so many */
        return error_set(error, ERR_BAD_INPUT, "layers must be from 1 to %d", MODEL_LAYERS_MAX);
    arch_set_where(s->arch, h);
    arch_derive_mla(h);
    arch_derive_streams(h);
    if (h->kv_heads == 0)
        h->kv_heads = h->heads;
    if (h->head_size == 0)
        h->head_size = h->hidden / h->heads;
    if (h->value_size == 0)
        h->value_size = h->head_size;
    arch_set_shares(s->arch, h);
    if (h->rope_dims == 0)
        h->rope_dims = h->head_size;
    arch_set_constants(s->arch, h);
    arch_set_pools(s->arch, h);
    set_kinds(s);
    set_ngrams(h);
    arch_set_parts(s->arch, h);
    for (uint32_t l = h->layers; l < MODEL_LAYERS_MAX; l++)
        h->expert_limits[l] = h->dense_limits[l] = 0;
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
    if (arch_check_hparams(s->arch, h, error) != 0)
        return -1;
    set_routing(s);
    return 0;
}

static const char *key_of(const struct shape *s, size_t offset)
{
    const struct arch_row *row;
    ARCH_EACH (row, s->arch, ARCH_ROWS(UINT))
        if (row->offset == offset)
            return row->key;
    sl_panic("a field of %s without a key", s->arch->name);
}

/* A row after this one reads its field from another key. */
static bool is_replaced(const struct shape *s, const struct arch_row *row)
{
    const struct arch_row *other, *last = row;
    ARCH_EACH (other, s->arch, ARCH_ROWS(LIMITS))
        last = other->offset == row->offset ? other : last;
    return last != row;
}

/* The kinds of the layers, and the fields that differ between them. */
static void put_arrays(const struct shape *s, struct gguf_writer *w)
{
    const char *arch = s->arch->name, *kinds = arch_window_key(s->arch);
    uint32_t values[MODEL_LAYERS_MAX];
    char key[128];
    snprintf(key, sizeof key, "%s.%s", arch, kinds ? kinds : "");
    if (kinds && s->h.window > 0) /* LAYER_WINDOW is true */
        gguf_put_array(w, key, GGUF_BOOL, s->h.layer_kind, s->h.layers);
    layer_keys_put(s, w);
    const struct arch_row *row;
    ARCH_EACH (row, s->arch, ARCH_ROWS(NETWORK_KEY)) {
        for (uint32_t l = 0; l < s->h.layers; l++)
            values[l] = s->h.layer_kind[l] == LAYER_PLAIN ? s->h.expert_inner : 0;
        snprintf(key, sizeof key, "%s.%s", arch, row->key);
        gguf_put_array(w, key, GGUF_U32, values, s->h.layers);
    }
    ARCH_EACH (row, s->arch, ARCH_ROWS(ARRAY)) {
        if (get_u32(s, row->offset) == 0)
            continue;
        for (uint32_t l = 0; l < s->h.layers; l++)
            values[l] = get_u32(s, s->h.layer_kind[l] == LAYER_WINDOW ? row->offset : row->other);
        snprintf(key, sizeof key, "%s.%s", arch, key_of(s, row->other));
        gguf_put_array(w, key, GGUF_U32, values, s->h.layers);
    }
    ARCH_EACH (row, s->arch, ARCH_ROWS(LIMITS)) {
        const float *limits = (const float *)(const void *)((const char *)&s->h + row->offset);
        if (limits[0] == 0 || is_replaced(s, row)) /* of no layer */
            continue;
        snprintf(key, sizeof key, "%s.%s", arch, row->key);
        gguf_put_array(w, key, GGUF_F32, limits, s->h.layers);
    }
}

/* Does put_arrays write the key of the field? */
static bool in_array(const struct shape *s, size_t offset)
{
    const struct arch_row *row;
    ARCH_EACH (row, s->arch, ARCH_ROWS(ARRAY))
        if (row->other == offset)
            return get_u32(s, row->offset) != 0;
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
        of[i] = s->h.layer_kind[i] == LAYER_FULL ? s->h.kv_heads : 0;
    gguf_put_array(w, key, GGUF_U32, of, s->h.layers);
    return true;
}

/* Rotated pairs by axis of a position in an image: almost equal parts for three axes. */
static void put_sections(const struct shape *s, const char *row, struct gguf_writer *w)
{
    char key[128];
    int32_t pairs = (int32_t)s->h.rope_dims / 2, third = pairs / 3;
    int32_t parts[4] = {(pairs - third + 1) / 2, (pairs - third) / 2, third, 0};
    snprintf(key, sizeof key, "%s.%s", s->arch->name, row);
    gguf_put_array(w, key, GGUF_I32, parts, ARRAY_LEN(parts));
}

/* The lack of the key states the value of another field. */
static bool is_lacked(const struct shape *s, const struct arch_row *row)
{
    const struct arch_row *lacks;
    ARCH_EACH (lacks, s->arch, ARCH_ROWS(LACKS))
        if (strcmp(lacks->key, row->key) == 0 &&
            get_u32(s, lacks->offset) == (uint32_t)lacks->value)
            return true;
    return false;
}

/* An older one if the file must lack this one. */
static const char *written_key(const struct shape *s, const struct arch_row *row)
{
    const struct arch_row *old;
    ARCH_EACH (old, s->arch, ARCH_ROWS(FLOAT_OLD))
        if (old->offset == row->offset && is_lacked(s, row))
            return old->key;
    return row->key;
}

/* Required ones, and others that are not 0 and not in an array. */
static void put_field(const struct shape *s, const struct arch_row *row, struct gguf_writer *w)
{
    char key[128];
    float real;
    uint32_t value = get_u32(s, row->offset);
    if (row->offset == offsetof(struct model_hparams, index_top_k) && s->h.index_tail > 0 &&
        arch_first(s->arch->rows, ARCH_ROWS(CHOICE)))
        value *= s->h.index_block; /* positions */
    bool text = row->kind == ARCH_TEXT, number = row->kind == ARCH_UINT || row->kind == ARCH_FLOAT;
    bool required = number && (row->required || row->value != 0);
    memcpy(&real, &value, sizeof real);
    bool elsewhere = row->kind == ARCH_TENSOR || row->kind == ARCH_LACKS ||
                     row->kind == ARCH_WIDTH || row->kind == ARCH_NGRAMS ||
                     row->kind == ARCH_CHOICE;
    if (!row->key || elsewhere || in_array(s, row->offset) || (!required && value == 0))
        return;
    snprintf(key, sizeof key, "%s.%s", s->arch->name, written_key(s, row));
    if (put_heads(s, row->key, key, w) || (text && value != (uint32_t)row->value))
        return;
    if (text)
        gguf_put_text(w, key, row->text);
    else if (row->kind == ARCH_FLOAT)
        gguf_put_f32(w, key, real);
    else if (row->kind == ARCH_FLAG)
        gguf_put_bool(w, key, value != 0);
    else
        gguf_put_u32(w, key, value);
}

void shape_put_keys(const struct shape *s, struct gguf_writer *w)
{
    char key[128];
    const struct arch_row *row;
    gguf_put_text(w, "general.architecture", s->arch->name);
    gguf_put_text(w, "general.name", s->name);
    gguf_put_text(w, "general.description", "random weights, for measuring");
    gguf_put_u32(w, "general.quantization_version", 2);
    gguf_put_u32(w, "general.file_type", mix_file_type(s->mixes.mix[0]));
    ARCH_EACH (row, s->arch, ROWS_OF_FIELDS)
        put_field(s, row, w);
    ARCH_EACH (row, s->arch, ARCH_ROWS(ALSO) | ARCH_ROWS(ALSO_FIELD)) {
        snprintf(key, sizeof key, "%s.%s", s->arch->name, row->key);
        gguf_put_u32(w, key,
                     row->kind == ARCH_ALSO ? (uint32_t)row->value : get_u32(s, row->offset));
    }
    ARCH_EACH (row, s->arch, ARCH_ROWS(ONLY)) {
        if (!row->required)
            continue;
        snprintf(key, sizeof key, "%s.%s", s->arch->name, row->key);
        gguf_put_bool(w, key, row->value != 0);
    }
    put_arrays(s, w);
    ARCH_EACH (row, s->arch, ARCH_ROWS(SECTIONS))
        put_sections(s, row->key, w);
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
    for (size_t i = 0; i < ARRAY_LEN(knobs); i++) {
        char value[32] = "by the number of experts";
        if (knobs[i].otherwise != BY_EXPERTS)
            snprintf(value, sizeof value, "%g", knobs[i].otherwise);
        fprintf(out, "  %-15s %s (default %s)\n", knobs[i].name, knobs[i].help, value);
    }
    fprintf(out, "  %-15s %s (default ME*E)\n", "pattern",
            "of layers with one part: M recurrent, * attention, E experts; repeated");
}
