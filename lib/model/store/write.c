/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the manifest and the entry table of an expert store. */
#include "lib/model/store/write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/tensor/tensor_type.h"

static const char *const matrix_names[EXPERT__COUNT] = {
    [EXPERT_GATE] = "gate",
    [EXPERT_UP] = "up",
    [EXPERT_DOWN] = "down",
};

/* ---- layout ---- */

void *store_table_new(struct store_manifest *manifest)
{
    struct store_manifest *m = manifest;
    m->entries_bytes = store_entries_bytes(m);
    void *table = calloc(1, m->entries_bytes);
    if (!table)
        return NULL;
    uint64_t end[MODEL_STRIPES_MAX], max = PAGE_BYTES; /* after the header */
    for (uint32_t s = 0; s < m->stripe_count; s++)
        end[s] = PAGE_BYTES;
    for (uint32_t precision = 0; precision < m->precision_count; precision++)
        for (uint32_t layer = 0; layer < m->layers; layer++) {
            uint64_t pages = store_group_of(m, precision, layer)->slot_pages;
            uint64_t bytes = store_shard_pages(m, pages) * PAGE_BYTES;
            for (uint32_t expert = 0; expert < m->experts; expert++) {
                if (!store_writes(m, precision, layer, expert)) {
                    store_table_record(m, table, precision, layer, expert)[0] = STORE_ABSENT;
                    continue;
                }
                uint64_t *at = &end[store_first_stripe(m, layer, expert)];
                store_table_record(m, table, precision, layer, expert)[0] = *at;
                *at += bytes;
                max = *at > max ? *at : max;
            }
        }
    for (uint32_t s = 0; s < m->stripe_count; s++)
        m->stripe[s].bytes = max;
    return table;
}

/* ---- identity ---- */

static void canonical(XXH128_hash_t hash, uint8_t out[STORE_HASH_BYTES])
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, hash);
    memcpy(out, c.digest, STORE_HASH_BYTES);
}

void store_make_id(struct store_manifest *manifest)
{
    const struct store_manifest *m = manifest;
    XXH3_state_t *state = XXH3_createState();
    sl_assert(state);
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, STORE_FORMAT, sizeof STORE_FORMAT);
    XXH3_128bits_update(state, m->model_hash, sizeof m->model_hash);
    XXH3_128bits_update(state, m->source_hash, sizeof m->source_hash);
    const uint32_t counts[] = {STORE_VERSION, m->layers, m->experts, m->stripe_count};
    XXH3_128bits_update(state, counts, sizeof counts);
    if (m->layout != STORE_STRIPED) { /* not hashed for "striped": older stores keep their id */
        const char *layout = store_layout_name(m->layout);
        XXH3_128bits_update(state, layout, strlen(layout));
    }
    for (uint32_t t = 0; t < m->precision_count; t++) {
        const uint32_t precision[] = {m->precision[t].precision, m->precision[t].method,
                                      m->precision[t].group_count};
        XXH3_128bits_update(state, precision, sizeof precision);
        for (uint32_t g = 0; g < m->precision[t].group_count; g++) {
            const struct store_group *group = &m->groups[m->precision[t].group_first + g];
            const uint32_t types[] = {group->first_layer, group->last_layer, group->matrix[0].type,
                                      group->matrix[1].type, group->matrix[2].type};
            XXH3_128bits_update(state, types, sizeof types);
            if (group->absent) /* not hashed otherwise: older stores keep their id */
                XXH3_128bits_update(state, "absent", sizeof "absent");
        }
    }
    if (m->base_path[0])
        XXH3_128bits_update(state, m->base_hash, sizeof m->base_hash);
    if (m->chosen)
        XXH3_128bits_update(state, m->chosen, (size_t)m->layers * m->experts);
    canonical(XXH3_128bits_digest(state), manifest->id);
    XXH3_freeState(state);
}

void store_stripe_page(const struct store_manifest *manifest, uint32_t stripe,
                       unsigned char page[PAGE_BYTES])
{
    struct store_stripe_head head = {
        .magic = STORE_STRIPE_MAGIC,
        .version = STORE_VERSION,
        .stripe = stripe,
        .stripes = manifest->stripe_count,
    };
    memcpy(head.id, manifest->id, sizeof head.id);
    memset(page, 0, PAGE_BYTES);
    memcpy(page, &head, sizeof head);
}

/* ---- files ---- */

static int write_all(int fd, const char *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = write(fd, data + at, bytes - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    return 0;
}

/* Writes a file under a temporary name, syncs and renames it: it exists completely or not at
 * all. */
static int write_file(int dir_fd, const char *name, const void *data, size_t bytes,
                      struct error *error)
{
    char temporary[64];
    snprintf(temporary, sizeof temporary, "%s.tmp", name);
    int fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_set_errno(error, ERR_IO, errno, "cannot create %s", temporary);
    if (write_all(fd, data, bytes) != 0 || fsync(fd) != 0) {
        error_set_errno(error, ERR_IO, errno, "cannot write %s", temporary);
        close(fd);
        return -1;
    }
    close(fd);
    if (renameat(dir_fd, temporary, dir_fd, name) != 0 || fsync(dir_fd) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot rename %s", temporary);
    return 0;
}

int store_write_entries(int dir_fd, struct store_manifest *manifest, void *table,
                        struct error *error)
{
    struct store_entries_head head = {
        .magic = STORE_ENTRIES_MAGIC,
        .version = STORE_VERSION,
        .stripes = manifest->stripe_count,
        .layers = manifest->layers,
        .experts = manifest->experts,
        .count = (uint64_t)manifest->precision_count * manifest->layers * manifest->experts,
    };
    for (uint32_t t = 0; t < manifest->precision_count; t++)
        head.precision_mask |= 1u << manifest->precision[t].precision;
    memcpy(head.id, manifest->id, sizeof head.id);
    memcpy(table, &head, sizeof head);
    manifest->precision_mask = head.precision_mask;
    manifest->entries_xxh3 = XXH3_64bits(table, manifest->entries_bytes);
    return write_file(dir_fd, STORE_ENTRIES_FILE, table, manifest->entries_bytes, error);
}

/* ---- the manifest ---- */

static json_t *hex(const uint8_t hash[STORE_HASH_BYTES])
{
    char text[2 * STORE_HASH_BYTES + 1];
    for (size_t i = 0; i < STORE_HASH_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    return json_string(text);
}

static json_t *group_json(const struct store_group *g)
{
    json_t *o = json_pack("{s:I, s:I, s:I, s:I}", "first_layer", (json_int_t)g->first_layer,
                          "last_layer", (json_int_t)g->last_layer, "slot_pages",
                          (json_int_t)g->slot_pages, "payload_bytes", (json_int_t)g->payload_bytes);
    for (int i = 0; o && i < EXPERT__COUNT; i++) {
        const struct model_matrix *m = &g->matrix[i];
        if (m->n == 0)
            continue;
        json_t *matrix =
            json_pack("{s:s, s:I, s:I, s:I, s:I}", "type", tensor_type_info(m->type)->name, "k",
                      (json_int_t)m->k, "n", (json_int_t)m->n, "row_bytes",
                      (json_int_t)m->row_bytes, "offset", (json_int_t)m->slot_offset);
        json_object_set_new(o, matrix_names[i], matrix);
    }
    return o;
}

static json_t *precisions_json(const struct store_manifest *m)
{
    json_t *precisions = json_array();
    for (uint32_t t = 0; t < m->precision_count; t++) {
        json_t *groups = json_array();
        for (uint32_t g = 0; g < m->precision[t].group_count; g++)
            json_array_append_new(groups, group_json(&m->groups[m->precision[t].group_first + g]));
        json_array_append_new(
            precisions,
            json_pack("{s:s, s:s, s:o}", "tier", precision_name(m->precision[t].precision),
                      "method", quant_method_name(m->precision[t].method), "groups", groups));
    }
    return precisions;
}

static json_t *stripes_json(const struct store_manifest *m)
{
    json_t *stripes = json_array();
    for (uint32_t s = 0; s < m->stripe_count; s++)
        json_array_append_new(stripes,
                              json_pack("{s:s, s:I, s:s*}", "path", m->stripe[s].path, "bytes",
                                        (json_int_t)m->stripe[s].bytes, "mirror",
                                        m->stripe[s].mirror[0] ? m->stripe[s].mirror : NULL));
    return stripes;
}

int store_write_manifest(int dir_fd, const struct store_manifest *m, const char *info,
                         struct error *error)
{
    char xxh3[17];
    snprintf(xxh3, sizeof xxh3, "%016" PRIx64, m->entries_xxh3);
    json_t *root = json_pack(
        "{s:s, s:I, s:o, s:o, s:o, s:s, s:I, s:I, s:I, s:o, s:o, s:{s:I, s:s}}", "format",
        STORE_FORMAT, "version", (json_int_t)STORE_VERSION, "id", hex(m->id), "model_hash",
        hex(m->model_hash), "source_hash", hex(m->source_hash), "arch", m->arch, "layers",
        (json_int_t)m->layers, "experts", (json_int_t)m->experts, "page_bytes",
        (json_int_t)PAGE_BYTES, "stripes", stripes_json(m), "tiers", precisions_json(m), "entries",
        "bytes", (json_int_t)m->entries_bytes, "xxh3", xxh3);
    if (root && m->layout != STORE_STRIPED) /* omitted for "striped", which older readers expect */
        json_object_set_new(root, "layout", json_string(store_layout_name(m->layout)));
    if (root && m->base_path[0])
        json_object_set_new(
            root, "base", json_pack("{s:s, s:o}", "path", m->base_path, "hash", hex(m->base_hash)));
    if (root && info)
        json_object_set_new(root, "info", json_loads(info, 0, NULL));
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (!text)
        return error_set(error, ERR_BAD_INPUT,
                         "the manifest cannot be written as JSON (a path that is not UTF-8?)");
    int status = write_file(dir_fd, STORE_MANIFEST_FILE, text, strlen(text), error);
    free(text);
    return status;
}
