/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on rows: embeddings, angles, norms, forms. */
#include <string.h>

#include "lib/device/host/internal.h"
#include "lib/exact/elementary.h"

#define LANES            4   /* of any x86-64 and ARM: wider sums would be kept in memory */
#define ACTIVATION_BLOCK 256 /* elements with limits that are computed together */
#define GATE_BLOCK       64  /* elements of a head whose gates are computed together */
#define TURNED_MAX       256 /* elements of a row that become a column */
typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));

/* The exponent of a value that is not finite is all ones: adding 1 to it carries into the sign. */
bool host_finite(const float *x, size_t n)
{
    lanes all = {0}, others = {0}, v, w;
    uint32_t some = 0, word;
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        memcpy(&v, x + i, sizeof v);
        memcpy(&w, x + i + LANES, sizeof w);
        all |= (v & 0x7f800000u) + 0x00800000u;
        others |= (w & 0x7f800000u) + 0x00800000u;
    }
    all |= others;
    for (; i < n; i++) {
        memcpy(&word, x + i, sizeof word);
        some |= (word & 0x7f800000u) + 0x00800000u;
    }
    for (size_t j = 0; j < LANES; j++)
        some |= all[j];
    return (some & 0x80000000u) == 0;
}

void host_make_forms(struct host *h, const struct device_rows *rows, uint32_t row, uint32_t forms)
{
    const float *x = rows_floats(rows, row);
    host_note(h, x, rows->k);
    for (int i = FORM_F32 + 1; i < FORM__COUNT; i++)
        if (forms & (1u << i))
            h->kernels->activation(kernel_form_type((enum kernel_form)i), x, rows->k,
                                   (uint8_t *)device_pointer(rows->base[i]) +
                                       row * rows->stride[i]);
}

void host_norm(const struct kernel_ops *kernels, enum norm_kind kind, float eps, const float *x,
               const float *weight, const float *bias, uint32_t n, float *y)
{
    if (kind == NORM_LAYER) {
        kernel_center(x, n, y);
        x = y;
    }
    kernels->rms_norm(x, weight, n, eps, y);
    if (bias)
        kernels->axpy(1.0f, bias, n, y);
}

/* sigmoid(gate) * cap(gate) * cap(up). */
static void situ(const struct kernel_ops *kernels, struct ffn_limit limit, const float *gate,
                 const float *up, uint32_t n, float *y)
{
    float gates[ACTIVATION_BLOCK], ups[ACTIVATION_BLOCK];
    for (uint32_t i = 0, part; i < n; i += part) {
        part = smaller(n - i, ACTIVATION_BLOCK);
        kernels->soft_cap(limit.cap_gate, gate + i, part, gates);
        kernels->sigmoid_mul(gate + i, gates, part, gates);
        if (limit.cap_up > 0)
            kernels->soft_cap(limit.cap_up, up + i, part, ups);
        kernels->mul(gates, limit.cap_up > 0 ? ups : up + i, part, y + i);
    }
}

static void activate(const struct kernel_ops *kernels, enum ffn_activation activation,
                     struct ffn_limit limit, const float *gate, const float *up, uint32_t n,
                     float *y)
{
    switch (activation) {
    case ACTIVATION_SILU: kernels->silu_mul(gate, up, n, y); return;
    case ACTIVATION_SWIGLU_CLAMPED: kernels->swiglu_clamped(gate, up, n, y); return;
    case ACTIVATION_GELU: kernels->gelu_mul(gate, up, n, y); return;
    case ACTIVATION_RELU: kernel_relu_mul(gate, up, n, y); return;
    case ACTIVATION_SITU: situ(kernels, limit, gate, up, n, y); return;
    case ACTIVATION__COUNT: break;
    }
    sl_panic("activation %u is in no table", activation);
}

static void limit_above(const float *x, uint32_t n, float limit, float *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] > limit ? limit : x[i]; /* NaN stays NaN */
}

/* The activation of n elements of gate, limited to at most the value, times ups. */
static void activate_limited(const struct kernel_ops *kernels, enum ffn_activation activation,
                             struct ffn_limit limit, const float *gate, const float *up, uint32_t n,
                             float *y)
{
    float limited[ACTIVATION_BLOCK], ones[ACTIVATION_BLOCK];
    if (!limit.result) {
        limit_above(gate, n, limit.value, limited);
        activate(kernels, activation, limit, limited, up, n, y);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        ones[i] = 1;
    activate(kernels, activation, limit, gate, ones, n, limited);
    limit_above(limited, n, limit.value, limited);
    kernels->mul(limited, up, n, y);
}

void host_activate(const struct kernel_ops *kernels, enum ffn_activation activation,
                   struct ffn_limit limit, const float *gate, const float *up, uint32_t n, float *y)
{
    float ups[ACTIVATION_BLOCK];
    if (limit.value == 0) {
        activate(kernels, activation, limit, gate, up, n, y);
        return;
    }
    for (uint32_t i = 0, part; i < n; i += part) {
        part = smaller(n - i, ACTIVATION_BLOCK);
        memcpy(ups, up + i, part * sizeof *ups);
        kernel_clamp(ups, part, limit.value);
        activate_limited(kernels, activation, limit, gate + i, ups, part, y + i);
    }
}

void host_activate_noted(struct host *h, enum ffn_activation activation, struct ffn_limit limit,
                         const float *gate, const float *up, uint32_t n, float *y)
{
    if (activation == ACTIVATION_SWIGLU_CLAMPED || activation == ACTIVATION_RELU ||
        activation == ACTIVATION_SITU || limit.value != 0) {
        host_note(h, gate, n);
        host_note(h, up, n);
    }
    host_activate(h->kernels, activation, limit, gate, up, n, y);
}

/* Vectors are short, or their elements lie together. */
void host_op_unpack(struct device *d, const struct op_unpack *a)
{
    struct host *h = host_of(d);
    struct kernel_matrix w = device_kernel_matrix(&a->w);
    float *y = device_floats(a->y), few[TURNED_MAX];
    sl_assert(a->stride == 1 || w.k <= TURNED_MAX);
    for (uint32_t r = 0; r < w.n; r++, y += a->row_stride) {
        h->kernels->row_to_f32(&w, r, a->stride == 1 ? y : few);
        for (uint32_t i = 0; a->stride != 1 && i < w.k; i++)
            y[i * a->stride] = few[i];
    }
}

void host_op_clear(struct device *d, const struct op_clear *a)
{
    (void)d;
    memset(device_pointer(a->y), 0, a->bytes);
}

static void embed_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_embed *a = run->a;
    struct kernel_matrix w = device_kernel_matrix(&a->w);
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *x = device_floats(a->x) + (size_t)r * w.k;
        run->h->kernels->row_to_f32(&w, a->row[r].token, x);
        for (uint32_t i = 0; a->factor != 0 && i < w.k; i++)
            x[i] *= a->factor;
    }
}

void host_op_embed(struct device *d, const struct op_embed *a)
{
    host_run_rows(host_of(d), a->rows, embed_rows, a);
}

static void angle_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_angles *a = run->a;
    struct kernel_rope rope = a->rope;
    uint32_t begin, end;
    rope.factors = device_floats(a->factors);
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        kernel_rope_table(&rope, a->row[r].position, device_floats(a->y) + r * a->stride);
}

void host_op_angles(struct device *d, const struct op_angles *a)
{
    host_run_rows(host_of(d), a->rows, angle_rows, a);
}

static void norm_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_norm *a = run->a;
    uint32_t begin, end, n = a->y.k;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        host_norm(run->h->kernels, a->kind, a->eps, device_floats(a->x) + (size_t)r * n,
                  device_floats(a->weight), device_floats(a->bias), n, rows_floats(&a->y, r));
        host_make_forms(run->h, &a->y, r, a->forms);
    }
}

void host_op_norm(struct device *d, const struct op_norm *a)
{
    host_run_rows(host_of(d), a->rows, norm_rows, a);
}

static void gate_norm_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_gate_norm *a = run->a;
    uint32_t begin, end, n = a->y.k;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        float *u = device_floats(a->u) + (size_t)r * n;
        run->h->kernels->rms_norm(device_floats(a->x) + (size_t)r * n, device_floats(a->weight), n,
                                  a->eps, u);
        model_router_input(u, device_floats(a->scale), n, rows_floats(&a->y, r));
    }
}

void host_op_gate_norm(struct device *d, const struct op_gate_norm *a)
{
    host_run_rows(host_of(d), a->rows, gate_norm_rows, a);
}

static void scale_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_scale_rows *a = run->a;
    uint32_t begin, end, n = a->y.k;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        model_router_input(device_floats(a->x) + (size_t)r * n, device_floats(a->scale), n,
                           rows_floats(&a->y, r));
}

void host_op_scale_rows(struct device *d, const struct op_scale_rows *a)
{
    host_run_rows(host_of(d), a->rows, scale_rows, a);
}

static void form_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_forms *a = run->a;
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++)
        host_make_forms(run->h, &a->y, r, a->forms);
}

void host_op_forms(struct device *d, const struct op_forms *a)
{
    host_run_rows(host_of(d), a->rows, form_rows, a);
}

/* n elements of a head times the function of their gates. */
static void gate_elements(struct host *h, enum head_gate function, const float *gate, uint32_t n,
                          float *out)
{
    float factor[GATE_BLOCK];
    host_note(h, gate, n); /* the sigmoid of an infinity is 0 or 1 */
    if (function == HEAD_GATE_SIGMOID) {
        h->kernels->sigmoid_mul(gate, out, n, out);
        return;
    }
    sl_assert(function == HEAD_GATE_SOFTPLUS && n <= GATE_BLOCK);
    for (uint32_t i = 0; i < n; i++)
        factor[i] = (float)exact_softplus((double)gate[i]);
    h->kernels->mul(factor, out, n, out);
}

static void gate_one_head(struct host *h, const struct op_gate_heads *a, uint32_t row,
                          uint32_t head)
{
    const struct gate_layout gates = device_gates_of(&a->shape, &a->mix);
    const float *gate = device_floats(a->gates) + (size_t)row * gates.floats + gates.first +
                        (size_t)head * gates.step;
    uint32_t size = a->mix.k / a->shape.heads;
    float *out = rows_floats(&a->mix, row) + (size_t)head * size, same[GATE_BLOCK];
    for (uint32_t i = 0; gates.one && i < GATE_BLOCK; i++)
        same[i] = *gate;
    for (uint32_t i = 0; i < size; i += GATE_BLOCK)
        gate_elements(h, (enum head_gate)a->shape.gate, gates.one ? same : gate + i,
                      smaller(size - i, GATE_BLOCK), out + i);
}

/* A softplus takes long, so that the heads of a few rows are divided among the threads. */
static bool gates_are_apart(const struct op_gate_heads *a)
{
    return a->gates.address && a->shape.gate == HEAD_GATE_SOFTPLUS;
}

static void gate_heads_apart(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_gate_heads *a = run->a;
    uint32_t begin, end, heads = a->shape.heads;
    pool_share(a->rows * heads, 1, thread, threads, &begin, &end);
    for (uint32_t u = begin; u < end; u++)
        gate_one_head(run->h, a, u / heads, u % heads);
}

static void gate_head_rows(void *arg, uint32_t thread, uint32_t threads)
{
    const struct host_run *run = arg;
    const struct op_gate_heads *a = run->a;
    bool together = a->gates.address && !gates_are_apart(a);
    uint32_t begin, end;
    pool_share(a->rows, 1, thread, threads, &begin, &end);
    for (uint32_t r = begin; r < end; r++) {
        for (uint32_t head = 0; together && head < a->shape.heads; head++)
            gate_one_head(run->h, a, r, head);
        host_make_forms(run->h, &a->mix, r, a->forms);
    }
}

void host_op_gate_heads(struct device *d, const struct op_gate_heads *a)
{
    struct host *h = host_of(d);
    if (gates_are_apart(a))
        host_run_rows(h, a->rows * a->shape.heads, gate_heads_apart, a);
    host_run_rows(h, a->rows, gate_head_rows, a);
}
