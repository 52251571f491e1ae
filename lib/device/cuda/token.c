/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that the GPU computes alone: all experts have slots, and keys, values and states of all
 * layers are there. What the operations need of the host is a block that is copied before them: the
 * number of the token, its position. Experts are found by the routes, in a table of addresses. So
 * from token to token the operations are the same, and are launched as a graph:
 *
 *   first token     operations run as they are submitted; it is noted what they use of the sequence
 *   second          they are recorded, and launched
 *   later ones      launched again, until a position is beyond what the graph has space for, or
 *                   types are others
 *
 * The block, and not new parameters of the graph's kernels: one copy of a few bytes instead of a
 * call of the driver for each kernel that reads the position, three in each layer. The number of
 * blocks of attention, which cannot be read from memory, is that of `limit`: a power of two of key
 * segments, so a graph is recorded again when the length has doubled.
 *
 * Before a launch, what is not valid of the sequence is copied to the GPU, so another sequence
 * needs no other graph; after it, new rows and states are copied to the host, as for other
 * operations. */
#include <stdlib.h>
#include <string.h>

#include "lib/device/cuda/internal.h"

_Static_assert(GPU_MATRICES == EXPERT__COUNT && EXPERT_GATE == 0 && EXPERT_UP == 1 &&
                   EXPERT_DOWN == 2,
               "matrices of an expert");

/* ---- memory ---- */

static size_t table_entries(const struct cuda *c)
{
    return (size_t)c->layout.layers * c->layout.experts * EXPERT__COUNT;
}

static size_t rows_bytes(const struct cuda *c, const struct device_limits *l)
{
    return align_up((size_t)c->layout.layers * l->kv_floats * sizeof(float), DEVICE_ALIGN);
}

size_t cuda_token_bytes(const struct cuda *c, const struct device_limits *l)
{
    return align_up(sizeof(struct token_block), DEVICE_ALIGN) + rows_bytes(c, l) +
           align_up(table_entries(c) * sizeof(void *), DEVICE_ALIGN);
}

void cuda_token_open(struct cuda *c, const struct device_limits *limits, uint8_t *memory)
{
    struct token *t = &c->token;
    void *sent;
    cuda_check(c, c->k->host_allocate(sizeof *t->sent, &sent), "pinned memory");
    t->sent = sent;
    t->block = (struct token_block *)(void *)memory;
    memory += align_up(sizeof *t->block, DEVICE_ALIGN);
    t->rows = (float *)(void *)memory;
    t->rows_space = (size_t)c->layout.layers * limits->kv_floats;
    t->table = (void **)(void *)(memory + rows_bytes(c, limits));
    t->sent_table = calloc(table_entries(c) + 1, sizeof *t->sent_table);
    sl_assert(t->sent_table);
}

static void drop_graph(struct cuda *c)
{
    if (c->token.graph)
        cuda_check(c, c->k->graph_destroy(c->token.graph), "a graph");
    c->token.graph = NULL;
}

void cuda_token_close(struct cuda *c)
{
    struct token *t = &c->token;
    drop_graph(c);
    if (t->sent)
        cuda_check(c, c->k->host_release(t->sent), "a release of memory");
    free(t->sent_table);
    free(t->use);
    free(t->row);
    *t = (struct token){0};
}

/* Memory for one more element. */
static void *grown(void *all, uint32_t count, uint32_t *space, size_t bytes)
{
    if (count < *space)
        return all;
    *space = *space * 2 + 64;
    all = realloc(all, *space * bytes);
    sl_assert(all);
    return all;
}

/* ---- what operations use of the sequence ---- */

void cuda_token_uses(struct cuda *c, const struct token_use *use)
{
    struct token *t = &c->token;
    sl_assert(use->layer < c->layout.layers);
    if (t->mode == TOKEN_RECORDED) /* noted before */
        return;
    t->use = grown(t->use, t->uses, &t->use_space, sizeof *t->use);
    t->use[t->uses++] = *use;
}

static struct device_at host_of(const struct token_use *u, const struct device_sequence *s)
{
    if (u->part == PART_state)
        return u->access & DEVICE_READS ? s->state : s->next_state;
    return u->part == PART_keys ? s->keys : s->values;
}

static struct device_at take(struct cuda *c, const struct token_use *u, unsigned access)
{
    const struct device_sequence *s = &c->token.sequence[u->layer];
    struct device_span span = {c->token.position, c->token.position + 1};
    struct device_at host = host_of(u, s);
    c->kv_area.used = c->kv_kept;
    sl_assert(host.address);
    return u->floats > 0
               ? cuda_take_state(c, host, s, span, access, u->floats)
               : cuda_take_cache(c, u->part, host, s, span, access, u->heads, u->size, u->window);
}

static void keep(struct cuda *c, const struct token_use *u)
{
    const struct device_sequence *s = &c->token.sequence[u->layer];
    struct device_span span = {c->token.position, c->token.position + 1};
    if (u->floats == 0)
        cuda_keep_cache(c, u->part, s, span, u->access);
    else if (u->access & DEVICE_WRITES)
        cuda_keep_state(c, host_of(u, s), take(c, u, DEVICE_WRITES), s, span, u->access, u->floats);
}

void cuda_token_store(struct cuda *c, enum sequence_part part, const struct device_sequence *s,
                      const struct gpu_kv_store *row)
{
    struct token *t = &c->token;
    struct token_row r = {.part = part, .layer = s->layer, .rows = *row, .at = t->rows_used};
    t->rows_used += row->x_stride;
    sl_assert(row->rows == 1 && t->rows_used <= t->rows_space && t->rows_used <= c->landing_floats);
    r.rows.at = &t->block->position;
    r.rows.copy = t->rows + r.at;
    cuda_check(c, c->k->kv_store(&r.rows, c->stream), "keys and values");
    if (t->mode == TOKEN_RECORDED)
        return;
    t->row = grown(t->row, t->row_count, &t->row_space, sizeof *t->row);
    t->row[t->row_count++] = r;
}

void cuda_token_attend(struct cuda *c, const struct kernel_attention *a)
{
    struct kernel_attention row = *a;
    row.positions = c->token.limit;
    sl_assert(c->k->attention_workspace(&row) <= c->attend_bytes);
    cuda_check(c, c->k->attention_at(&row, &c->token.block->position, c->attend, c->stream),
               "attention");
}

/* ---- experts ---- */

static void send_table(struct cuda *c, uint64_t content)
{
    struct token *t = &c->token;
    if (t->content == content && t->changes == c->slots.changes)
        return;
    for (size_t i = 0; i < table_entries(c); i += EXPERT__COUNT) {
        uint8_t *const *matrix = cuda_matrices(c, content + i);
        for (int m = 0; m < EXPERT__COUNT; m++)
            t->sent_table[i + m] = matrix ? matrix[m] : NULL;
    }
    cuda_to_device(c, t->table, t->sent_table, table_entries(c) * sizeof *t->table);
    t->content = content;
    t->changes = c->slots.changes;
}

/* What a launch has of the experts, in the scratch memory. */
struct jobs {
    struct gpu_job *job; /* [EXPERT__COUNT][top_k] */
    struct gpu_finish_job *finish;
    struct gpu_term *term;
    uint32_t count; /* of each */
};

static struct jobs make_jobs(struct cuda *c, const struct device_routed *a)
{
    const struct route *routes = device_pointer(a->routes);
    uint32_t k = a->top_k;
    struct jobs j = {.job = cuda_scratch(c, EXPERT__COUNT * k * sizeof *j.job),
                     .finish = cuda_scratch(c, 2 * k * sizeof *j.finish),
                     .term = cuda_scratch(c, k * sizeof *j.term),
                     .count = k};
    struct gpu_routed g = {.table = (const void *const *)c->token.table +
                                    (size_t)a->layer * c->layout.experts * EXPERT__COUNT,
                           .number = &routes->expert,
                           .weight = &routes->weight,
                           .gate = device_floats(a->gate),
                           .up = device_floats(a->up),
                           .y = device_floats(a->y),
                           .factor = a->factor,
                           .step = ROUTE_STRIDE,
                           .ranks = k,
                           .inner = a->matrix[EXPERT_GATE].n,
                           .outputs = a->matrix[EXPERT_DOWN].n,
                           .jobs = j.job,
                           .finish = j.finish,
                           .terms = j.term};
    bool two = a->matrix[EXPERT_UP].n == 0; /* gate is up, too */
    for (int m = 0; m < EXPERT__COUNT; m++) {
        int from = two && m == EXPERT_UP ? EXPERT_GATE : m;
        g.scale[m] = device_floats(a->scale[from]);
        g.bias[m] = device_floats(a->bias[from]);
    }
    g.up = two ? g.gate : g.up;
    cuda_check(c, c->k->jobs_of_routes(&g, c->stream), "routes");
    return j;
}

/* Products with matrices m of `matrices` next to each other, which are alike. */
static void multiply(struct cuda *c, const struct device_routed *a, const struct jobs *j,
                     enum expert_matrix m, uint32_t matrices, const void *x, size_t x_stride)
{
    const struct gpu_products p = {.w = device_kernel_matrix(&a->matrix[m]),
                                   .x = x,
                                   .jobs = j->job + (size_t)m * j->count,
                                   .x_stride = x_stride,
                                   .y_stride = a->matrix[m].n,
                                   .n_end = a->matrix[m].n,
                                   .rows = 1,
                                   .count = matrices * j->count};
    cuda_check(c, c->k->products(&p, c->stream), "products");
}

static void multiply_input(struct cuda *c, const struct device_routed *a, const struct jobs *j,
                           enum expert_matrix m, uint32_t matrices)
{
    enum kernel_form form = kernel_form_of(a->matrix[m].type);
    multiply(c, a, j, m, matrices, device_pointer(a->x.base[form]), a->x.stride[form]);
}

static void finish_jobs(struct cuda *c, const struct gpu_finish_job *jobs, uint32_t count,
                        enum gpu_pointwise op, struct ffn_limit limit, uint32_t n)
{
    const struct gpu_finish f = {.jobs = jobs,
                                 .op = op,
                                 .value = cuda_limit(limit),
                                 .second = limit.cap_up,
                                 .count = count,
                                 .rows = 1,
                                 .n = n};
    cuda_check(c, c->k->finish(&f, c->stream), "the end of products");
}

void cuda_routed_experts(struct device *d, const struct device_routed *a)
{
    struct cuda *c = cuda_operation(d);
    const struct device_matrix *gate = &a->matrix[EXPERT_GATE], *up = &a->matrix[EXPERT_UP],
                               *down = &a->matrix[EXPERT_DOWN];
    bool alike = gate->type == up->type && gate->row_bytes == up->row_bytes && gate->n == up->n;
    const void *x;
    sl_assert(cuda_in_token(c));
    const struct jobs j = make_jobs(c, a);
    multiply_input(c, a, &j, EXPERT_GATE, alike ? 2 : 1);
    if (!alike && up->n > 0)
        multiply_input(c, a, &j, EXPERT_UP, 1);
    finish_jobs(c, j.finish, j.count, cuda_activation(a->activation, a->limit), a->limit, gate->n);
    size_t stride =
        cuda_prepare(c, down->type, device_floats(a->gate), gate->n, gate->n, j.count, &x);
    multiply(c, a, &j, EXPERT_DOWN, 1, x, stride);
    if (a->scale[EXPERT_DOWN].address || a->bias[EXPERT_DOWN].address)
        finish_jobs(c, j.finish + j.count, j.count, GPU_SILU_MUL, (struct ffn_limit){0},
                    down->n); /* without an operation */
    const struct gpu_terms terms = {.term = j.term,
                                    .y = device_floats(a->y),
                                    .into = device_floats(a->into),
                                    .rows = 1,
                                    .terms = j.count,
                                    .n = down->n};
    cuda_check(c, c->k->add_terms(&terms, c->stream), "a sum");
}

/* ---- a token ---- */

static void send_block(struct cuda *c, const struct device_token *t)
{
    *c->token.sent = (struct token_block){t->token, t->position, 1.0f};
    cuda_to_device(c, c->token.block, c->token.sent, sizeof *c->token.sent);
}

/* Its experts and rows have the types of those of the noted token. */
static bool same_kind(const struct token *t, const struct device_token *next)
{
    if (t->content != next->content) /* another precision */
        return false;
    for (uint32_t i = 0; i < t->row_count; i++) {
        const struct device_sequence *s = &next->sequence[t->row[i].layer];
        if (s->kv_type != t->row[i].rows.type || s->ring != t->row[i].rows.ring)
            return false;
    }
    return t->uses > 0;
}

/* A power of two of segments of keys. */
static uint32_t limit_of(const struct cuda *c, uint32_t position)
{
    uint32_t limit = KERNEL_KEY_SEGMENT;
    sl_assert(position < c->layout.positions);
    while (limit <= position)
        limit *= 2;
    return limit < c->layout.positions ? limit : c->layout.positions;
}

/* What it has written is known, and on the host after a wait. */
static void finish(struct cuda *c)
{
    struct token *t = &c->token;
    t->mode = TOKEN_NONE;
    c->landed = t->rows_used;
    for (uint32_t i = 0; i < t->row_count; i++) {
        const struct token_row *r = &t->row[i];
        const struct device_sequence *s = &t->sequence[r->layer];
        struct gpu_kv_store rows = r->rows;
        rows.position = t->position;
        cuda_note_rows(c, r->part == PART_keys ? s->keys : s->values, &rows, c->landing + r->at);
    }
    for (uint32_t i = 0; i < t->uses; i++)
        keep(c, &t->use[i]);
}

static void launch(struct cuda *c)
{
    cuda_check(c, c->k->graph_launch(c->token.graph, c->stream), "a graph");
    c->token.graph_launches++;
    c->copied.to_host += c->token.rows_used * sizeof(float);
}

bool cuda_token_begins(struct device *d, const struct device_token *next)
{
    struct cuda *c = cuda_operation(d);
    struct token *t = &c->token;
    sl_assert(!cuda_in_token(c) && d->keeps > 0);
    if (c->note_count > 0) /* the landing is in use */
        cuda_wait(c);
    t->sequence = next->sequence;
    t->position = next->position;
    bool known = same_kind(t, next);
    send_table(c, next->content);
    send_block(c, next);
    for (uint32_t i = 0; known && i < t->uses; i++)
        take(c, &t->use[i], t->use[i].access);
    if (known && t->graph && t->position < t->limit) {
        launch(c);
        finish(c);
        return false;
    }
    drop_graph(c);
    t->limit = limit_of(c, t->position);
    t->rows_used = 0;
    if (!known)
        t->uses = t->row_count = 0;
    else
        cuda_check(c, c->k->capture_begin(c->stream), "a recording");
    t->mode = known ? TOKEN_RECORDED : TOKEN_DIRECT;
    return true;
}

void cuda_token_ends(struct device *d)
{
    struct cuda *c = cuda_of(d);
    struct token *t = &c->token;
    sl_assert(cuda_in_token(c));
    if (t->rows_used > 0)
        cuda_check(c, c->k->download(c->landing, t->rows, t->rows_used * sizeof(float), c->stream),
                   "a copy from the GPU");
    if (t->mode == TOKEN_DIRECT) {
        c->copied.to_host += t->rows_used * sizeof(float);
    } else {
        cuda_check(c, c->k->capture_end(c->stream, &t->graph), "a recording");
        launch(c);
    }
    finish(c);
}
