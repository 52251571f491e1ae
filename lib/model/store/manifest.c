/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a store: parsing of the JSON, with a check of every field. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"
#include "lib/json/json_file.h"
#include "lib/model/gguf/gguf.h"
#include "lib/model/limits.h"
#include "lib/model/store/store.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"
#include "lib/text/printable.h"

#define ELEMENTS_MAX (1 << 24) /* elements of a row, or rows of a matrix */

static const char *const layout_names[] = {
#define X(id, name) [STORE_##id] = (name),
    STORE_LAYOUTS(X)
#undef X
};

static const char *const matrix_names[] = {
    [EXPERT_GATE] = "gate", [EXPERT_UP] = "up", [EXPERT_DOWN] = "down"};

/* Index of a name in a list; `count`: not found. */
static uint32_t find_name(const char *const *names, uint32_t count, const char *name)
{
    uint32_t i = 0;
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static bool type_find(const char *name, uint32_t *type)
{
    static const struct {
        const char *name;
        uint32_t id;
    } types[] = {
#define TENSOR_TYPE(type_name, id, ...) {#type_name, (id)},
#include "lib/tensor/tensor_types.tbl.h"
    };
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (strcmp(types[i].name, name) == 0) {
            *type = types[i].id;
            return true;
        }
    }
    return false;
}

/* Reports an object with wrong fields: its position and the text of the JSON library. */
static int unlike(struct error *error, const char *where, const json_error_t *why)
{
    return error_set(error, ERR_BAD_INPUT, "%s: %s", where,
                     printable(why->text, strnlen(why->text, sizeof why->text)).text);
}

static int bad(struct error *error, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int bad(struct error *error, const char *where, const char *fmt, ...)
{
    char text[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return error_set(error, ERR_BAD_INPUT, "%s: %s", where, text);
}

/* Stores a number after checking its range. */
static int number(json_int_t value, uint64_t min, uint64_t max, const char *where, const char *what,
                  uint64_t *out, struct error *error)
{
    if (value < 0 || (uint64_t)value < min || (uint64_t)value > max)
        return bad(error, where, "%s is %lld: not between %" PRIu64 " and %" PRIu64, what,
                   (long long)value, min, max);
    *out = (uint64_t)value;
    return 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int hex(const char *text, uint8_t *bytes, size_t count, const char *what,
               struct error *error)
{
    if (strlen(text) != 2 * count)
        return bad(error, what, "not %zu hex digits", 2 * count);
    for (size_t i = 0; i < count; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return bad(error, what, "not %zu hex digits (0-9a-f)", 2 * count);
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

const char *store_layout_name(enum store_layout layout)
{
    sl_assert((unsigned)layout < STORE_LAYOUT__COUNT);
    return layout_names[layout];
}

enum store_layout store_layout_find(const char *name)
{
    return (enum store_layout)find_name(layout_names, STORE_LAYOUT__COUNT, name);
}

bool store_group_layout(struct store_group *g)
{
    uint64_t end = 0;
    g->payload_bytes = 0;
    for (int i = 0; i < EXPERT__COUNT; i++) {
        struct model_matrix *x = &g->matrix[i];
        uint64_t bytes;
        if (i == EXPERT_UP && x->n == 0) /* networks of two matrices */
            continue;
        if (!tensor_type_row_bytes(x->type, x->k, &x->row_bytes) ||
            mul_overflows(x->row_bytes, x->n, &bytes) || bytes == 0 || bytes > STORE_SLOT_MAX)
            return false;
        x->slot_offset = align_up(end, MATRIX_ALIGN);
        end = x->slot_offset + bytes;
        g->payload_bytes += bytes;
    }
    g->slot_pages = align_up(end, PAGE_BYTES) / PAGE_BYTES;
    return g->slot_pages * PAGE_BYTES <= STORE_SLOT_MAX;
}

static int parse_matrix(json_t *object, const char *where, struct model_matrix *x,
                        struct error *error)
{
    json_error_t why;
    const char *type;
    json_int_t k, n, row_bytes, offset;
    if (json_unpack_ex(object, &why, JSON_STRICT, "{s:s, s:I, s:I, s:I, s:I}", "type", &type, "k",
                       &k, "n", &n, "row_bytes", &row_bytes, "offset", &offset) != 0)
        return unlike(error, where, &why);
    if (!type_find(type, &x->type))
        return bad(error, where, "unknown type '%s'", printable(type, strlen(type)).text);
    uint64_t elements = 0, rows = 0;
    if (number(k, 1, ELEMENTS_MAX, where, "k", &elements, error) ||
        number(n, 1, ELEMENTS_MAX, where, "n", &rows, error) ||
        number(row_bytes, 1, STORE_SLOT_MAX, where, "row_bytes", &x->row_bytes, error) ||
        number(offset, 0, STORE_SLOT_MAX, where, "offset", &x->slot_offset, error))
        return -1;
    x->k = (uint32_t)elements;
    x->n = (uint32_t)rows;
    return 0;
}

/* The layout of a slot follows from its matrices: compares it with the manifest. */
static int check_layout(const struct store_group *g, const char *where, struct error *error)
{
    struct store_group right = *g;
    if (!store_group_layout(&right))
        return bad(error, where, "rows that do not fit their type, or too large");
    for (int i = 0; i < EXPERT__COUNT; i++) {
        const struct model_matrix *x = &g->matrix[i], *y = &right.matrix[i];
        if (x->row_bytes != y->row_bytes || x->slot_offset != y->slot_offset)
            return bad(error, where,
                       "%s has rows of %" PRIu64 " bytes at %" PRIu64 "; %" PRIu64 " at %" PRIu64
                       " follow from its type",
                       matrix_names[i], x->row_bytes, x->slot_offset, y->row_bytes, y->slot_offset);
    }
    if (g->slot_pages != right.slot_pages || g->payload_bytes != right.payload_bytes)
        return bad(error, where,
                   "%" PRIu64 " bytes in %" PRIu64 " pages; %" PRIu64 " in %" PRIu64
                   " follow from its matrices",
                   g->payload_bytes, g->slot_pages, right.payload_bytes, right.slot_pages);
    return 0;
}

static int parse_group(json_t *object, const char *where, uint32_t first, uint32_t layers,
                       struct store_group *g, struct error *error)
{
    json_error_t why;
    json_int_t from, to, pages, payload;
    json_t *matrix[EXPERT__COUNT] = {NULL};
    if (json_unpack_ex(object, &why, JSON_STRICT, "{s:I, s:I, s:I, s:I, s:o, s?o, s:o}",
                       "first_layer", &from, "last_layer", &to, "slot_pages", &pages,
                       "payload_bytes", &payload, "gate", &matrix[EXPERT_GATE], "up",
                       &matrix[EXPERT_UP], "down", &matrix[EXPERT_DOWN]) != 0)
        return unlike(error, where, &why);
    uint64_t first_layer = 0, last_layer = 0;
    if (number(from, first, first, where, "first_layer", &first_layer, error) ||
        number(to, first, layers - 1, where, "last_layer", &last_layer, error) ||
        number(pages, 1, STORE_SLOT_MAX, where, "slot_pages", &g->slot_pages, error) ||
        number(payload, 1, STORE_SLOT_MAX, where, "payload_bytes", &g->payload_bytes, error))
        return -1;
    g->first_layer = (uint32_t)first_layer;
    g->last_layer = (uint32_t)last_layer;
    for (int i = 0; i < EXPERT__COUNT; i++) {
        char inner[80];
        snprintf(inner, sizeof inner, "%s.%s", where, matrix_names[i]);
        if (matrix[i] && parse_matrix(matrix[i], inner, &g->matrix[i], error))
            return -1;
    }
    return check_layout(g, where, error);
}

static int parse_groups(json_t *array, const char *where, struct store_manifest *m,
                        struct store_precision *precision, struct error *error)
{
    size_t count = json_array_size(array);
    if (count == 0 || count > m->layers)
        return bad(error, where, "%zu groups of %" PRIu32 " layers", count, m->layers);
    struct store_group *bigger = reallocarray(m->groups, m->group_count + count, sizeof *m->groups);
    if (!bigger)
        return error_set(error, ERR_NO_MEMORY, "out of memory (%zu groups)", count);
    m->groups = bigger;
    *precision = (struct store_precision){precision->precision, precision->method, m->group_count,
                                          (uint32_t)count};
    uint32_t layer = 0;
    for (size_t i = 0; i < count; i++) {
        char inner[64];
        struct store_group *g = &m->groups[m->group_count];
        *g = (struct store_group){0};
        snprintf(inner, sizeof inner, "%s.groups[%zu]", where, i);
        if (layer == m->layers)
            return bad(error, inner, "after the last layer");
        if (parse_group(json_array_get(array, i), inner, layer, m->layers, g, error))
            return -1;
        layer = g->last_layer + 1;
        m->group_count++;
    }
    if (layer != m->layers)
        return bad(error, where, "layers from %" PRIu32 " on are in no group", layer);
    return 0;
}

static int parse_precision(json_t *object, size_t number_in_list, struct store_manifest *m,
                           struct error *error)
{
    char where[40];
    json_error_t why;
    const char *precision, *method;
    json_t *groups;
    snprintf(where, sizeof where, "tiers[%zu]", number_in_list);
    if (json_unpack_ex(object, &why, JSON_STRICT, "{s:s, s:s, s:o}", "tier", &precision, "method",
                       &method, "groups", &groups) != 0)
        return unlike(error, where, &why);
    enum precision t = precision_find(precision);
    enum quant_method how = quant_method_find(method);
    if (t == PRECISION__COUNT)
        return bad(error, where, "unknown tier '%s'", printable(precision, strlen(precision)).text);
    if (how == QUANT_METHOD__COUNT)
        return bad(error, where, "unknown method '%s'", printable(method, strlen(method)).text);
    if (m->precision_mask >> t != 0)
        return bad(error, where, "tiers are not in ascending order");
    m->precision_mask |= 1u << t;
    struct store_precision *into = &m->precision[m->precision_count++];
    *into = (struct store_precision){.precision = t, .method = how};
    return parse_groups(groups, where, m, into, error);
}

static int take_path(const char *path, const char *where, char into[MODEL_PATH_BYTES],
                     struct error *error)
{
    size_t n = strlen(path);
    if (n == 0 || n >= MODEL_PATH_BYTES)
        return bad(error, where, "a path of %zu bytes", n);
    for (size_t c = 0; c < n; c++) /* paths are part of one-line messages */
        if ((unsigned char)path[c] < ' ' || path[c] == 0x7f)
            return bad(error, where, "a path with control characters");
    memcpy(into, path, n + 1);
    return 0;
}

static int parse_stripe(json_t *object, size_t i, struct store_manifest *m, struct error *error)
{
    char where[40];
    json_error_t why;
    const char *path, *mirror = NULL;
    json_int_t bytes;
    snprintf(where, sizeof where, "stripes[%zu]", i);
    if (json_unpack_ex(object, &why, JSON_STRICT, "{s:s, s:I, s?s}", "path", &path, "bytes", &bytes,
                       "mirror", &mirror) != 0)
        return unlike(error, where, &why);
    struct store_stripe *s = &m->stripe[i];
    if (take_path(path, where, s->path, error) ||
        (mirror && take_path(mirror, where, s->mirror, error)))
        return -1;
    if (number(bytes, PAGE_BYTES, GGUF_FILE_MAX, where, "bytes", &s->bytes, error))
        return -1;
    if (s->bytes % PAGE_BYTES != 0 || s->bytes != m->stripe[0].bytes)
        return bad(error, where,
                   "%" PRIu64 " bytes: not whole pages, or another size than the first stripe",
                   s->bytes);
    return 0;
}

static int parse_lists(json_t *stripes, json_t *precisions, struct store_manifest *m,
                       struct error *error)
{
    size_t stripe_count = json_array_size(stripes), precision_count = json_array_size(precisions);
    if (stripe_count == 0 || stripe_count > MODEL_STRIPES_MAX)
        return bad(error, "stripes", "not a list of 1 to %d", MODEL_STRIPES_MAX);
    if (precision_count == 0 || precision_count > PRECISION__COUNT)
        return bad(error, "tiers", "not a list of 1 to %d", PRECISION__COUNT);
    m->stripe_count = (uint32_t)stripe_count;
    for (size_t i = 0; i < stripe_count; i++)
        if (parse_stripe(json_array_get(stripes, i), i, m, error))
            return -1;
    for (size_t i = 0; i < precision_count; i++)
        if (parse_precision(json_array_get(precisions, i), i, m, error))
            return -1;
    return 0;
}

static int parse_entries(json_t *object, struct store_manifest *m, struct error *error)
{
    json_error_t why;
    json_int_t bytes;
    const char *text;
    uint8_t sum[8];
    if (json_unpack_ex(object, &why, JSON_STRICT, "{s:I, s:s}", "bytes", &bytes, "xxh3", &text) !=
        0)
        return unlike(error, "entries", &why);
    uint64_t right = store_entries_bytes(m);
    if (right > STORE_ENTRIES_MAX)
        return bad(error, "entries", "a table of %" PRIu64 " MiB", right / MIB);
    if (number(bytes, right, right, "entries", "bytes", &m->entries_bytes, error) ||
        hex(text, sum, sizeof sum, "entries.xxh3", error))
        return -1;
    m->entries_xxh3 = 0;
    for (size_t i = 0; i < sizeof sum; i++)
        m->entries_xxh3 = m->entries_xxh3 << 8 | sum[i];
    return 0;
}

/* Format and version are checked first: another version may have other fields. */
static int check_version(json_t *root, struct error *error)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    json_t *version = json_object_get(root, "version");
    if (!format || strcmp(format, STORE_FORMAT) != 0)
        return bad(error, "format", "not the manifest of a store ('%s' expected)", STORE_FORMAT);
    if (!json_is_integer(version) || json_integer_value(version) != STORE_VERSION)
        return bad(error, "version", "%lld; only version %u is read",
                   (long long)json_integer_value(version), STORE_VERSION);
    return 0;
}

/* A delta has no native experts, and one stripe. */
static int parse_base(json_t *object, struct store_manifest *m, struct error *error)
{
    json_error_t why;
    const char *path, *hash;
    if (json_unpack_ex(object, &why, JSON_STRICT, "{s:s, s:s}", "path", &path, "hash", &hash) != 0)
        return unlike(error, "base", &why);
    if (m->stripe_count != 1 || m->layout != STORE_SPREAD ||
        m->precision_mask & 1u << PRECISION_NATIVE)
        return bad(error, "base", "native experts, several stripes, or another layout than spread");
    return take_path(path, "base", m->base_path, error) ||
                   hex(hash, m->base_hash, sizeof m->base_hash, "base.hash", error)
               ? -1
               : 0;
}

static int parse_root(json_t *root, struct store_manifest *m, struct error *error)
{
    json_error_t why;
    const char *format, *id, *model_hash, *source_hash, *arch;
    json_int_t version, layers, experts, page_bytes;
    const char *layout = layout_names[STORE_STRIPED];
    json_t *stripes, *precisions, *entries, *info = NULL, *base = NULL;
    if (json_unpack_ex(
            root, &why, JSON_STRICT,
            "{s:s, s:I, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s?s, s?o, s?o}", "format",
            &format, "version", &version, "id", &id, "model_hash", &model_hash, "source_hash",
            &source_hash, "arch", &arch, "layers", &layers, "experts", &experts, "page_bytes",
            &page_bytes, "stripes", &stripes, "tiers", &precisions, "entries", &entries, "layout",
            &layout, "info", &info, "base", &base) != 0)
        return unlike(error, "manifest", &why);
    uint64_t layer_count = 0, expert_count = 0, page;
    if (hex(id, m->id, sizeof m->id, "id", error) ||
        hex(model_hash, m->model_hash, sizeof m->model_hash, "model_hash", error) ||
        hex(source_hash, m->source_hash, sizeof m->source_hash, "source_hash", error) ||
        number(layers, 1, MODEL_LAYERS_MAX, "manifest", "layers", &layer_count, error) ||
        number(experts, 1, MODEL_EXPERTS_MAX, "manifest", "experts", &expert_count, error) ||
        number(page_bytes, PAGE_BYTES, PAGE_BYTES, "manifest", "page_bytes", &page, error))
        return -1;
    m->layout = store_layout_find(layout);
    if (m->layout == STORE_LAYOUT__COUNT)
        return bad(error, "layout", "unknown layout '%s'", printable(layout, strlen(layout)).text);
    m->layers = (uint32_t)layer_count;
    m->experts = (uint32_t)expert_count;
    if (strlen(arch) >= sizeof m->arch)
        return bad(error, "arch", "longer than %zu bytes", sizeof m->arch - 1);
    strcpy(m->arch, arch);
    return parse_lists(stripes, precisions, m, error) || parse_entries(entries, m, error) ||
                   (base && parse_base(base, m, error))
               ? -1
               : 0;
}

int store_manifest_parse(const char *text, size_t bytes, struct store_manifest *m,
                         struct error *error)
{
    memset(m, 0, sizeof *m);
    json_t *root = json_text(text, bytes, error);
    if (!root)
        return -1;
    int status = check_version(root, error);
    if (status == 0)
        status = parse_root(root, m, error);
    json_decref(root);
    if (status != 0)
        store_manifest_free(m);
    return status;
}

void store_manifest_free(struct store_manifest *m)
{
    free(m->groups);
    m->groups = NULL;
    m->group_count = 0;
}

const struct store_group *store_group_of(const struct store_manifest *m, uint32_t precision,
                                         uint32_t layer)
{
    sl_assert(precision < m->precision_count && layer < m->layers);
    const struct store_group *g = &m->groups[m->precision[precision].group_first];
    while (g->last_layer < layer)
        g++;
    return g;
}

uint64_t store_entries_bytes(const struct store_manifest *m)
{
    /* at most 4 * 512 * 4096 records of 17 u64 */
    uint64_t count = (uint64_t)m->precision_count * m->layers * m->experts;
    return sizeof(struct store_entries_head) + count * (1 + m->stripe_count) * sizeof(uint64_t);
}
