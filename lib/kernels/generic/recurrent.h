/* SPDX-License-Identifier: Apache-2.0 */
/* Template of the generic kernels: included by table.h. */
/* Kernels of layers with a recurrent state, in plain C. */

static void generic_conv(const float *const *x, const float *w, size_t stride, uint32_t taps,
                         uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++) {
        float sum = 0;
        for (uint32_t t = 0; t < taps; t++)
            sum = fmaf(w[t * stride + i], x[t][i], sum);
        y[i] = sum;
    }
}

static void generic_silu(float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] / (1.0f + exp_one(0.0f - x[i]));
}

static void generic_sigmoid_mul(const float *gate, const float *x, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] / (1.0f + exp_one(0.0f - gate[i]));
}

static void generic_mul(const float *a, const float *b, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

static void generic_delta(const struct kernel_delta *d)
{
    for (uint32_t j = 0; j < d->values; j++) {
        const float *s = d->state + j;
        float *next = d->next + j;
        float recall = 0, out = 0;
        for (uint32_t i = 0; i < d->keys && !d->without; i++)
            recall = fmaf(d->k[i], s[(size_t)i * d->values] * d->decay[i * d->decay_step], recall);
        float u = d->rate * (d->without ? d->v[j] : d->v[j] - recall);
        for (uint32_t i = 0; i < d->keys; i++) {
            size_t at = (size_t)i * d->values;
            next[at] = fmaf(d->k[i], u, s[at] * d->decay[i * d->decay_step]);
            out = fmaf(d->q[i], next[at], out);
        }
        d->out[j] = out;
    }
}

static void generic_scan(const struct kernel_scan *a)
{
    for (uint32_t j = 0; j < a->values; j++) {
        float step = softplus_one(a->step[j] + a->bias[j]), u = step * a->v[j], out = 0;
        for (uint32_t i = 0; i < a->keys; i++) {
            size_t at = (size_t)i * a->values + j;
            float decay = exp_one(step * a->rate[at]);
            a->next[at] = fmaf(a->k[i], u, a->state[at] * decay);
            out = fmaf(a->q[i], a->next[at], out);
        }
        a->out[j] = a->skip ? fmaf(a->skip[j], a->v[j], out) : out;
    }
}
