/* SPDX-License-Identifier: Apache-2.0 */
/* Writes expert stores from GGUF files by the specification in store.h. */
#include "tests/unit/lib/model/store_make.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/model/gguf/write.h"
#include "lib/model/limits.h"
#include "lib/tensor/precision.h"
#include "lib/tensor/tensor_type.h"

struct maker {
    const struct store_make *how;
    const char *dir;
    struct model_index *model;
    const uint8_t *file; /* mapped */
    uint8_t *slot;
    uint64_t *table; /* records after the head */
    uint64_t table_bytes;
    uint8_t id[STORE_HASH_BYTES];
    FILE *stripe[MODEL_STRIPES_MAX];
    char path[MODEL_STRIPES_MAX][PATH_MAX];
    uint64_t end[MODEL_STRIPES_MAX]; /* of the stripes so far */
};

static ssize_t read_mapped(void *arg, void *buf, size_t n, uint64_t offset)
{
    const struct maker *k = arg;
    memcpy(buf, k->file + offset, n);
    return (ssize_t)n;
}

static void hash_text(const void *data, uint64_t bytes, char out[33])
{
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(data, bytes));
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * (size_t)i, 3, "%02x", sum.digest[i]);
}

static const struct model_entry *native(const struct maker *k, uint32_t number)
{
    return &model_index_entries(k->model)[k->model->dense_count + number];
}

/* Keys and dense tensors, with data aligned only to 32 bytes. */
static int make_model(struct maker *k, struct error *error)
{
    struct gguf g;
    struct gguf_source source = {.read = read_mapped, .arg = k, .bytes = k->model->file.bytes};
    if (gguf_open(&g, &source, error))
        return -1;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" STORE_MODEL_FILE, k->dir);
    struct gguf_writer *w = gguf_writer_new(32);
    for (uint32_t i = 0; i < g.key_count; i++)
        if (strncmp(g.header + g.keys[i].name_at, "general.alignment", g.keys[i].name_bytes) != 0)
            gguf_put_copy(w, &g, i);
    for (uint32_t i = 0; i < g.tensor_count; i++)
        if (!strstr(g.tensors[i].name, "_exps."))
            gguf_put_tensor(w, g.tensors[i].name, g.tensors[i].type, g.tensors[i].dims,
                            g.tensors[i].ne);
    int rc = gguf_writer_layout(w, error);
    if (rc == 0)
        rc = gguf_writer_start(w, path, error);
    for (uint32_t i = 0; i < g.tensor_count && rc == 0; i++)
        if (!strstr(g.tensors[i].name, "_exps."))
            rc = gguf_writer_data(w, k->file + g.tensors[i].file_offset, g.tensors[i].bytes, error);
    if (rc == 0)
        rc = gguf_writer_end(w, error);
    gguf_writer_free(w);
    gguf_close(&g);
    return rc;
}

/* The three matrices at multiples of 64, zero-padded. Returns the slot's pages. */
static uint64_t fill_slot(struct maker *k, const struct model_entry *e, uint64_t offset[3])
{
    uint64_t at = 0;
    memset(k->slot, 0, e->slot_bytes + PAGE_BYTES);
    for (int i = 0; i < EXPERT__COUNT; i++) {
        const struct model_extent *x = &e->extent[i];
        offset[i] = at = align_up(at, 64);
        memcpy(k->slot + at, k->file + x->file_offset + x->head_bytes, x->payload_bytes);
        at += x->payload_bytes;
    }
    return (at + PAGE_BYTES - 1) / PAGE_BYTES;
}

static bool wanted(const struct maker *k, uint32_t precision_number, uint32_t precisions,
                   uint32_t number)
{
    return !k->how->scattered || number % precisions == precision_number;
}

/* A whole expert into one stripe. */
static void put_whole(struct maker *k, const struct model_entry *e, uint64_t *record)
{
    uint64_t offset[3], pages = fill_slot(k, e, offset);
    uint32_t s = (e->layer + (uint32_t)e->expert) % k->how->stripes;
    record[0] = k->end[s];
    record[1 + s] = XXH3_64bits(k->slot, pages * PAGE_BYTES);
    fseeko(k->stripe[s], (off_t)k->end[s], SEEK_SET);
    fwrite(k->slot, PAGE_BYTES, pages, k->stripe[s]);
    k->end[s] += pages * PAGE_BYTES;
}

static void put_expert(struct maker *k, const struct model_entry *e, uint64_t *record)
{
    uint64_t offset[3], pages = fill_slot(k, e, offset);
    uint64_t each = (pages + k->how->stripes - 1) / k->how->stripes;
    if (k->how->spread) {
        put_whole(k, e, record);
        return;
    }
    record[0] = k->end[0];
    for (uint32_t s = 0; s < k->how->stripes; s++) {
        uint64_t first = s * each, count = first >= pages         ? 0
                                           : pages - first < each ? pages - first
                                                                  : each;
        const uint8_t *from = k->slot + first * PAGE_BYTES;
        record[1 + s] = count ? XXH3_64bits(from, count * PAGE_BYTES) : 0;
        fseeko(k->stripe[s], (off_t)k->end[s], SEEK_SET);
        fwrite(from, PAGE_BYTES, count, k->stripe[s]);
        k->end[s] += each * PAGE_BYTES;
    }
}

static int open_stripes(struct maker *k, struct error *error)
{
    for (uint32_t s = 0; s < k->how->stripes; s++) {
        const char *dir = s % 2 && k->how->elsewhere ? k->how->elsewhere : k->dir;
        snprintf(k->path[s], PATH_MAX, "%s/experts.%u.bin", dir, s);
        k->stripe[s] = fopen(k->path[s], "we");
        if (!k->stripe[s])
            return error_set_errno(error, ERR_IO, errno, "%.300s", k->path[s]);
        struct store_stripe_head head = {
            .magic = STORE_STRIPE_MAGIC, .version = 1, .stripe = s, .stripes = k->how->stripes};
        memcpy(head.id, k->id, sizeof head.id);
        fwrite(&head, sizeof head, 1, k->stripe[s]);
        k->end[s] = PAGE_BYTES;
    }
    return 0;
}

static int copy_stripe(const struct maker *k, uint32_t s)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s.mirror", k->path[s]);
    int from = open(k->path[s], O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t n = 0;
    while (from >= 0 && to >= 0 && (n = copy_file_range(from, NULL, to, NULL, 1 << 30, 0)) > 0)
        ;
    close(from);
    return close(to) == 0 && n == 0 ? 0 : -1;
}

static int make_stripes(struct maker *k, struct error *error)
{
    const struct model_index *m = k->model;
    uint32_t grid = m->hparams.layers * m->hparams.experts, at = 0, ordinal = 0;
    uint32_t precisions = (uint32_t)__builtin_popcount(k->how->precision_mask);
    if (open_stripes(k, error) != 0)
        return -1;
    for (int precision = 0; precision < PRECISION__COUNT; precision++) {
        if (!(k->how->precision_mask & 1u << precision))
            continue;
        for (uint32_t i = 0; i < grid; i++, at++) {
            uint64_t *record = k->table + (uint64_t)at * (1 + k->how->stripes);
            if (wanted(k, ordinal, precisions, i))
                put_expert(k, native(k, i), record);
            else
                record[0] = STORE_ABSENT;
        }
        ordinal++;
    }
    for (uint32_t s = 1; s < k->how->stripes; s++) /* all stripes get the length of the longest */
        k->end[0] = k->end[s] > k->end[0] ? k->end[s] : k->end[0];
    for (uint32_t s = 0; s < k->how->stripes; s++)
        if (fflush(k->stripe[s]) != 0 || ftruncate(fileno(k->stripe[s]), (off_t)k->end[0]) != 0 ||
            (k->how->mirrored && copy_stripe(k, s) != 0))
            return error_set_errno(error, ERR_IO, errno, "cannot write a stripe");
    return 0;
}

static void put_matrix(FILE *out, const char *name, const struct model_matrix *x, uint64_t offset,
                       bool last)
{
    fprintf(out,
            "\"%s\": {\"type\": \"%s\", \"k\": %u, \"n\": %u, \"row_bytes\": %" PRIu64
            ", \"offset\": %" PRIu64 "}%s",
            name, tensor_type_info(x->type)->name, x->k, x->n, x->row_bytes, offset,
            last ? "}" : ", ");
}

/* One group per layer: more than needed, but allowed. */
static void put_precision(struct maker *k, FILE *out, enum precision precision, bool last)
{
    const struct model_hparams *h = &k->model->hparams;
    fprintf(out, "{\"tier\": \"%s\", \"method\": \"copy\", \"groups\": [",
            (const char *const[]){"native", "int8", "int4", "int2"}[precision]);
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        const struct model_entry *e = native(k, layer * h->experts);
        uint64_t offset[3], pages = fill_slot(k, e, offset);
        fprintf(out,
                "{\"first_layer\": %u, \"last_layer\": %u, \"slot_pages\": %" PRIu64
                ", \"payload_bytes\": %" PRIu64 ", ",
                layer, layer, pages, e->payload_bytes);
        put_matrix(out, "gate", &e->matrix[0], offset[0], false);
        put_matrix(out, "up", &e->matrix[1], offset[1], false);
        put_matrix(out, "down", &e->matrix[2], offset[2], true);
        fputs(layer + 1 < h->layers ? ", " : "]}", out);
    }
    fputs(last ? "],\n" : ",\n", out);
}

static int make_manifest(struct maker *k, struct error *error)
{
    const struct model_index *m = k->model;
    char path[PATH_MAX], id[33];
    snprintf(path, sizeof path, "%s/" STORE_MANIFEST_FILE, k->dir);
    FILE *out = fopen(path, "we");
    if (!out)
        return error_set_errno(error, ERR_IO, errno, "%.300s", path);
    for (int i = 0; i < 16; i++)
        snprintf(id + 2 * (size_t)i, 3, "%02x", k->id[i]);
    fprintf(out,
            "{\"format\": \"sluice-store\", \"version\": 1, \"id\": \"%s\",\n"
            "\"model_hash\": \"%032d\",\n\"source_hash\": \"%032d\",\n"
            "\"arch\": \"%s\", \"layers\": %u, \"experts\": %u, \"page_bytes\": 4096,\n"
            "\"stripes\": [",
            id, 0, 0, m->arch, m->hparams.layers, m->hparams.experts);
    for (uint32_t s = 0; s < k->how->stripes; s++) {
        bool absolute = s % 2 && k->how->elsewhere;
        const char *stands = absolute ? k->path[s] : strrchr(k->path[s], '/') + 1;
        fprintf(out, "%s{\"path\": \"%s\", \"bytes\": %" PRIu64, s ? ", " : "", stands, k->end[0]);
        if (k->how->mirrored)
            fprintf(out, ", \"mirror\": \"%s.mirror\"", stands);
        fputs("}", out);
    }
    fputs("],\n", out);
    if (k->how->spread)
        fputs("\"layout\": \"spread\",\n", out);
    fputs("\"tiers\": [", out);
    for (int precision = 0; precision < PRECISION__COUNT; precision++)
        if (k->how->precision_mask & 1u << precision)
            put_precision(k, out, (enum precision)precision,
                          k->how->precision_mask >> (precision + 1) == 0);
    fprintf(out,
            "\"entries\": {\"bytes\": %" PRIu64 ", \"xxh3\": \"%016d\"},\n"
            "\"info\": {\"made by\": \"a test\"}}\n",
            k->table_bytes, 0);
    return fclose(out) == 0 ? store_make_resum(k->dir, error)
                            : error_set_errno(error, ERR_IO, errno, "%.300s", path);
}

static int write_file(const char *dir, const char *name, const void *data, uint64_t bytes,
                      struct error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "we");
    bool ok = out && fwrite(data, 1, bytes, out) == bytes;
    if (out)
        ok = fclose(out) == 0 && ok;
    return ok ? 0 : error_set_errno(error, ERR_IO, errno, "%.300s", path);
}

static int make_table(struct maker *k, struct error *error)
{
    const struct model_hparams *h = &k->model->hparams;
    struct store_entries_head *head = (void *)((char *)k->table - sizeof *head);
    *head = (struct store_entries_head){.magic = STORE_ENTRIES_MAGIC,
                                        .version = 1,
                                        .stripes = k->how->stripes,
                                        .layers = h->layers,
                                        .experts = h->experts,
                                        .precision_mask = k->how->precision_mask};
    head->count = (uint64_t)__builtin_popcount(k->how->precision_mask) * h->layers * h->experts;
    memcpy(head->id, k->id, sizeof head->id);
    return write_file(k->dir, STORE_ENTRIES_FILE, head, k->table_bytes, error);
}

static char *read_all(const char *dir, const char *name, uint64_t *bytes)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *in = fopen(path, "re");
    char *data = NULL;
    if (in && fstat(fileno(in), &st) == 0 && (data = calloc(1, (size_t)st.st_size + 1)))
        *bytes = fread(data, 1, (size_t)st.st_size, in);
    if (in)
        fclose(in);
    return data;
}

static void put_sum(char *manifest, const char *before, const char *digits)
{
    char *at = strstr(manifest, before);
    sl_assert(at != NULL);
    memcpy(at + strlen(before), digits, strlen(digits));
}

int store_make_resum(const char *dir, struct error *error)
{
    uint64_t manifest_bytes = 0, table_bytes = 0, model_bytes = 0;
    char *manifest = read_all(dir, STORE_MANIFEST_FILE, &manifest_bytes);
    char *table = read_all(dir, STORE_ENTRIES_FILE, &table_bytes);
    char *model = read_all(dir, STORE_MODEL_FILE, &model_bytes);
    int rc = -1;
    if (manifest && table && model) {
        char digits[33];
        hash_text(model, model_bytes, digits);
        put_sum(manifest, "\"model_hash\": \"", digits);
        snprintf(digits, sizeof digits, "%016" PRIx64, (uint64_t)XXH3_64bits(table, table_bytes));
        put_sum(manifest, "\"xxh3\": \"", digits);
        rc = write_file(dir, STORE_MANIFEST_FILE, manifest, manifest_bytes, error);
    } else {
        error_set(error, ERR_IO, "%.200s: no store to resum", dir);
    }
    free(manifest);
    free(table);
    free(model);
    return rc;
}

static int make_all(struct maker *k, struct error *error)
{
    const struct model_index *m = k->model;
    uint64_t count = (uint64_t)__builtin_popcount(k->how->precision_mask) * m->hparams.layers *
                     m->hparams.experts;
    k->table_bytes =
        sizeof(struct store_entries_head) + count * (1 + k->how->stripes) * sizeof(uint64_t);
    char *table = calloc(1, k->table_bytes);
    k->slot = calloc(1, m->expert_slot_bytes_max + 2 * PAGE_BYTES);
    k->table = (uint64_t *)(void *)(table + sizeof(struct store_entries_head));
    memset(k->id, 0xab, sizeof k->id);
    memcpy(k->id, &k->how->seed, sizeof k->how->seed);
    int rc = make_model(k, error);
    if (rc == 0)
        rc = make_stripes(k, error);
    if (rc == 0)
        rc = make_table(k, error);
    if (rc == 0)
        rc = make_manifest(k, error);
    for (uint32_t s = 0; s < k->how->stripes; s++)
        if (k->stripe[s])
            fclose(k->stripe[s]);
    free(table);
    free(k->slot);
    return rc;
}

int store_make(const char *gguf, const char *dir, const struct store_make *how, struct error *error)
{
    struct maker k = {.how = how, .dir = dir};
    int fd = open(gguf, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (mkdir(dir, 0700) != 0 && errno != EEXIST))
        return error_set_errno(error, ERR_IO, errno, "%.150s, %.150s", gguf, dir);
    int rc = model_index_build(fd, gguf, &k.model, error);
    void *file =
        rc == 0 ? mmap(NULL, k.model->file.bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    k.file = file;
    if (rc == 0 && file == MAP_FAILED)
        rc = error_set_errno(error, ERR_IO, errno, "cannot map %.200s", gguf);
    if (rc == 0)
        rc = make_all(&k, error);
    if (file != MAP_FAILED)
        munmap(file, k.model->file.bytes);
    free(k.model);
    close(fd);
    return rc;
}
