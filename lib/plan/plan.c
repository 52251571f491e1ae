/* SPDX-License-Identifier: Apache-2.0 */
/* The plan blob: layout, checks, extension; hash of the model. */
#include "lib/plan/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/model/limits.h"
#include "lib/plan/table.h"

#define ROUTER_BYTES_MAX (64 * KIB)

/* ---- the tables ---- */

const struct plan_scalar_info plan_scalars[PLAN_SCALAR__COUNT] = {
#define PLAN_SCALAR(name, min, max, doc) {#name, min, max, doc},
#define PLAN_ARRAY(name, type, size, min, max, doc)
#include "lib/plan/plan.tbl.h"
};

const struct plan_array_info plan_array_infos[PLAN_ARRAY__COUNT] = {
#define PLAN_SCALAR(name, min, max, doc)
#define PLAN_ARRAY(name, type, size, min, max, doc)                                                \
    {#name, PLAN_ELEMENT_##type, PLAN_SIZE_##size, min, max, doc},
#include "lib/plan/plan.tbl.h"
};

static const uint32_t element_bytes[] = {[PLAN_ELEMENT_F32] = 4,
                                         [PLAN_ELEMENT_U32] = 4,
                                         [PLAN_ELEMENT_U16] = 2,
                                         [PLAN_ELEMENT_U8] = 1,
                                         [PLAN_ELEMENT_CELL] = sizeof(struct plan_cell)};

_Static_assert(PLAN_ARRAY__COUNT <= 64, "one bit per array");

static uint32_t layout_hash(void)
{
    static const char table[] =
#define PLAN_SCALAR(name, min, max, doc)            #name ";"
#define PLAN_ARRAY(name, type, size, min, max, doc) #name ":" #type ":" #size ";"
#include "lib/plan/plan.tbl.h"
        ;
    return (uint32_t)XXH3_64bits_withSeed(table, sizeof table, sizeof(struct plan));
}

uint64_t plan_array_count(const struct plan *p, enum plan_array a)
{
    uint64_t cells = (uint64_t)p->layers * p->experts;
    switch (plan_array_infos[a].size) {
    case PLAN_SIZE_LAYERS: return p->layers;
    case PLAN_SIZE_EXPERTS: return cells;
    case PLAN_SIZE_RANKS: return (uint64_t)p->layers * p->experts_used;
    case PLAN_SIZE_AUTO:
        return (uint64_t)PLAN_AUTO_SHARES * PLAN_AUTO_BANDWIDTHS * PLAN_AUTO_CANDIDATES;
    case PLAN_SIZE_PAIRS: return cells * p->experts;
    case PLAN_SIZE_PAIR_FIRST: return cells * p->experts + 1;
    case PLAN_SIZE_CELLS: return p->cells;
    }
    return 0;
}

double plan_tail_share(const struct plan *p)
{
    double sum = 0;
    uint32_t layers = 0;
    for (uint32_t l = 0; plan_has(p, PLAN_ARRAY_rank_share) && l < p->layers; l++) {
        const float *share = plan_rank_share(p) + (size_t)l * p->experts_used;
        for (uint32_t i = (p->experts_used + 1) / 2; i < p->experts_used && !isnan(share[0]); i++)
            sum += (double)share[i];
        layers += !isnan(share[0]);
    }
    return layers > 0 ? sum / layers : (double)NAN;
}

uint64_t plan_array_bytes(const struct plan *plan, enum plan_array a)
{
    return plan_array_count(plan, a) * element_bytes[plan_array_infos[a].element];
}

uint64_t plan_arrays(const struct plan *plan)
{
    uint64_t arrays = 0;
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        arrays |= plan_has(plan, (enum plan_array)a) ? plan_array_bit((enum plan_array)a) : 0;
    return arrays;
}

/* ---- creation ---- */

double plan_get(const struct plan *plan, enum plan_array a, uint64_t i)
{
    const uint8_t *at = (const uint8_t *)plan + plan->offset[a];
    switch (plan_array_infos[a].element) {
    case PLAN_ELEMENT_F32: return (double)((const float *)(const void *)at)[i];
    case PLAN_ELEMENT_CELL:
    case PLAN_ELEMENT_U32: return ((const uint32_t *)(const void *)at)[i];
    case PLAN_ELEMENT_U16: return ((const uint16_t *)(const void *)at)[i];
    case PLAN_ELEMENT_U8: return at[i];
    }
    return NAN;
}

void plan_set(struct plan *plan, enum plan_array a, uint64_t i, double value)
{
    uint8_t *at = (uint8_t *)plan + plan->offset[a];
    switch (plan_array_infos[a].element) {
    case PLAN_ELEMENT_F32: ((float *)(void *)at)[i] = (float)value; break;
    case PLAN_ELEMENT_CELL:
    case PLAN_ELEMENT_U32: ((uint32_t *)(void *)at)[i] = (uint32_t)value; break;
    case PLAN_ELEMENT_U16: ((uint16_t *)(void *)at)[i] = (uint16_t)value; break;
    case PLAN_ELEMENT_U8: at[i] = (uint8_t)value; break;
    }
}

static void fill_unknown(struct plan *plan, enum plan_array a)
{
    const struct plan_array_info *info = &plan_array_infos[a];
    bool real = info->element == PLAN_ELEMENT_F32;
    if (!real && info->min == 0)
        return; /* zero from calloc */
    for (uint64_t i = 0, n = plan_array_count(plan, a); i < n; i++)
        plan_set(plan, a, i, real ? (double)NAN : info->min);
}

struct plan *plan_create(uint32_t layers, uint32_t experts, uint32_t experts_used,
                         const uint8_t hash[PLAN_HASH_BYTES], uint64_t arrays, uint32_t cells,
                         struct error *error)
{
    sl_assert(layers >= 1 && layers <= MODEL_LAYERS_MAX && experts >= 1 &&
              experts <= MODEL_EXPERTS_MAX && arrays < plan_array_bit(PLAN_ARRAY__COUNT));
    struct plan head = {.magic = PLAN_MAGIC,
                        .version = PLAN_VERSION,
                        .layout_hash = layout_hash(),
                        .layers = layers,
                        .experts = experts,
                        .experts_used = experts_used,
                        .cells = cells};
    memcpy(head.model_hash, hash, PLAN_HASH_BYTES);
    for (int i = 0; i < PLAN_SCALAR__COUNT; i++)
        head.scalar[i] = (double)NAN;
    uint64_t at = align_up(sizeof head, PLAN_ARRAY_ALIGN);
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        if (arrays & plan_array_bit((enum plan_array)a)) {
            head.offset[a] = at;
            at = align_up(at + plan_array_bytes(&head, (enum plan_array)a), PLAN_ARRAY_ALIGN);
        }
    head.bytes = at;
    struct plan *plan = at <= PLAN_TABLES_MAX * UINT64_C(2) ? calloc(1, at) : NULL;
    if (!plan) {
        error_set(error, ERR_NO_MEMORY, "out of memory (plan of %" PRIu64 " bytes)", at);
        return NULL;
    }
    *plan = head;
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        if (head.offset[a])
            fill_unknown(plan, (enum plan_array)a);
    return plan;
}

struct plan *plan_extended(const struct plan *plan, uint64_t arrays, uint32_t cells,
                           struct error *error)
{
    sl_assert(!plan_has(plan, PLAN_ARRAY_pair_cells) || cells == plan->cells);
    struct plan *more = plan_create(plan->layers, plan->experts, plan->experts_used,
                                    plan->model_hash, plan_arrays(plan) | arrays, cells, error);
    if (!more)
        return NULL;
    more->text_hash = plan->text_hash;
    memcpy(more->scalar, plan->scalar, sizeof more->scalar);
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        if (plan->offset[a])
            memcpy((uint8_t *)more + more->offset[a], (const uint8_t *)plan + plan->offset[a],
                   plan_array_bytes(plan, (enum plan_array)a));
    return more;
}

/* ---- checks ---- */

static int bad(struct error *error, const char *what)
{
    return error_set(error, ERR_BAD_INPUT, "invalid plan: %s", what);
}

static int check_header(const struct plan *p, uint64_t bytes, struct error *error)
{
    if (bytes < sizeof *p || (uintptr_t)p % _Alignof(struct plan) != 0)
        return bad(error, "too short or not aligned");
    if (p->magic != PLAN_MAGIC)
        return bad(error, "wrong magic");
    if (p->version != PLAN_VERSION || p->layout_hash != layout_hash())
        return bad(error,
                   "written by another version of sluice; create it again with 'sluice plan'");
    if (p->bytes > bytes)
        return bad(error, "truncated");
    if (p->layers < 1 || p->layers > MODEL_LAYERS_MAX || p->experts < 1 ||
        p->experts > MODEL_EXPERTS_MAX || p->experts_used < 1 || p->experts_used > p->experts)
        return bad(error, "layers or experts out of range");
    uint64_t end = align_up(sizeof *p, PLAN_ARRAY_ALIGN);
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++) {
        if (!p->offset[a])
            continue;
        if (p->offset[a] != end)
            return bad(error, "an array has a wrong offset");
        end = align_up(end + plan_array_bytes(p, (enum plan_array)a), PLAN_ARRAY_ALIGN);
        if (end > p->bytes)
            return bad(error, "an array exceeds the blob");
    }
    return end == p->bytes ? 0 : bad(error, "its size does not match its arrays");
}

bool plan_scalar_right(enum plan_scalar s, double v)
{
    return isnan(v) || (v >= plan_scalars[s].min && v <= plan_scalars[s].max);
}

bool plan_element_right(enum plan_array a, double v)
{
    const struct plan_array_info *info = &plan_array_infos[a];
    if (isnan(v))
        return info->element == PLAN_ELEMENT_F32;
    return v >= info->min && v <= info->max && (info->element == PLAN_ELEMENT_F32 || v == floor(v));
}

/* Checks the indices of the pair table. */
static int check_pairs(const struct plan *p, struct error *error)
{
    const uint32_t *first = plan_pair_first(p);
    const struct plan_cell *cell = plan_pair_cells(p);
    if (!first != !cell)
        return bad(error, "only one of pair_first and pair_cells is present");
    if (!first)
        return 0;
    uint64_t pairs = plan_array_count(p, PLAN_ARRAY_pair_first) - 1;
    for (uint64_t i = 0; i < pairs; i++)
        if (first[i] > first[i + 1])
            return bad(error, "pair_first is not ascending");
    if (first[0] != 0 || first[pairs] != p->cells)
        return bad(error, "pair_first does not cover pair_cells");
    for (uint32_t i = 0; i < p->cells; i++)
        if (cell[i].expert >= p->experts)
            return bad(error, "pair_cells has an expert out of range");
    return 0;
}

int plan_check(const struct plan *p, uint64_t bytes, struct error *error)
{
    if (check_header(p, bytes, error))
        return -1;
    for (int s = 0; s < PLAN_SCALAR__COUNT; s++)
        if (!plan_scalar_right((enum plan_scalar)s, p->scalar[s]))
            return error_set(error, ERR_BAD_INPUT, "invalid plan: %s is not from %g to %g",
                             plan_scalars[s].name, plan_scalars[s].min, plan_scalars[s].max);
    for (int a = 0; a < PLAN_ARRAY__COUNT; a++)
        for (uint64_t i = 0, n = p->offset[a] ? plan_array_count(p, (enum plan_array)a) : 0; i < n;
             i++)
            if (!plan_element_right((enum plan_array)a, plan_get(p, (enum plan_array)a, i)))
                return error_set(
                    error, ERR_BAD_INPUT, "invalid plan: %s[%" PRIu64 "] is not from %g to %g",
                    plan_array_infos[a].name, i, plan_array_infos[a].min, plan_array_infos[a].max);
    return check_pairs(p, error);
}

/* ---- hash of the model ---- */

static int hash_dense(XXH3_state_t *state, const struct model_index *m, const int *fds,
                      uint32_t layer, enum dense_role role, uint8_t *buffer, struct error *error)
{
    uint32_t entry = model_entry_dense(m, layer, role);
    if (entry == ENTRY_NONE)
        return 0;
    const struct model_extent *x = &model_index_entries(m)[entry].extent[0];
    uint64_t bytes = x->payload_bytes < ROUTER_BYTES_MAX ? x->payload_bytes : ROUTER_BYTES_MAX;
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(fds[x->part], buffer + done, bytes - done,
                          (off_t)(x->file_offset + x->head_bytes + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set_errno(error, ERR_IO, n < 0 ? errno : EIO,
                                   "cannot read the model's norms and routers");
        done += (uint64_t)n;
    }
    XXH3_128bits_update(state, buffer, bytes);
    return 0;
}

static int hash_model(XXH3_state_t *state, const struct model_index *m, const int *fds,
                      uint8_t *buffer, struct error *error)
{
    static const enum dense_role roles[] = {DENSE_ATTN_NORM, DENSE_ATTN_Q_NORM, DENSE_ATTN_K_NORM,
                                            DENSE_FFN_NORM,  DENSE_ROUTER,      DENSE_ROUTER_SCALE};
    const struct model_hparams *hp = &m->hparams;
    uint32_t shape[] = {hp->layers,       hp->hidden,       hp->heads,
                        hp->kv_heads,     hp->head_size,    hp->experts,
                        hp->experts_used, hp->expert_inner, hp->vocab};
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, m->arch, strlen(m->arch));
    XXH3_128bits_update(state, shape, sizeof shape);
    for (uint32_t l = 0; l < hp->layers; l++)
        for (size_t r = 0; r < ARRAY_LEN(roles); r++)
            if (hash_dense(state, m, fds, l, roles[r], buffer, error) != 0)
                return -1;
    return hash_dense(state, m, fds, hp->layers, DENSE_OUTPUT_NORM, buffer, error);
}

int plan_model_hash(const struct model_index *m, const int *fds, uint8_t hash[PLAN_HASH_BYTES],
                    struct error *error)
{
    XXH3_state_t *state = XXH3_createState();
    uint8_t *buffer = malloc(ROUTER_BYTES_MAX);
    int status = state && buffer ? hash_model(state, m, fds, buffer, error)
                                 : error_set(error, ERR_NO_MEMORY, "out of memory (model hash)");
    if (status == 0) {
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state));
        memcpy(hash, canonical.digest, PLAN_HASH_BYTES);
    }
    free(buffer);
    XXH3_freeState(state);
    return status;
}

const char *plan_hash_text(const uint8_t hash[PLAN_HASH_BYTES], char text[2 * PLAN_HASH_BYTES + 1])
{
    for (int i = 0; i < PLAN_HASH_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", hash[i]);
    return text;
}

int plan_matches(const struct plan *plan, const struct model_index *model,
                 const uint8_t hash[PLAN_HASH_BYTES], const char *what, struct error *error)
{
    const struct model_hparams *hp = &model->hparams;
    char of_plan[2 * PLAN_HASH_BYTES + 1], of_model[2 * PLAN_HASH_BYTES + 1];
    if (plan->layers != hp->layers || plan->experts != hp->experts ||
        plan->experts_used != hp->experts_used)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s is for another model: %u layers of %u experts (%u used), "
                         "this model has %u of %u (%u)",
                         what, plan->layers, plan->experts, plan->experts_used, hp->layers,
                         hp->experts, hp->experts_used);
    if (memcmp(plan->model_hash, hash, PLAN_HASH_BYTES) != 0)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s is for another model: hash %s, this model has %s", what,
                         plan_hash_text(plan->model_hash, of_plan), plan_hash_text(hash, of_model));
    return 0;
}
