/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, checks and writes traces. */
#include "lib/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/model/limits.h"
#include "lib/model/router.h"
#include "lib/tensor/precision.h"

void trace_header_init(struct trace_header *h)
{
    *h = (struct trace_header){.magic = TRACE_MAGIC,
                               .version = TRACE_VERSION,
                               .header_bytes = sizeof *h,
                               .record_bytes = sizeof(struct trace_record)};
}

/* ---- checks --------------------------------------------------------------------------------- */

/* What the rule of routing relies on (lib/model/router.h). */
static bool router_is_known(const struct trace_header *h)
{
    static const uint32_t gatings[] = {ROUTER_SOFTMAX,       ROUTER_SIGMOID,
                                       ROUTER_SOFTMAX_AFTER, ROUTER_SQRT_SOFTPLUS,
                                       ROUTER_SPARSE_MIXER,  ROUTER_SIGMOID_AFTER};
    const struct trace_router *r = &h->router;
    bool known = false;
    for (size_t i = 0; i < sizeof gatings / sizeof *gatings; i++)
        known |= r->gating == gatings[i];
    return known && isfinite(r->scale) && r->groups <= h->experts &&
           (r->groups < 2 ||
            (h->experts % r->groups == 0 && r->groups_used > 0 && r->groups_used <= r->groups &&
             h->experts / r->groups * r->groups_used >= h->top_k));
}

/* Every page of a row that is read has a number, and a set. */
static bool table_is_known(const struct trace_header *h)
{
    const struct trace_table *t = &h->table;
    const struct table_pages pages = trace_table_pages(h);
    const struct trace_table none = {.tables = 0};
    if (t->tables == 0)
        return memcmp(t, &none, sizeof none) == 0;
    return t->tables == 1 && t->rows_of_token > 0 && t->rows_of_token <= TRACE_TABLE_ROWS_MAX &&
           t->rows > 0 && t->rows <= UINT32_MAX && t->row_bytes > 0 && t->head_bytes < PAGE_BYTES &&
           table_parts_of_row(&pages) <= TABLE_WAVE_PARTS &&
           (t->head_bytes + t->rows * t->row_bytes) / PAGE_BYTES < UINT32_MAX && t->slots > 0 &&
           t->slots <= MODEL_PAGE_SLOTS && t->slots % MODEL_PAGE_WAYS == 0 && t->layer < h->layers;
}

static int header_check(const struct trace_header *h, struct error *error)
{
    if (h->magic != TRACE_MAGIC)
        return error_set(
            error, ERR_BAD_INPUT,
            "not a trace: wrong magic number (recordings of other engines: sluice sim --import)");
    if (h->version != TRACE_VERSION || h->header_bytes != sizeof *h ||
        h->record_bytes != sizeof(struct trace_record))
        return error_set(error, ERR_BAD_INPUT,
                         "trace version %" PRIu32 " with records of %" PRIu32
                         " bytes is not supported; expected version %u with %zu",
                         h->version, h->record_bytes, TRACE_VERSION, sizeof(struct trace_record));
    if (h->layers == 0 || h->layers > MODEL_LAYERS_MAX || h->experts == 0 ||
        h->experts > MODEL_EXPERTS_MAX || h->top_k == 0 || h->top_k > MODEL_TOP_K_MAX ||
        h->top_k > h->experts || h->table_layers > h->layers || trace_expert_layers(h) == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "trace header out of range: %" PRIu32 " layers, %" PRIu32
                         " experts, top-%" PRIu32,
                         h->layers, h->experts, h->top_k);
    if (h->precision_mask == 0 || h->precision_mask >> PRECISION__COUNT)
        return error_set(error, ERR_BAD_INPUT, "trace header: invalid precision mask %#" PRIx32,
                         h->precision_mask);
    for (uint32_t t = 0; t < PRECISION__COUNT; t++)
        if ((h->precision_mask >> t & 1) &&
            (h->precision_bytes[t] == 0 || h->precision_bytes[t] >> 40))
            return error_set(error, ERR_BAD_INPUT,
                             "trace header: invalid expert size of %" PRIu64 " bytes",
                             h->precision_bytes[t]);
    if (h->hidden > MODEL_ROW_MAX || (h->router.gating != 0 && !router_is_known(h)))
        return error_set(error, ERR_BAD_INPUT, "trace header: invalid router");
    if (!table_is_known(h))
        return error_set(error, ERR_BAD_INPUT, "trace header: invalid table");
    return 0;
}

static bool share(float x)
{
    return isfinite(x) && x >= 0;
}

/* A router's logit may be -infinity, its bias may not. */
static bool floats(const struct trace_record *r)
{
    float x[TRACE_FLOATS];
    trace_values(r, x);
    for (uint32_t i = 0; i < r->rank && i < TRACE_FLOATS; i++)
        if (!isfinite(x[i]) && !(r->kind == TRACE_ROUTER && x[i] == -INFINITY))
            return false;
    return true;
}

/* Of a record whose `rank` values are those of experts. */
static const char *values_invalid(const struct trace_header *h, const struct trace_record *r)
{
    uint32_t most = r->kind == TRACE_LOGITS ? TRACE_VALUES : TRACE_FLOATS;
    if (r->rank == 0 || r->rank > most || r->rank > h->experts - r->expert)
        return "number of values";
    if (r->kind == TRACE_LOGITS)
        return NULL;
    return h->router.gating == 0 ? "logits of an unknown router" : floats(r) ? NULL : "value";
}

static const char *input_invalid(const struct trace_header *h, const struct trace_record *r)
{
    uint32_t first = r->expert * TRACE_HALVES;
    bool within =
        r->rank > 0 && r->rank <= TRACE_HALVES && first < h->hidden && r->rank <= h->hidden - first;
    return within ? NULL : "number of values";
}

static const char *rows_invalid(const struct trace_header *h, const struct trace_record *r)
{
    uint32_t row[TRACE_FLOATS];
    if (h->table.tables == 0 || r->layer != h->table.layer)
        return "layer";
    if (r->rank == 0 || r->rank > TRACE_FLOATS || r->expert >= h->table.rows_of_token ||
        r->rank > h->table.rows_of_token - r->expert)
        return "number of values";
    trace_values(r, row);
    for (uint32_t i = 0; i < r->rank; i++)
        if (row[i] >= h->table.rows)
            return "row";
    return NULL;
}

static const char *record_invalid(const struct trace_header *h, const struct trace_record *r)
{
    switch (r->kind) {
    case TRACE_SEQUENCE_START: return r->rank == 0 || share(r->weight) ? NULL : "nats";
    case TRACE_SEQUENCE_END: return NULL;
    case TRACE_TOKEN_END: return r->tokens <= MODEL_CONTEXT_MAX ? NULL : "tokens";
    case TRACE_ROWS: return rows_invalid(h, r);
    case TRACE_EXPERT:
    case TRACE_CHOICE:
    case TRACE_LOGITS:
    case TRACE_PREDICTED:
    case TRACE_GPU_PREDICTED:
    case TRACE_CANDIDATE:
    case TRACE_ROUTER:
    case TRACE_BIAS:
    case TRACE_INPUT: break;
    default: return "kind";
    }
    if (r->layer >= h->layers || !expert_layers_has(&h->expert_layers, r->layer))
        return "layer";
    if (r->kind == TRACE_INPUT)
        return input_invalid(h, r);
    if (r->expert >= h->experts)
        return "expert";
    if (r->kind == TRACE_LOGITS || r->kind == TRACE_ROUTER || r->kind == TRACE_BIAS)
        return values_invalid(h, r);
    if (!share(r->weight))
        return "weight";
    if (r->kind == TRACE_CANDIDATE)
        return isfinite(r->before) ? NULL : "margin";
    bool predicted = r->kind == TRACE_PREDICTED || r->kind == TRACE_GPU_PREDICTED;
    if (predicted && !share(r->before))
        return "weight before";
    if (predicted)
        return r->from_layer < r->layer ? NULL : "layer of the prediction";
    if (r->kind == TRACE_CHOICE)
        return NULL;
    if (r->tokens == 0 || r->tokens > MODEL_CONTEXT_MAX)
        return "tokens";
    return r->prefill && !share(r->before) ? "weight before" : NULL;
}

int trace_check(const struct trace_header *h, const struct trace_record *records, uint64_t count,
                struct error *error)
{
    if (header_check(h, error) != 0)
        return -1;
    for (uint64_t i = 0; i < count; i++) {
        const char *what = record_invalid(h, &records[i]);
        if (what)
            return error_set(error, ERR_BAD_INPUT, "trace record %" PRIu64 ": invalid %s", i, what);
    }
    return 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* The bytes of a header whose first TRACE_HEADER_2_BYTES are known. */
static size_t header_bytes(const struct trace_header *h)
{
    return h->version == 2   ? TRACE_HEADER_2_BYTES
           : h->version == 3 ? TRACE_HEADER_3_BYTES
                             : sizeof *h;
}

/* A header that was read becomes one of this version. */
static void header_update(struct trace_header *h)
{
    if (h->version < 2 || h->version > 3 || h->header_bytes != header_bytes(h))
        return;
    h->version = TRACE_VERSION;
    h->header_bytes = sizeof *h;
}

int trace_parse(const void *bytes, size_t count, struct trace *out, struct error *error)
{
    *out = (struct trace){0};
    if (count >= TRACE_HEADER_2_BYTES)
        memcpy(&out->header, bytes, TRACE_HEADER_2_BYTES);
    size_t first = header_bytes(&out->header);
    if (count < first)
        return error_set(error, ERR_BAD_INPUT, "not a trace: only %zu bytes", count);
    memcpy(&out->header, bytes, first);
    header_update(&out->header);
    if (header_check(&out->header, error) != 0)
        return -1;
    out->count = (count - first) / sizeof *out->records;
    if (out->count > TRACE_RECORDS_MAX)
        return error_set(error, ERR_BAD_INPUT, "trace has too many records: %" PRIu64, out->count);
    out->records = malloc((out->count + 1) * sizeof *out->records);
    if (!out->records)
        return error_set(error, ERR_NO_MEMORY, "out of memory (trace)");
    memcpy(out->records, (const char *)bytes + first, out->count * sizeof *out->records);
    if (trace_check(&out->header, out->records, out->count, error) == 0)
        return 0;
    trace_free(out);
    return -1;
}

static int read_all(int fd, void *to, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = read(fd, (char *)to + at, bytes - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        at += (uint64_t)n;
    }
    return 0;
}

static int read_open(int fd, const char *path, struct trace *out, struct error *error)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot read %.200s", path);
    uint64_t bytes = st.st_size > 0 ? (uint64_t)st.st_size : 0;
    if (!S_ISREG(st.st_mode) || bytes < TRACE_HEADER_2_BYTES)
        return error_set(error, ERR_BAD_INPUT, "%.200s is not a trace", path);
    int rv = read_all(fd, &out->header, TRACE_HEADER_2_BYTES);
    size_t first = header_bytes(&out->header);
    if (rv == 0)
        rv =
            read_all(fd, (char *)&out->header + TRACE_HEADER_2_BYTES, first - TRACE_HEADER_2_BYTES);
    if (rv != 0)
        return error_set_errno(error, ERR_IO, rv, "cannot read %.200s", path);
    header_update(&out->header);
    if (header_check(&out->header, error) != 0)
        return -1;
    out->count = (bytes - first) / sizeof *out->records;
    if (out->count > TRACE_RECORDS_MAX)
        return error_set(error, ERR_BAD_INPUT, "%.200s has more than %" PRIu64 " records", path,
                         TRACE_RECORDS_MAX);
    out->records = malloc((out->count + 1) * sizeof *out->records);
    if (!out->records)
        return error_set(error, ERR_NO_MEMORY, "out of memory (trace %.200s)", path);
    if ((rv = read_all(fd, out->records, out->count * sizeof *out->records)) != 0)
        return error_set_errno(error, ERR_IO, rv, "cannot read %.200s", path);
    return trace_check(&out->header, out->records, out->count, error);
}

int trace_read(const char *path, struct trace *out, struct error *error)
{
    *out = (struct trace){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot open %.200s", path);
    int rv = read_open(fd, path, out, error);
    close(fd);
    if (rv != 0)
        trace_free(out);
    return rv;
}

int trace_write(const char *path, const struct trace *t, struct error *error)
{
    FILE *f = fopen(path, "wbe");
    if (!f)
        return error_set_errno(error, ERR_IO, errno, "cannot write %.200s", path);
    bool ok = fwrite(&t->header, sizeof t->header, 1, f) == 1 &&
              fwrite(t->records, sizeof *t->records, t->count, f) == t->count;
    int status = errno;
    if (fclose(f) != 0 && ok) {
        ok = false;
        status = errno;
    }
    return ok ? 0 : error_set_errno(error, ERR_IO, status, "cannot write %.200s", path);
}

void trace_free(struct trace *t)
{
    free(t->records);
    *t = (struct trace){0};
}
