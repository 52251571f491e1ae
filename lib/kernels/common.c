/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with one implementation for all instruction sets. */
#include "lib/exact/elementary.h"
#include "lib/kernels/internal.h"

#define TWO_PI 6.283185307179586477

/* The angles between which YaRN blends: those with beta_fast and beta_slow turns in the context. */
struct blend {
    double low, high;
};

static struct blend blend_of(const struct kernel_rope *r, double log_theta)
{
    double per = (double)r->dims / (2.0 * log_theta);
    struct blend b = {.low = exact_log(r->context / (r->beta_fast * TWO_PI)) * per,
                      .high = exact_log(r->context / (r->beta_slow * TWO_PI)) * per};
    if (r->truncate)
        b = (struct blend){floor(b.low), ceil(b.high)};
    b.low = b.low > 0 ? b.low : 0;
    b.high = b.high < r->dims - 1 ? b.high : r->dims - 1;
    if (b.high <= b.low)
        b.high = b.low + 0.001;
    return b;
}

/* Factor of angle i: between 1 and 1 / factor. */
static double yarn_factor(const struct kernel_rope *r, const struct blend *b, uint32_t i)
{
    double ramp = ((double)i - b->low) / (b->high - b->low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return ramp / r->factor + (1.0 - ramp);
}

double kernel_yarn_magnitude(double multiplier, double factor)
{
    return multiplier * exact_log(factor) + 1.0;
}

void kernel_rope_table(const struct kernel_rope *r, uint32_t position, float *cos_sin)
{
    double log_theta = exact_log(r->theta), magnitude = r->magnitude;
    struct blend blend = {0};
    if (r->yarn)
        blend = blend_of(r, log_theta);
    if (magnitude == 0)
        magnitude = r->yarn ? kernel_yarn_magnitude(0.1, r->factor) : 1.0;
    for (uint32_t i = 0; i < r->dims / 2; i++) {
        double angle = (double)position * exact_exp(-2.0 * (double)i / (double)r->dims * log_theta);
        double sine, cosine;
        if (r->factors)
            angle /= (double)r->factors[i];
        if (r->yarn)
            angle *= yarn_factor(r, &blend, i);
        else if (r->factor != 0)
            angle /= r->factor;
        exact_sin_cos(angle, &sine, &cosine);
        cos_sin[2 * i] = (float)(cosine * magnitude);
        cos_sin[2 * i + 1] = (float)(sine * magnitude);
    }
}

void kernel_rope_pairs(float *x, uint32_t n, const float *cos_sin)
{
    for (uint32_t i = 0; i + 1 < n; i += 2) {
        float c = cos_sin[i], s = cos_sin[i + 1], a = x[i], b = x[i + 1];
        x[i] = a * c - b * s;
        x[i + 1] = a * s + b * c;
    }
}

void kernel_center(const float *x, uint32_t n, float *y)
{
    double lane[16] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        lane[i % 16] += (double)x[i];
    for (int i = 0; i < 16; i++)
        sum += lane[i];
    double mean = sum / (double)n;
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)((double)x[i] - mean);
}

void kernel_clamp(float *x, uint32_t n, float limit)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

void kernel_relu_mul(const float *gate, const float *up, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = (gate[i] < 0 ? 0 : gate[i]) * up[i];
}

void group_row_to_f32(const struct kernel_matrix *w, uint32_t row, float *y)
{
    struct group_type t = group_type_of(w->type);
    const uint8_t *p = (const uint8_t *)w->data + (size_t)row * w->row_bytes;
    for (uint32_t g = 0; g < w->k / GROUP; g++) {
        uint8_t code[GROUP];
        struct group_scale c = group_grid_of(t, p, g);
        group_codes(t.bits, p + t.head + (size_t)g * t.bytes + t.before, code);
        for (uint32_t i = 0; i < GROUP; i++)
            y[(size_t)g * GROUP + i] = c.scale * ((float)code[i] - c.zero);
    }
}

size_t kernel_activation_bytes(enum tensor_type type, uint32_t k)
{
    size_t bytes = 0;
    switch (kernel_form_of(type)) {
    case FORM_F32: bytes = (size_t)k * sizeof(float); break;
    case FORM_Q8:
    case FORM_Q4: bytes = (size_t)act_blocks(k) * (QK + sizeof(float) + sizeof(int32_t)); break;
    case FORM_HALVES:
        bytes = (size_t)act_blocks(k) * (QK + sizeof(float) + 2 * sizeof(int32_t));
        break;
    case FORM_SUPER: bytes = super_sum_offset(k) + k / 16 * sizeof(int16_t); break;
    case FORM_GROUP: bytes = k + (size_t)(k / GROUP) * 2 * sizeof(float); break;
    case FORM__COUNT: sl_panic("no form for type %d", (int)type);
    }
    return (bytes + 63) / 64 * 64;
}

size_t kernel_activation_bytes_largest(uint32_t k)
{
    size_t largest = 0;
    for (int form = 0; form < FORM__COUNT; form++) {
        size_t bytes = kernel_activation_bytes(kernel_form_type((enum kernel_form)form), k);
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}
