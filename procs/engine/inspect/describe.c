/* SPDX-License-Identifier: Apache-2.0 */
/* Derives a summary of a model from its index, and prints it. */
#include "procs/engine/inspect/describe.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "lib/model/index/capacity.h"
#include "lib/model/limits.h"
#include "lib/model/store/store.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

/* Values derived from the index. */
struct summary {
    uint64_t expert_slot_min, expert_payload_max;
    uint64_t token_expert_bytes; /* payload of the experts one token uses, all layers */
    uint64_t kv_token_bytes;     /* F16 keys and values of one token */
    uint64_t arena_min_bytes;    /* dense tensors and the K largest experts */
    uint64_t parameters;
    uint32_t expert_entries, expert_layers; /* those that exist */
};

static struct summary summary_of(const struct model_index *m)
{
    const struct model_hparams *h = &m->hparams;
    const struct model_entry *entries = model_index_entries(m);
    const struct model_tensor *tensors = model_index_tensors(m);
    struct summary f = {.expert_slot_min = UINT64_MAX,
                        .expert_payload_max = capacity_largest_payload(m)};
    for (uint32_t i = m->dense_count; i < model_experts_end(m); i++) {
        const struct model_entry *e = &entries[i];
        if (e->extents == 0) /* absent */
            continue;
        f.expert_entries++;
        if (e->slot_bytes < f.expert_slot_min)
            f.expert_slot_min = e->slot_bytes;
    }
    for (uint32_t layer = 0; layer < h->layers; layer++)
        f.expert_layers += model_layer_has_experts(m, layer);
    if (h->experts > 0)
        f.token_expert_bytes = m->expert_bytes / h->experts * h->experts_used;
    f.kv_token_bytes = model_kv_position_bytes(h, KV_TYPE_F16);
    f.arena_min_bytes = m->dense_bytes + capacity_slot_min(m);
    for (uint32_t i = 0; m->stripe_count > 0 && i < h->layers * h->experts; i++) {
        const struct model_matrix *x = entries[m->dense_count + i].matrix; /* in no tensor */
        for (int k = 0; k < EXPERT__COUNT; k++)
            f.parameters += (uint64_t)x[k].k * x[k].n;
    }
    for (uint32_t i = 0; i < m->tensor_count; i++)
        f.parameters += tensors[i].ne[0] * tensors[i].ne[1] * tensors[i].ne[2] * tensors[i].ne[3];
    return f;
}

static uint32_t window_layers(const struct model_index *m)
{
    uint32_t n = 0;
    for (uint32_t layer = 0; layer < m->hparams.layers; layer++)
        n += m->hparams.layer_kind[layer] == LAYER_WINDOW;
    return n;
}

/* Some layer has a score that belongs to no position. */
static bool has_sinks(const struct model_index *m)
{
    for (uint32_t layer = 0; layer < m->hparams.layers; layer++)
        if (model_entry_dense(m, layer, DENSE_ATTN_SINKS) != ENTRY_NONE)
            return true;
    return false;
}

/* Part of model_kv_position_bytes in layers with a window: not of every token of a long sequence
 * (shm/kv/kv.h). */
static uint64_t window_token_bytes(const struct model_index *m, enum kv_type type)
{
    const struct model_hparams *h = &m->hparams;
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < h->layers; layer++)
        if (h->layer_kind[layer] == LAYER_WINDOW)
            bytes += model_kv_bytes(h, layer, KV_SIDE_KEYS, type, KV_TILE) +
                     model_kv_bytes(h, layer, KV_SIDE_VALUES, type, KV_TILE);
    return bytes / KV_TILE;
}

static const char *type_name(uint32_t type)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return info ? info->name : "?";
}

static const struct model_entry *first_of_grid(const struct model_index *m, int precision)
{
    return &model_index_entries(m)[m->precision_first[precision]];
}

/* The first expert of the first layer that has experts. */
static const struct model_entry *first_expert(const struct model_index *m, int precision)
{
    return first_of_grid(m, precision) + model_expert_layer(m, 0) * m->hparams.experts;
}

/* Types of the matrices of a precision, "Q8_0" or "Q4_0 Q4_0 Q8_0"; of the first layer, with "..."
 * where others differ. */
static void types_text(const struct model_index *m, int precision, char out[96])
{
    const struct model_entry *first = first_expert(m, precision),
                             *end = first_of_grid(m, precision);
    const struct model_matrix *x = first->matrix;
    bool two = x[EXPERT_UP].n == 0, differ = false;
    bool one = x[EXPERT_GATE].type == x[EXPERT_DOWN].type &&
               (two || x[EXPERT_GATE].type == x[EXPERT_UP].type);
    for (end += m->hparams.layers * m->hparams.experts; first < end; first++)
        for (int k = 0; k < EXPERT__COUNT && model_layer_has_experts(m, first->layer); k++)
            differ |= first->matrix[k].type != x[k].type;
    if (one)
        snprintf(out, 96, "%s%s", type_name(x[0].type), differ ? " ..." : "");
    else
        snprintf(out, 96, "%s %s%s%s%s", type_name(x[EXPERT_GATE].type),
                 two ? "" : type_name(x[EXPERT_UP].type), two ? "" : " ",
                 type_name(x[EXPERT_DOWN].type), differ ? " ..." : "");
}

static void shape_text(const struct model_tensor *t, char out[96])
{
    size_t n = 0;
    out[0] = 0;
    for (uint32_t d = 0; d < t->dims && d < 4 && n < 80; d++)
        n += (size_t)snprintf(out + n, 96 - n, "%s%" PRIu64, d ? " x " : "", t->ne[d]);
}

static void line_bytes(FILE *out, const char *label, uint64_t bytes, const char *note)
{
    char text[16];
    fprintf(out, "%-22s %10s  (%" PRIu64 " bytes)%s\n", label, bytes_format(bytes, text), bytes,
            note);
}

static void text_of_kv(FILE *out, const struct model_index *m, enum kv_type type)
{
    char label[32], bytes[16], note[96] = "  per token";
    uint64_t window = window_token_bytes(m, type);
    snprintf(label, sizeof label, "KV cache, %s", kv_type_info(type)->name);
    if (window > 0)
        snprintf(note, sizeof note, "  per token, %s of it in layers with a window",
                 bytes_format(window, bytes));
    line_bytes(out, label, model_kv_position_bytes(&m->hparams, type), note);
}

/* The stripes of a store, the parts of a split file. */
static void text_of_files(FILE *out, const struct model_index *m, const char *what, uint32_t first)
{
    char size[16];
    for (uint32_t i = 0; i < m->stripe_count + m->part_count; i++) {
        const struct model_stripe *file = model_loader_file(m, i);
        if (m->stripe_count > 0 && i >= m->stripe_count) /* native experts of a delta */
            what = "model file";
        fprintf(out, "%s %-*u %10s  (%" PRIu64 " bytes)  %s\n", what, 21 - (int)strlen(what),
                i + first, bytes_format(file->file.bytes, size), file->file.bytes, file->path);
    }
}

static void text_of_store(FILE *out, const struct model_index *m)
{
    char size[16], types[96];
    for (int t = 0; t < PRECISION__COUNT; t++) {
        if (!(m->precision_mask & 1u << t))
            continue;
        types_text(m, t, types);
        fprintf(out, "%-22s %10s  (%" PRIu64 " bytes)  %u experts, %s, slots %" PRIu64 " bytes\n",
                precision_name((enum precision)t), bytes_format(m->precision_bytes[t], size),
                m->precision_bytes[t], m->precision_entries[t], types, m->precision_slot_bytes[t]);
    }
    text_of_files(out, m, "stripe", 0);
}

static void text_of_tensors(FILE *out, const struct model_index *m)
{
    const struct model_tensor *tensors = model_index_tensors(m);
    fprintf(out, "\n%-40s %-6s %-24s %14s %14s\n", "TENSOR", "TYPE", "SHAPE", "BYTES", "OFFSET");
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        char shape[96];
        shape_text(&tensors[i], shape);
        fprintf(out, "%-40s %-6s %-24s %14" PRIu64 " %14" PRIu64 "\n", tensors[i].name,
                type_name(tensors[i].type), shape, tensors[i].bytes, tensors[i].file_offset);
    }
}

static bool same_heads(const struct layer_attention *a, const struct layer_attention *b)
{
    return a->heads == b->heads && a->kv_heads == b->kv_heads && a->key_size == b->key_size &&
           a->value_size == b->value_size;
}

static void line_of_heads(FILE *out, const char *label, const struct layer_attention *a)
{
    fprintf(out, "%-22s %u heads, %u of keys and values, head size %u", label, a->heads,
            a->kv_heads, a->key_size);
    if (a->value_size != a->key_size)
        fprintf(out, " (values %u)", a->value_size);
}

/* The layers of a kind have equal sizes. */
static void text_of_attention(FILE *out, const struct model_index *m)
{
    const struct layer_attention *full = NULL, *window = NULL;
    uint32_t windows = window_layers(m), attending = 0;
    for (uint32_t layer = m->hparams.layers; layer-- > 0;) {
        const struct layer_attention *a = &m->layer[layer].attention;
        if (!layer_has_keys((enum layer_kind)m->hparams.layer_kind[layer]))
            continue;
        *(a->window > 0 ? &window : &full) = a;
        attending++;
    }
    if (!full && !window) {
        fprintf(out, "%-22s in no layer\n", "attention");
        return;
    }
    line_of_heads(out, "attention", full ? full : window);
    if (attending < m->hparams.layers)
        fprintf(out, ", in %u of %u layers", attending, m->hparams.layers);
    if (full && window && !same_heads(full, window)) {
        fputc('\n', out);
        line_of_heads(out, "  with a window", window);
    }
    if (window)
        fprintf(out, ", %u of %u layers with a window of %u", windows, m->hparams.layers,
                window->window);
    if (has_sinks(m))
        fprintf(out, ", sinks");
    fputc('\n', out);
}

static void text_of_limit(FILE *out, const struct model_index *m)
{
    char limit[MODEL_LIMIT_BYTES];
    if (model_limit_text(m, limit)[0])
        fprintf(out, "%-22s %s\n", "context limit", limit);
}

/* Names of keys in the file that the engine does not know. */
static void text_of_unread(FILE *out, const struct model_index *m)
{
    char name[MODEL_UNREAD_BYTES];
    uint64_t shown = 0;
    for (size_t at = 0; model_index_unread(m, &at, name); shown++)
        fprintf(out, "%-22s %s\n", "key not used", name);
    if (shown < m->unread_count)
        fprintf(out, "%-22s %" PRIu64 " more\n", "keys not used", m->unread_count - shown);
}

static json_t *json_of_unread(const struct model_index *m)
{
    json_t *array = json_array();
    char name[MODEL_UNREAD_BYTES];
    for (size_t at = 0; model_index_unread(m, &at, name);)
        json_array_append_new(array, json_string(name));
    return array;
}

void describe_text(FILE *out, const char *path, const struct model_index *m, bool tensors)
{
    const struct model_hparams *h = &m->hparams;
    struct summary f = summary_of(m);
    fprintf(out, "%-22s %s\n", m->stripe_count ? "store" : "file", path);
    if (m->part_count && !m->stripe_count)
        text_of_files(out, m, "part", 1);
    else
        line_bytes(out, m->stripe_count ? "model.gguf" : "file size", m->file.bytes, "");
    fprintf(out, "%-22s %s\n", "name", m->name);
    fprintf(out, "%-22s %s\n", "architecture", m->arch);
    fprintf(out, "%-22s %.1f million\n", "parameters", (double)f.parameters / 1e6);
    fprintf(out, "%-22s %u layers, hidden %u, vocabulary %u, context %u\n", "shape", h->layers,
            h->hidden, h->vocab, h->context);
    text_of_attention(out, m);
    fprintf(out, "%-22s %u per layer, %u used per token, inner size %u", "experts", h->experts,
            h->experts_used, h->expert_inner);
    if (f.expert_layers < h->layers)
        fprintf(out, ", in %u layers", f.expert_layers);
    fputc('\n', out);
    if (h->shared_inner > 0)
        fprintf(out, "%-22s one per layer, used by every token, inner size %u\n", "shared expert",
                h->shared_inner);
    fprintf(out, "%-22s %u dense, %u experts\n", "entries", m->dense_count, f.expert_entries);
    line_bytes(out, "dense", m->dense_bytes, "  always resident");
    if (m->page_count > 0)
        line_bytes(out, "table of n-grams", (uint64_t)model_table_pages(m) * PAGE_BYTES,
                   "  read by rows; a cache of its pages is part of the dense bytes");
    line_bytes(out, "experts", m->expert_bytes,
               m->precision_count > 1 ? "  at their highest precision" : "");
    if (m->stripe_count)
        text_of_store(out, m);
    line_bytes(out, "largest expert", f.expert_payload_max, "");
    line_bytes(out, "its slot", m->expert_slot_bytes_max, "");
    line_bytes(out, "experts of one token", f.token_expert_bytes, "");
    for (uint32_t type = 0; type < KV_TYPE__COUNT; type++)
        if (type != KV_TYPE_F32)
            text_of_kv(out, m, (enum kv_type)type);
    if (model_state_bytes(&m->hparams) > 0)
        line_bytes(out, "recurrent state", model_state_bytes(&m->hparams),
                   "  per sequence, whatever its length");
    line_bytes(out, "smallest arena", f.arena_min_bytes,
               "  dense tensors and the experts of one layer, without the engine's processes");
    text_of_limit(out, m);
    text_of_unread(out, m);
    if (tensors)
        text_of_tensors(out, m);
}

static void put(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

/* Names come from an untrusted file: only UTF-8 is shown. */
static void put_text(json_t *object, const char *key, const char *text)
{
    json_t *string = json_string(text);
    json_object_set_new(object, key, string ? string : json_string(""));
}

static json_t *json_of_tensors(const struct model_index *m)
{
    const struct model_tensor *tensors = model_index_tensors(m);
    json_t *array = json_array();
    for (uint32_t i = 0; i < m->tensor_count; i++) {
        json_t *object = json_object(), *shape = json_array();
        for (uint32_t d = 0; d < tensors[i].dims && d < 4; d++)
            json_array_append_new(shape, json_integer((json_int_t)tensors[i].ne[d]));
        put_text(object, "name", tensors[i].name);
        put_text(object, "type", type_name(tensors[i].type));
        json_object_set_new(object, "shape", shape);
        put(object, "bytes", tensors[i].bytes);
        put(object, "offset", tensors[i].file_offset);
        if (m->part_count && !m->stripe_count)
            put(object, "part", tensors[i].part + 1);
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *json_of_precisions(const struct model_index *m)
{
    json_t *array = json_array();
    for (int t = 0; t < PRECISION__COUNT; t++) {
        if (!(m->precision_mask & 1u << t))
            continue;
        const struct model_matrix *x = first_expert(m, t)->matrix;
        json_t *object = json_object(), *types = json_object();
        put_text(types, "gate", type_name(x[EXPERT_GATE].type));
        if (x[EXPERT_UP].n > 0)
            put_text(types, "up", type_name(x[EXPERT_UP].type));
        put_text(types, "down", type_name(x[EXPERT_DOWN].type));
        put_text(object, "precision", precision_name((enum precision)t));
        json_object_set_new(object, "types", types); /* of the first layer */
        put(object, "experts", m->precision_entries[t]);
        put(object, "bytes", m->precision_bytes[t]);
        put(object, "slot_bytes", m->precision_slot_bytes[t]);
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *json_of_files(const struct model_index *m, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        json_t *object = json_object();
        put_text(object, "path", model_index_stripes(m)[i].path);
        put(object, "bytes", model_index_stripes(m)[i].file.bytes);
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *json_of_hparams(const struct model_hparams *h)
{
    json_t *object = json_object();
    put(object, "layers", h->layers);
    put(object, "hidden", h->hidden);
    put(object, "heads", h->heads);
    put(object, "kv_heads", h->kv_heads);
    put(object, "head_size", h->head_size);
    put(object, "value_size", h->value_size);
    put(object, "window", h->window);
    put(object, "vocab", h->vocab);
    put(object, "context", h->context);
    put(object, "exact_context", model_context(h)); /* less: what the engine computes of it */
    put(object, "experts", h->experts);
    put(object, "experts_used", h->experts_used);
    put(object, "expert_inner", h->expert_inner);
    json_object_set_new(object, "rms_eps", json_real((double)h->rms_eps));
    json_object_set_new(object, "rope_theta", json_real((double)h->rope_theta));
    put(object, "rope_dims", h->rope_dims);
    put_text(object, "rope_scaling",
             h->rope_scaling == ROPE_YARN     ? "yarn"
             : h->rope_scaling == ROPE_LINEAR ? "linear"
             : h->rope_scaling == ROPE_SHORT  ? "longrope"
                                              : "none");
    json_object_set_new(object, "norm_top_k", json_boolean(h->norm_top_k));
    put_text(object, "qk_norm",
             h->qk_norm == QK_NORM_HEAD  ? "head"
             : h->qk_norm == QK_NORM_ROW ? "row"
                                         : "none");
    put_text(object, "rope_kind", h->rope_kind == ROPE_PAIRS ? "pairs" : "halves");
    put(object, "shared_inner", h->shared_inner);
    json_object_set_new(object, "tied_output", json_boolean(h->tied_output));
    return object;
}

int describe_json(FILE *out, const char *path, const struct model_index *m, bool tensors)
{
    struct summary f = summary_of(m);
    json_t *object = json_object();
    put_text(object, "file", path);
    put(object, "file_bytes", m->file.bytes);
    put_text(object, "name", m->name);
    put_text(object, "arch", m->arch);
    put(object, "parameters", f.parameters);
    json_object_set_new(object, "hparams", json_of_hparams(&m->hparams));
    put(object, "window_layers", window_layers(m));
    json_object_set_new(object, "sinks", json_boolean(has_sinks(m)));
    put(object, "tensors", m->tensor_count);
    put(object, "dense_entries", m->dense_count);
    put(object, "expert_entries", f.expert_entries);
    put(object, "expert_layers", f.expert_layers);
    put(object, "dense_bytes", m->dense_bytes);
    put(object, "table_bytes", (uint64_t)model_table_pages(m) * PAGE_BYTES);
    put(object, "expert_bytes", m->expert_bytes);
    put(object, "expert_slot_bytes", m->expert_slot_bytes);
    put(object, "expert_slot_bytes_max", m->expert_slot_bytes_max);
    put(object, "expert_payload_bytes_max", f.expert_payload_max);
    put(object, "token_expert_bytes", f.token_expert_bytes);
    put(object, "kv_token_bytes", f.kv_token_bytes);
    put(object, "kv_token_bytes_q8_0", model_kv_position_bytes(&m->hparams, KV_TYPE_Q8_0));
    put(object, "kv_token_bytes_q4_0", model_kv_position_bytes(&m->hparams, KV_TYPE_Q4_0));
    put(object, "state_bytes", model_state_bytes(&m->hparams));
    put(object, "arena_min_bytes", f.arena_min_bytes);
    put(object, "tokenizer_bytes", m->tokenizer_bytes);
    put(object, "keys_not_used", m->unread_count);
    json_object_set_new(object, "keys_not_used_names", json_of_unread(m));
    json_object_set_new(object, "precisions", json_of_precisions(m));
    json_object_set_new(object, "stripes",
                        json_of_files(m, m->stripe_count)); /* none: a GGUF file */
    if (m->part_count && !m->stripe_count)
        json_object_set_new(object, "parts", json_of_files(m, m->part_count));
    if (m->part_count && m->stripe_count)
        json_object_set_new(object, "model_file",
                            json_string(model_loader_file(m, m->stripe_count)->path));
    if (tensors)
        json_object_set_new(object, "tensor_list", json_of_tensors(m));
    int rc = json_dumpf(object, out, JSON_INDENT(2));
    json_decref(object);
    return rc == 0 && fputc('\n', out) != EOF ? 0 : -1;
}
