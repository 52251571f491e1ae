/* SPDX-License-Identifier: Apache-2.0 */
/* Layout of the store: precisions and types, stripes, offsets, space check. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "lib/base/assert.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"
#include "procs/tools/pack/pack.h"

/* ---- precisions ---- */

static int lay_out_matrix(struct model_matrix *m, const struct model_matrix *from,
                          enum precision precision, enum quant_method wanted,
                          enum quant_method *method, struct error *error)
{
    *m = (struct model_matrix){.k = from->k, .n = from->n};
    return quantise_type(precision, wanted, from->type, from->k, &m->type, method, error);
}

/* The group of a single layer. One without experts has the matrices of the next that has. */
static int lay_out_group(const struct pack *p, enum precision precision, uint32_t layer,
                         struct store_group *g, enum quant_method *method, struct error *error)
{
    const struct model_index *index = p->source.index;
    uint32_t entry = model_entry_expert(index, model_expert_layer(index, layer), 0);
    const struct model_entry *e = &model_index_entries(index)[entry];
    *g = (struct store_group){.first_layer = layer,
                              .last_layer = layer,
                              .absent = !model_layer_has_experts(index, layer)};
    for (int m = 0; m < EXPERT__COUNT; m++)
        if (e->matrix[m].n > 0 && lay_out_matrix(&g->matrix[m], &e->matrix[m], precision,
                                                 p->options.method, method, error))
            return -1;
    if (!store_group_layout(g))
        return error_set(error, ERR_BAD_INPUT,
                         "experts of layer %" PRIu32 " cannot be stored as %s", layer,
                         precision_name(precision));
    return 0;
}

static bool same_group(const struct store_group *a, const struct store_group *b)
{
    return a->absent == b->absent && memcmp(a->matrix, b->matrix, sizeof a->matrix) == 0;
}

/* A precision that saves nothing would only lose quality: layers where it is not smaller than that
 * of the model do not get it, and have the model's. */
static int leave_out(const struct pack *p, enum precision precision, struct store_group *g,
                     struct error *error)
{
    struct store_group native;
    enum quant_method method;
    if (precision == PRECISION_NATIVE || g->absent)
        return 0;
    if (lay_out_group(p, PRECISION_NATIVE, g->first_layer, &native, &method, error))
        return -1;
    g->absent = g->payload_bytes >= native.payload_bytes;
    if (!g->absent || p->options.delta || p->options.precision_wanted[PRECISION_NATIVE])
        return 0;
    char a[16], b[16];
    return error_set(error, ERR_BAD_INPUT,
                     "--precisions: experts of layer %" PRIu32
                     " at %s are not smaller than those of the model (%s, %s); add native",
                     g->first_layer, precision_name(precision),
                     bytes_format(g->payload_bytes * p->manifest.experts, a),
                     bytes_format(native.payload_bytes * p->manifest.experts, b));
}

static int check_any(const struct pack *p, enum precision precision, uint32_t left_out,
                     uint32_t stored, struct error *error)
{
    if (stored == 0)
        return error_set(
            error, ERR_BAD_INPUT,
            "--precisions: experts at %s are not smaller than those of the model in any layer",
            precision_name(precision));
    if (left_out > 0 && !p->options.quiet)
        fprintf(stderr,
                "sluice pack: %s is not smaller than the model in %" PRIu32 " of %" PRIu32
                " layers: these keep the model's experts only\n",
                precision_name(precision), left_out, left_out + stored);
    return 0;
}

static int lay_out_precision(struct pack *p, enum precision precision, struct error *error)
{
    uint32_t stored = 0, left_out = 0;
    struct store_manifest *m = &p->manifest;
    struct store_precision *t = &m->precision[m->precision_count++];
    *t = (struct store_precision){.precision = precision, .group_first = m->group_count};
    m->precision_mask |= 1u << precision;
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        struct store_group g, *last = t->group_count ? &m->groups[m->group_count - 1] : NULL;
        if (lay_out_group(p, precision, layer, &g, &t->method, error) ||
            leave_out(p, precision, &g, error))
            return -1;
        stored += !g.absent;
        left_out += g.absent && model_layer_has_experts(p->source.index, layer);
        if (last && same_group(last, &g)) {
            last->last_layer = layer;
            continue;
        }
        m->groups[m->group_count++] = g;
        t->group_count++;
    }
    return check_any(p, precision, left_out, stored, error);
}

/* ---- stripes ---- */

/* The file of a given path: the path, or for a directory a file in it named after the store. */
static int resolve_path(const struct pack *p, uint32_t number, bool mirror, const char *given,
                        char path[PATH_MAX + 300], struct error *error)
{
    char parent[PATH_MAX], real[PATH_MAX], name[64];
    struct stat st;
    const char *slash = strrchr(given, '/');
    const char *store = strrchr(p->dir, '/') + 1;
    if (mirror)
        snprintf(name, sizeof name, STORE_MIRROR_FILE, number);
    else
        snprintf(name, sizeof name, STORE_STRIPE_FILE, number);
    if (stat(given, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (!realpath(given, real))
            return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.250s", given);
        if (strcmp(real, p->dir) == 0)
            snprintf(path, PATH_MAX + 300, "%s/%s", real, name);
        else
            snprintf(path, PATH_MAX + 300, "%s/%.200s.%s", real, store, name);
        return 0;
    }
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - given) : 1, slash ? given : ".");
    if (!realpath(parent[0] ? parent : "/", real))
        return error_set_errno(error, ERR_BAD_INPUT, errno,
                               "cannot open the directory of stripe %.250s", given);
    snprintf(path, PATH_MAX + 300, "%s/%.255s", real, slash ? slash + 1 : given);
    return 0;
}

/* Sets the path of file `file` of the store, stripe or mirror `number`. */
static int take_path(struct pack *p, uint32_t file, uint32_t number, bool mirror, const char *given,
                     struct error *error)
{
    char path[PATH_MAX + 300];
    if (resolve_path(p, number, mirror, given, path, error))
        return -1;
    size_t dir = strlen(p->dir);
    bool inside = strncmp(path, p->dir, dir) == 0 && path[dir] == '/';
    const char *stored = inside ? path + dir + 1 : path; /* as in the manifest */
    p->file_path[file] = strdup(path);
    if (!p->file_path[file])
        return error_set(error, ERR_NO_MEMORY, "out of memory (path of a stripe)");
    if (strlen(stored) >= MODEL_PATH_BYTES || strlen(stored) == 0)
        return error_set(error, ERR_BAD_INPUT, "stripe %.60s...: the path is empty or too long",
                         given);
    struct store_stripe *stripe = &p->manifest.stripe[number];
    strcpy(mirror ? stripe->mirror : stripe->path, stored);
    for (uint32_t i = 0; i < file; i++)
        if (strcmp(p->file_path[i], path) == 0)
            return error_set(error, ERR_BAD_INPUT,
                             "two stripes or mirrors are the same file %.250s", path);
    p->file_count = file + 1;
    return 0;
}

/* Adds the paths of a list, as files from p->file_count on. Their number, or -1. */
static int take_paths(struct pack *p, const char *list, bool mirror, struct error *error)
{
    uint32_t count = 0, first = p->file_count;
    for (; list; count++) {
        char one[PATH_MAX];
        size_t n = strcspn(list, ",");
        if (count == MODEL_STRIPES_MAX)
            return error_set(error, ERR_BAD_INPUT, "more than %d stripes", MODEL_STRIPES_MAX);
        if (n == 0 || n >= sizeof one)
            return error_set(error, ERR_BAD_INPUT, "--%s: a path is empty or too long",
                             mirror ? "mirrors" : "stripes");
        memcpy(one, list, n);
        one[n] = 0;
        if (take_path(p, first + count, count, mirror, one, error))
            return -1;
        list = list[n] ? list + n + 1 : NULL;
    }
    return (int)count;
}

int pack_stripe_paths(struct pack *p, struct error *error)
{
    /* The name of the store may contain commas; paths in a list may not. */
    int stripes = p->options.stripes ? take_paths(p, p->options.stripes, false, error)
                  : take_path(p, 0, 0, false, p->dir, error) == 0 ? 1
                                                                  : -1;
    if (stripes < 0)
        return -1;
    p->manifest.stripe_count = (uint32_t)stripes;
    p->manifest.layout = p->options.layout;
    int mirrors = p->options.mirrors ? take_paths(p, p->options.mirrors, true, error) : stripes;
    if (mirrors >= 0 && mirrors != stripes)
        return error_set(error, ERR_BAD_INPUT,
                         "--mirrors has %d paths for %d stripes; give one per stripe", mirrors,
                         stripes);
    return mirrors < 0 ? -1 : 0;
}

/* ---- layout ---- */

int pack_lay_out(struct pack *p, struct error *error)
{
    struct store_manifest *m = &p->manifest;
    const struct model_index *index = p->source.index;
    snprintf(m->arch, sizeof m->arch, "%s", index->arch);
    m->layers = index->hparams.layers;
    m->experts = index->hparams.experts;
    memcpy(m->source_hash, p->source.hash, sizeof m->source_hash);
    m->groups = calloc((size_t)m->layers * PRECISION__COUNT, sizeof *m->groups);
    if (!m->groups)
        return error_set(error, ERR_NO_MEMORY, "out of memory (layout of the store)");
    for (int precision = 0; precision < PRECISION__COUNT; precision++)
        if (p->options.precision_wanted[precision] &&
            lay_out_precision(p, (enum precision)precision, error))
            return -1;
    sl_assert(m->precision_count > 0);
    if (p->options.delta && pack_base(p, error))
        return -1;
    p->expert_count = hparams_expert_layers(&index->hparams) * m->experts;
    p->table = store_table_new(m);
    p->done = calloc(p->expert_count, sizeof *p->done);
    p->pending = calloc(p->expert_count, sizeof *p->pending);
    if (!p->table || !p->done || !p->pending)
        return error_set(error, ERR_NO_MEMORY, "out of memory (table of %" PRIu32 " experts)",
                         p->expert_count);
    return 0;
}

/* ---- free space ---- */

struct need { /* space needed on a file system */
    dev_t dev;
    uint64_t bytes;
    char path[PATH_MAX];
};

static int need_add(struct need *needs, uint32_t *count, const char *path, uint64_t bytes,
                    struct error *error)
{
    char dir[PATH_MAX];
    struct stat st;
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (stat(path, &st) == 0) { /* allocated blocks of an existing file count */
        uint64_t have = (uint64_t)st.st_blocks * 512;
        bytes = bytes > have ? bytes - have : 0;
    }
    slash[slash == dir ? 1 : 0] = 0;
    if (stat(dir, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot access %.250s", dir);
    uint32_t i = 0;
    while (i < *count && needs[i].dev != st.st_dev)
        i++;
    if (i == *count) {
        needs[(*count)++] = (struct need){.dev = st.st_dev};
        strcpy(needs[i].path, dir);
    }
    needs[i].bytes += bytes;
    return 0;
}

static int need_check(const struct need *need, struct error *error)
{
    struct statvfs fs;
    char needed[16], free_text[16];
    if (statvfs(need->path, &fs) != 0)
        return error_set_errno(error, ERR_IO, errno, "cannot access %.250s", need->path);
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t bytes = need->bytes + STORE_RESERVE_BYTES;
    if (bytes <= available)
        return 0;
    return error_set(error, ERR_IO,
                     "not enough space: the store needs %s more in %.250s, only %s free",
                     bytes_format(bytes, needed), need->path, bytes_format(available, free_text));
}

int pack_check_space(const struct pack *p, struct error *error)
{
    struct need *needs = calloc(PACK_FILES_MAX + 1, sizeof *needs);
    uint32_t count = 0;
    char model[PATH_MAX];
    if (!needs)
        return error_set(error, ERR_NO_MEMORY, "out of memory");
    snprintf(model, sizeof model, "%s/" STORE_MODEL_FILE, p->dir);
    uint64_t model_bytes = p->source.gguf.data_offset;
    for (uint32_t i = 0; i < p->source.gguf.tensor_count; i++)
        if (source_is_dense(&p->source, i))
            model_bytes += align_up(p->source.gguf.tensors[i].bytes, PAGE_BYTES);
    int status = need_add(needs, &count, model, model_bytes + p->manifest.entries_bytes, error);
    for (uint32_t f = 0; f < p->file_count && status == 0; f++)
        status = need_add(needs, &count, p->file_path[f], p->manifest.stripe[0].bytes, error);
    for (uint32_t i = 0; i < count && status == 0; i++)
        status = need_check(&needs[i], error);
    free(needs);
    return status;
}
