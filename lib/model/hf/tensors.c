/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of GGUF, their sources in the checkpoint and their conversion: families. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/hf/internal.h"
#include "lib/tensor/tensor_type.h"

#define TURNED_MAX GIB /* of a plane, which is held in memory whole */

enum storage {
    STORAGE_TYPE,
    STORAGE_PACKED,
    STORAGE_F32,
    STORAGE_PRODUCT,
    STORAGE_MXFP4,
    STORAGE_IDS
};
enum planes { PLANES_ONE, PLANES_GROUPS, PLANES_HEADS, PLANES_WINDOW_HEADS, PLANES_EXPERTS };

static const struct form_row {
    enum storage storage;
    enum hf_value value;
    bool turned;
    enum planes planes;
    enum hf_axis_name rows, columns;
} forms[] = {
#define HF_FORM(name, storage, value, turned, planes, rows, columns)                               \
    [HF_FORM_##name] = {STORAGE_##storage, HF_VALUE_##value, (turned),                             \
                        PLANES_##planes,   HF_AXIS_##rows,   HF_AXIS_##columns},
#include "lib/model/hf/rows.tbl.h"
};

#define NOT_ROTATED 1e30f /* divides a frequency to 0 */
#define MADE_MAX    65536u

/* The end of the name of a tensor that is no weight; all other tensors of a layer must have a
 * row. */
#define UNUSED_END ".rotary_emb.inv_freq"

/* Where the text model's names begin, in a checkpoint with other models around it. */
static const struct {
    const char *from, *to;
} prefixes[] = {{"", ""}, {"model.", "model.language_model."}, {"", "language_model."}};

struct work {
    struct hf_model *hf;
    const struct hf_shape *shape;
    const json_t *config;
    size_t prefix; /* row of prefixes */
};

const struct safetensor *hf_find(const struct hf_model *hf, size_t prefix, const char *name)
{
    char full[HF_NAME_BYTES];
    size_t n = strlen(prefixes[prefix].from);
    if (strncmp(name, prefixes[prefix].from, n) != 0)
        return safetensors_find(&hf->files, name);
    snprintf(full, sizeof full, "%s%s", prefixes[prefix].to, name + n);
    return safetensors_find(&hf->files, full);
}

/* Or what is packed in its place. */
static const struct safetensor *find(const struct work *w, const char *name, size_t prefix)
{
    const struct safetensor *s = hf_find(w->hf, prefix, name);
    char packed[HF_NAME_BYTES];
    if (s || w->shape->packed_bits == 0)
        return s;
    snprintf(packed, sizeof packed, "%.*s_packed", (int)SAFETENSORS_NAME_MAX, name);
    return hf_find(w->hf, prefix, packed);
}

struct hf_tensor *hf_add_tensor(struct hf_model *hf, struct error *error)
{
    if (hf->tensor_count == hf->tensor_capacity) {
        uint32_t capacity = hf->tensor_capacity ? hf->tensor_capacity * 2 : 256;
        struct hf_tensor *bigger = reallocarray(hf->tensors, capacity, sizeof *bigger);
        if (!bigger) {
            error_set(error, ERR_NO_MEMORY, "out of memory (%" PRIu32 " tensors)", capacity);
            return NULL;
        }
        hf->tensors = bigger;
        hf->tensor_capacity = capacity;
    }
    struct hf_tensor *t = &hf->tensors[hf->tensor_count++];
    *t = (struct hf_tensor){.source = hf->source_count, .planes = 1};
    return t;
}

/* ---- the form of a tensor ---- */

/* A vector in more dimensions, all others 1. */
static bool is_vector(const struct safetensor *s)
{
    uint32_t longer = 0;
    for (uint32_t i = 0; i < s->dims; i++)
        longer += s->shape[i] != 1;
    return s->dims > 3 && longer <= 1;
}

static uint64_t elements_of(const struct safetensor *s)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < s->dims; i++)
        elements *= s->shape[i];
    return elements;
}

/* What the elements of a source are. */
static enum hf_form form_of(const struct form_row *f, uint32_t type)
{
    if (f->storage == STORAGE_IDS)
        return HF_IDS;
    if (f->storage == STORAGE_PRODUCT)
        return HF_TIMES;
    if (f->storage == STORAGE_MXFP4 || f->storage == STORAGE_PACKED ||
        (f->storage == STORAGE_TYPE && type == SAFETENSORS_I8))
        return HF_MXFP4;
    if (f->storage == STORAGE_TYPE && type == SAFETENSORS_I32)
        return HF_INTS;
    return type == SAFETENSORS_F8_E4M3 ? HF_FP8 : HF_FLOATS;
}

static bool type_fits(enum hf_form form, enum storage storage, uint32_t type)
{
    switch (form) {
    case HF_IDS: return type == SAFETENSORS_I32 || type == SAFETENSORS_I64;
    case HF_MXFP4: return type == (storage == STORAGE_TYPE ? SAFETENSORS_I8 : SAFETENSORS_U8);
    case HF_INTS:
    case HF_FP8: return true;
    default: return type < SAFETENSORS_FIRST;
    }
}

/* Type and sizes of the source. planes: that are one after the other in it. */
static int read_source(struct hf_tensor *t, const struct safetensor *s, const struct form_row *f,
                       uint32_t planes, struct error *error)
{
    bool mxfp4 = f->storage == STORAGE_MXFP4; /* else two elements are a byte of a row */
    t->type = s->type;
    t->form = form_of(f, s->type);
    if (!type_fits(t->form, f->storage, s->type) || (t->form == HF_INTS && t->bits == 0))
        return error_set(error, ERR_BAD_INPUT, "tensor %s has another type than %s", s->name,
                         t->form == HF_MXFP4 ? "U8"
                         : t->form == HF_IDS ? "I32 and I64"
                                             : "F32, F16 and BF16");
    if (t->form == HF_FP8 && (f->storage == STORAGE_F32 || f->planes == PLANES_EXPERTS))
        return error_set(error, ERR_BAD_INPUT, "tensor %s: FP8 is not supported here", s->name);
    bool vector = is_vector(s) && !mxfp4;
    uint32_t dims = vector ? 1 : mxfp4 ? s->dims - 1 : s->dims; /* the last one: bytes of a block */
    if (dims < 1 || dims > 3 || s->bytes == 0 || (mxfp4 && s->shape[dims] != HF_MXFP4_BYTES))
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s has %" PRIu32 " dimensions and %" PRIu64 " bytes", s->name,
                         s->dims, s->bytes);
    t->source_columns = vector ? elements_of(s) : s->shape[dims - 1];
    uint64_t rows = (dims > 1 ? s->shape[0] : 1) * (dims > 2 ? s->shape[1] : 1);
    if (planes == 0 || rows % planes != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s: its %" PRIu64 " rows are not those of %" PRIu32 " parts",
                         s->name, rows, planes);
    t->row_bytes = s->bytes / rows;
    t->source_rows = rows / planes;
    uint64_t each = t->form == HF_INTS ? 32 / t->bits : mxfp4 ? HF_MXFP4_ELEMS : 2;
    if ((t->form == HF_MXFP4 || t->form == HF_INTS) &&
        mul_overflows(t->source_columns, each, &t->source_columns))
        return error_set(error, ERR_BAD_INPUT, "tensor %s is too large", s->name);
    return 0;
}

/* A vector becomes a matrix of so many rows. */
static int divide(struct hf_tensor *t, const struct safetensor *s, uint32_t rows,
                  struct error *error)
{
    if (t->source_rows != 1 || rows == 0 || t->source_columns % rows != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s is not a vector of %" PRIu32 " equal groups", s->name, rows);
    t->source_rows = rows;
    t->source_columns /= rows;
    t->row_bytes /= rows;
    return 0;
}

static int set_types(const struct work *w, struct hf_tensor *t, const struct safetensor *s,
                     const struct form_row *f, struct error *error)
{
    bool moved = f->turned || t->column_axis.segments > 0;
    bool floats = f->storage == STORAGE_F32 || t->form == HF_TIMES;
    t->made_type = floats || t->form == HF_IDS ? TENSOR_F32
                   : t->form == HF_MXFP4       ? TENSOR_MXFP4
                   : t->form != HF_INTS        ? t->type
                   : t->bits == 4              ? TENSOR_Q4_0
                                               : TENSOR_Q8_0;
    if ((t->form == HF_MXFP4 || t->form == HF_INTS) && moved)
        return error_set(error, ERR_BAD_INPUT, "tensor %s: %s is not supported here", s->name,
                         t->form == HF_MXFP4 ? "MXFP4" : "what is packed");
    t->block_columns = w->shape->packed_group ? w->shape->packed_group : t->source_columns;
    if (t->form == HF_FP8) {
        if (w->shape->block_rows == 0 || s->dims != 2)
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s is FP8, and config.json names no blocks with a scale",
                             s->name);
        t->block_rows = w->shape->block_rows;
        t->block_columns = w->shape->block_columns;
        t->made_type = moved ? TENSOR_BF16 : w->hf->fp8_type;
        if (!tensor_type_row_bytes(t->made_type, t->columns, &t->made_row_bytes))
            t->made_type = TENSOR_BF16;
    }
    uint64_t bytes;
    const struct tensor_type_info *made = tensor_type_info(t->made_type);
    if (made && t->columns % made->block_elems != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s: rows of %" PRIu64 " elements are no multiple of %" PRIu32,
                         s->name, t->columns, made->block_elems);
    if (!tensor_type_row_bytes(t->made_type, t->columns, &t->made_row_bytes) ||
        mul_overflows(t->made_row_bytes, t->rows, &bytes) ||
        mul_overflows(bytes, t->planes, &bytes) || bytes >= GGUF_FILE_MAX ||
        (f->turned && s->bytes / (t->stacked ? t->planes : 1) > TURNED_MAX))
        return error_set(error, ERR_BAD_INPUT, "tensor %s is too large", s->name);
    t->value = f->value;
    t->turned = f->turned;
    t->same = t->form == HF_FLOATS && t->made_type == t->type && t->value == HF_VALUE_SAME &&
              !moved && t->row_axis.segments == 0;
    return 0;
}

/* Sets what follows from the (first) source; planes: of the tensor. */
static int describe(const struct work *w, struct hf_tensor *t, const struct safetensor *s,
                    const struct form_row *f, uint32_t planes, struct error *error)
{
    t->planes = planes;
    t->hidden = w->shape->size[HF_SIZE_hidden];
    t->bits = w->shape->packed_bits;
    if (read_source(t, s, f, t->stacked ? planes : 1, error) ||
        (f->planes == PLANES_GROUPS && divide(t, s, w->shape->size[HF_SIZE_groups], error)))
        return -1;
    uint64_t across = f->turned ? t->source_columns : t->source_rows;
    uint64_t along = f->turned ? t->source_rows : t->source_columns;
    if (!hf_axis_of(&t->row_axis, f->rows, w->shape, across) ||
        !hf_axis_of(&t->column_axis, f->columns, w->shape, along))
        return error_set(error, ERR_BAD_INPUT,
                         "tensor %s: %" PRIu64 " rows of %" PRIu64
                         " do not fit the sizes in config.json",
                         s->name, t->source_rows, t->source_columns);
    t->rows = t->row_axis.count;
    t->columns = t->column_axis.count;
    return set_types(w, t, s, f, error);
}

static void put(struct hf_model *hf, const struct hf_tensor *t, const char *gguf, bool three)
{
    uint64_t ne[3] = {t->columns, t->rows, t->planes};
    uint32_t type = t->form == HF_IDS ? GGUF_TYPE_I32 : t->made_type;
    gguf_put_tensor(hf->gguf, gguf, type, three ? 3 : t->rows > 1 ? 2 : 1, ne);
}

/* ---- dense tensors ---- */

static int put_dense(const struct work *w, const struct hf_row *row, uint32_t layer, bool tied,
                     struct error *error)
{
    char name[HF_NAME_BYTES], gguf[MODEL_NAME_BYTES];
    const struct form_row *f = &forms[row->form];
    snprintf(name, sizeof name, row->field, layer);
    snprintf(gguf, sizeof gguf, row->key, layer);
    const struct safetensor *s = find(w, name, w->prefix);
    if (row->presence == HF_PRESENCE_OPTIONAL && (!s || tied))
        return 0;
    if (!s)
        return hf_missing(name, error);
    struct hf_tensor *t = hf_add_tensor(w->hf, error);
    if (!t || hf_add_source(w->hf, s, error))
        return -1;
    t->stacked = true;
    sl_assert(f->planes != PLANES_EXPERTS);
    uint32_t planes = f->planes == PLANES_HEADS          ? w->shape->heads
                      : f->planes == PLANES_WINDOW_HEADS ? w->shape->size[HF_SIZE_window_heads]
                                                         : 1;
    if (describe(w, t, s, f, planes, error) || hf_add_scales(w->hf, t, error))
        return -1;
    snprintf(name, sizeof name, row->with ? row->with : "", layer);
    if (row->with && hf_add_factor(w->hf, t, find(w, name, w->prefix), name, error))
        return -1;
    put(w->hf, t, gguf, f->planes >= PLANES_HEADS);
    return 0;
}

/* ---- experts ---- */

#define ROWS_OF_EXPERTS (HF_ROWS(EXPERT) | HF_ROWS(EXPERTS))

static const struct safetensor *find_expert(const struct work *w, const struct hf_row *row,
                                            uint32_t layer, uint32_t expert,
                                            char name[HF_NAME_BYTES])
{
    if (row->kind != HF_EXPERT)
        snprintf(name, HF_NAME_BYTES, row->field, layer);
    else
        snprintf(name, HF_NAME_BYTES, row->field, layer, expert);
    return find(w, name, w->prefix);
}

/* The sources of the experts; the first one was described. */
static int add_experts(const struct work *w, const struct hf_row *row, uint32_t layer,
                       struct error *error)
{
    char name[HF_NAME_BYTES];
    const struct safetensor *first = NULL;
    for (uint32_t e = 0; e < (row->kind == HF_EXPERTS ? 1 : w->shape->experts); e++) {
        const struct safetensor *s = find_expert(w, row, layer, e, name);
        if (!s)
            return hf_missing(name, error);
        if (hf_add_source(w->hf, s, error))
            return -1;
        if (!first)
            first = s;
        if (s->type != first->type || s->dims != first->dims ||
            memcmp(s->shape, first->shape, sizeof s->shape) != 0)
            return error_set(error, ERR_BAD_INPUT,
                             "tensor %s differs in type or shape from expert 0 of its layer", name);
    }
    return 0;
}

static int put_experts(const struct work *w, const struct hf_row *row, uint32_t layer,
                       struct error *error)
{
    char name[HF_NAME_BYTES], gguf[MODEL_NAME_BYTES];
    const struct safetensor *s = find_expert(w, row, layer, 0, name);
    struct hf_tensor *t = hf_add_tensor(w->hf, error);
    if (!t)
        return -1;
    if (!s)
        return hf_missing(name, error);
    t->experts = w->shape->experts;
    t->stacked = row->kind == HF_EXPERTS;
    if (describe(w, t, s, &forms[row->form], t->experts, error) ||
        add_experts(w, row, layer, error) || hf_add_scales(w->hf, t, error))
        return -1;
    snprintf(gguf, sizeof gguf, row->key, layer);
    put(w->hf, t, gguf, true);
    return 0;
}

/* Where networks are layers of their own, only these have experts. */
static bool has_experts(const struct work *w, uint32_t layer)
{
    const struct hf_shape *s = w->shape;
    if (hf_first(s->arch->rows, HF_ROWS(PATTERN)))
        return s->network[layer];
    return layer >= s->dense_layers && !s->unrouted[layer];
}

static bool present(const struct work *w, enum hf_presence presence, uint32_t layer)
{
    bool experts = has_experts(w, layer);
    switch (presence) {
    case HF_PRESENCE_REQUIRED:
    case HF_PRESENCE_OPTIONAL: return true;
    case HF_PRESENCE_DENSE: return !experts;
    case HF_PRESENCE_EXPERTS: return experts;
    case HF_PRESENCE_SHARED: return experts && !w->shape->unshared;
    case HF_PRESENCE_FULL: return !w->shape->other[layer] && !w->shape->network[layer];
    case HF_PRESENCE_OTHER: return w->shape->other[layer];
    }
    sl_panic("presence %d", (int)presence);
}

/* Of the rows for the same tensor of a layer, the first whose source is there; NULL: the row is not
 * the first of them. */
static const struct hf_row *choose(const struct work *w, const struct hf_row *row, uint64_t kinds,
                                   uint32_t layer)
{
    char name[HF_NAME_BYTES];
    const struct hf_row *other;
    bool after = false;
    HF_EACH (other, w->shape->arch, kinds) {
        bool same = strcmp(other->key, row->key) == 0 && present(w, other->presence, layer);
        after = after || other == row;
        if (same && !after)
            return NULL;
        if (same && find_expert(w, other, layer, 0, name))
            return other;
    }
    return row;
}

static int put_layer(const struct work *w, uint32_t layer, struct error *error)
{
    const struct hf_row *row;
    HF_EACH (row, w->shape->arch, HF_ROWS(DENSE)) {
        if (!strchr(row->field, '%') || !present(w, row->presence, layer))
            continue;
        const struct hf_row *chosen = choose(w, row, HF_ROWS(DENSE), layer);
        if (chosen && put_dense(w, chosen, layer, false, error))
            return -1;
    }
    if (!has_experts(w, layer))
        return 0;
    HF_EACH (row, w->shape->arch, ROWS_OF_EXPERTS) {
        const struct hf_row *chosen = choose(w, row, ROWS_OF_EXPERTS, layer);
        if (chosen && put_experts(w, chosen, layer, error))
            return -1;
    }
    return 0;
}

/* ---- numbers of the configuration ---- */

/* A number of a list; 0: it is none that a frequency can be divided by. */
static float factor_at(const json_t *list, uint32_t i)
{
    double x = json_number_value(json_array_get(list, i));
    return x >= (double)FLT_MIN && x <= (double)FLT_MAX ? (float)x : 0;
}

/* Space for a tensor of n numbers; NULL with *error. */
static float *make_tensor(const struct work *w, const char *gguf, uint32_t n, struct error *error)
{
    float *bigger = reallocarray(w->hf->made, w->hf->made_count + n, sizeof *bigger);
    if (!bigger) {
        error_set(error, ERR_NO_MEMORY, "out of memory (numbers of config.json)");
        return NULL;
    }
    w->hf->made = bigger;
    struct hf_tensor *t = hf_add_tensor(w->hf, error);
    if (!t)
        return NULL;
    *t = (struct hf_tensor){.form = HF_MADE,
                            .planes = 1,
                            .rows = 1,
                            .columns = n,
                            .made_type = TENSOR_F32,
                            .made_row_bytes = n * sizeof(float),
                            .made = w->hf->made_count};
    w->hf->made_count += n;
    put(w->hf, t, gguf, false);
    return bigger + t->made;
}

static int put_made(const struct work *w, const struct hf_row *row, struct error *error)
{
    const json_t *list = hf_field(w->config, row->field);
    const char *part_field = row->kind == HF_UNROTATED ? row->part : NULL;
    const json_t *part = part_field ? hf_field(w->config, part_field) : NULL;
    uint32_t n = (uint32_t)json_array_size(list);
    if (!part_field && !list)
        return 0;
    if (part_field && hf_full_number(w->config, w->shape, row->field, row->with, "", &n, error))
        return -1;
    n = part_field ? n / 2 : n;
    double x = json_number_value(part) * (double)n;
    if (n < 1 || n > MADE_MAX || (part_field && !(x >= 0 && x <= (double)n)))
        return error_set(error, ERR_BAD_INPUT, "%s is out of range",
                         part_field ? part_field : row->field);
    for (uint32_t i = 0; i < n && !part_field; i++)
        if (factor_at(list, i) <= 0)
            return error_set(error, ERR_BAD_INPUT, "%s: element %" PRIu32 " is no positive number",
                             row->field, i);
    float *made = make_tensor(w, row->key, n, error);
    for (uint32_t i = 0; made && i < n; i++)
        made[i] = part_field ? (i < (uint32_t)x ? 1 : NOT_ROTATED) : factor_at(list, i);
    return made ? 0 : -1;
}

/* Of the type llama3 (Llama 3.1): long waves turn `factor` times more slowly, short ones as before.
 */
struct llama3 {
    double factor, low, high, context;
};

static float llama3_divisor(const struct llama3 *l, double wave)
{
    if (wave < l->context / l->high)
        return 1;
    if (wave > l->context / l->low || l->high == l->low)
        return (float)l->factor;
    double smooth = (l->context / wave - l->low) / (l->high - l->low);
    return (float)(1 / ((1 - smooth) / l->factor + smooth));
}

static int put_llama3(const struct work *w, const struct hf_row *row, struct error *error)
{
    const json_t *c = w->config;
    const struct llama3 l = {
        .factor = json_number_value(hf_field(c, "factor")),
        .low = json_number_value(hf_field(c, "low_freq_factor")),
        .high = json_number_value(hf_field(c, "high_freq_factor")),
        .context = json_number_value(hf_field(c, "original_max_position_embeddings"))};
    double theta, size = json_number_value(hf_field(c, "head_dim"));
    if (!hf_is_string(hf_field(c, "rope_type"), "llama3"))
        return 0;
    if (hf_number_of_kind(c, w->shape, row->field, false, &theta, error))
        return -1;
    if (!(l.factor >= 1 && l.factor <= (double)FLT_MAX) || !(l.low > 0) || !(l.high >= l.low) ||
        !(l.context >= 1) || !(theta >= 1) || !(size >= 2 && size <= 2 * MADE_MAX))
        return error_set(error, ERR_BAD_INPUT, "numbers of rope_scaling are out of range");
    float rotated = (float)(size * (double)row->rotated);
    uint32_t n = (uint32_t)size / 2;
    float *made = make_tensor(w, row->key, n, error);
    for (uint32_t i = 0; made && i < n; i++) {
        float frequency = 1 / powf((float)theta, (float)(2 * i) / rotated);
        bool turns = (float)(2 * i) < rotated;
        made[i] = turns ? llama3_divisor(&l, 2 * M_PI / (double)frequency) : 1;
    }
    return made ? 0 : -1;
}

/* ---- all ---- */

/* True for a tensor of a layer of the model. */
static bool is_of_layer(const struct work *w, const char *name)
{
    char root[HF_NAME_BYTES] = "";
    size_t from = strlen(prefixes[w->prefix].from);
    const struct hf_row *row;
    HF_EACH (row, w->shape->arch, HF_ROWS(DENSE)) {
        const char *number = strchr(row->field, '%');
        if (!number)
            continue;
        snprintf(root, sizeof root, "%s%.*s", prefixes[w->prefix].to,
                 (int)(number - row->field - (ptrdiff_t)from), row->field + from);
        break;
    }
    size_t n = strlen(root), end = strlen(UNUSED_END), all = strlen(name);
    if (strncmp(name, root, n) != 0 || strtoul(name + n, NULL, 10) >= w->shape->layers)
        return false;
    return all <= end || strcmp(name + all - end, UNUSED_END) != 0;
}

/* A tensor of a layer that no row names belongs to a form of the model that is not known. */
static int check_rest(const struct work *w, struct error *error)
{
    const struct hf_model *hf = w->hf;
    bool *used = calloc(hf->files.count + 1, sizeof *used);
    if (!used)
        return error_set(error, ERR_NO_MEMORY, "out of memory (names of tensors)");
    for (uint32_t i = 0; i < hf->source_count; i++)
        used[hf->sources[i]] = true;
    int status = 0;
    for (uint32_t i = 0; i < hf->files.count && status == 0; i++)
        if (!used[i] && is_of_layer(w, hf->files.tensors[i].name))
            status =
                error_set(error, ERR_BAD_INPUT, "tensor %s is not known in models of this type",
                          hf->files.tensors[i].name);
    free(used);
    return status;
}

static void find_prefix(struct work *w)
{
    const struct hf_row *row;
    HF_EACH (row, w->shape->arch, HF_ROWS(DENSE))
        for (size_t p = 0; p < ARRAY_LEN(prefixes); p++)
            if (!strchr(row->field, '%') && row->presence == HF_PRESENCE_REQUIRED &&
                find(w, row->field, p)) {
                w->prefix = p;
                return;
            }
}

int hf_put_tensors(struct hf_model *hf, const struct hf_shape *shape, const json_t *whole,
                   const char *dir, bool tied, struct error *error)
{
    struct work w = {.hf = hf, .shape = shape, .config = hf_text_config(whole)};
    const struct hf_row *row;
    find_prefix(&w);
    HF_EACH (row, shape->arch, HF_ROWS(REJECTED))
        if (find(&w, row->field, w.prefix))
            return error_set(error, ERR_BAD_INPUT, "tensor %s: %s is not supported", row->field,
                             row->text);
    HF_EACH (row, shape->arch, HF_ROWS(DENSE))
        if (!strchr(row->field, '%') && put_dense(&w, row, 0, tied, error))
            return -1;
    HF_EACH (row, shape->arch, HF_ROWS(NUMBERS) | HF_ROWS(UNROTATED))
        if (put_made(&w, row, error))
            return -1;
    HF_EACH (row, shape->arch, HF_ROWS(LLAMA3))
        if (put_llama3(&w, row, error))
            return -1;
    if (hf_put_ngrams(hf, shape, w.prefix, whole, dir, error))
        return -1;
    for (uint32_t layer = 0; layer < shape->layers; layer++)
        if (put_layer(&w, layer, error))
            return -1;
    return check_rest(&w, error);
}
