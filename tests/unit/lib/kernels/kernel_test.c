/* SPDX-License-Identifier: Apache-2.0 */
/* Makes random weights of every type and their values in double. */
#include "tests/unit/lib/kernels/kernel_test.h"

#include <stdio.h>
#include <sys/mman.h>

#include "lib/tensor/tensor_type.h"
#include "lib/tensor/unpack/unpack.h"

static uint32_t state = 1;

void test_seed(uint32_t seed)
{
    state = seed * 2654435761u + 1;
}

uint32_t test_random(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

float test_uniform(void)
{
    return (float)(test_random() >> 8) / 8388608.0f - 1.0f;
}

void test_fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = test_uniform();
}

bool test_is_quant(enum tensor_type type)
{
    return kernel_form_of(type) != FORM_F32;
}

uint32_t test_block(enum tensor_type type)
{
    return tensor_type_info((uint32_t)type)->block_elems;
}

uint32_t test_activation_block(enum tensor_type type)
{
    enum kernel_form form = kernel_form_of(type);
    return form == FORM_SUPER ? 256 : form == FORM_GROUP ? 64 : 32;
}

double test_f16_value(uint16_t h)
{
    double sign = (h & 0x8000) != 0 ? -1 : 1;
    int exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 31)
        return fraction != 0 ? NAN : sign * INFINITY;
    return exponent == 0 ? sign * ldexp(fraction, -24)
                         : sign * ldexp(1024 + fraction, exponent - 25);
}

uint16_t test_f16_round(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    if (a >= 65520)
        return sign | 0x7c00;
    if (a < ldexp(1, -14))
        return (uint16_t)(sign | (int)nearbyint(ldexp(a, 24)));
    int exponent;
    frexp(a, &exponent); /* a = m * 2^exponent, 0.5 <= m < 1 */
    int units =
        (int)nearbyint(ldexp(a, 11 - exponent)); /* 1024 .. 2048; a carry increments the exponent */
    return (uint16_t)(sign | (((exponent + 14) << 10) + (units - 1024)));
}

static double f32_value(const uint8_t *p)
{
    float f;
    memcpy(&f, p, sizeof f);
    return f;
}

static uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static bool own_type(enum tensor_type type)
{
    return (uint32_t)type >= TENSOR_TYPE_OWN_FIRST;
}

/* Weight i of a row of one of sluice's own types, decoded as lib/quant/quant.h describes it. */
static double own_weight(enum tensor_type type, const uint8_t *row, uint32_t i)
{
    bool groups = type == TENSOR_G4 || type == TENSOR_G2;
    uint32_t bits = type == TENSOR_C8 ? 8 : type == TENSOR_C4 || type == TENSOR_G4 ? 4 : 2;
    uint32_t bytes = 8 * bits, in = i % 64;
    const uint8_t *grid = groups ? row + i / 64 * (4 + bytes) : row;
    const uint8_t *codes = groups ? grid + 4 : row + 4 + i / 64 * bytes;
    int code = codes[in % bytes] >> (in / bytes * bits) & ((1 << bits) - 1);
    return test_f16_value(u16_at(grid)) * (code - test_f16_value(u16_at(grid + 2)));
}

/* From the reference decoder, which golden_types compares with another implementation. */
static double unpacked_weight(enum tensor_type type, const uint8_t *row, uint32_t i)
{
    const struct tensor_type_info *layout = tensor_type_info((uint32_t)type);
    const struct unpack_info *info = unpack_info((uint32_t)type);
    const uint8_t *block = row + i / layout->block_elems * layout->block_bytes;
    static struct unpacked u; /* of the last call, which is mostly of the same unit */
    static const uint8_t *last;
    static uint32_t last_part;
    uint32_t part = i % layout->block_elems / info->unit;
    if (i % info->unit == 0 || block != last || part != last_part)
        info->unpack(block, part, &u);
    last = block;
    last_part = part;
    i %= info->unit;
    return (double)u.d * u.scale[i / 16] * u.code[i] - (double)u.dmin * u.min[i / 16];
}

double test_weight(const struct kernel_matrix *m, uint32_t row, uint32_t i)
{
    const uint8_t *p = (const uint8_t *)m->data + (size_t)row * m->row_bytes;
    uint8_t bf16[4] = {0};
    switch (m->type) {
    case TENSOR_F32: return f32_value(p + 4 * (size_t)i);
    case TENSOR_F16: return test_f16_value(u16_at(p + 2 * (size_t)i));
    case TENSOR_BF16: memcpy(bf16 + 2, p + 2 * (size_t)i, 2); return f32_value(bf16);
    case TENSOR_Q8_0: p += i / 32 * 34; return test_f16_value(u16_at(p)) * (int8_t)p[2 + i % 32];
    case TENSOR_Q4_0:
        p += i / 32 * 18;
        return test_f16_value(u16_at(p)) *
               ((i % 32 < 16 ? p[2 + i % 16] & 15 : p[2 + i % 16] >> 4) - 8);
    default: return own_type(m->type) ? own_weight(m->type, p, i) : unpacked_weight(m->type, p, i);
    }
}

static void put_u16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

/* A grid whose zero point is a multiple of 1/16 near the middle of the codes: the difference to
 * every code is then exact in F32. */
static void put_grid(enum tensor_type type, uint8_t *p)
{
    int middle = type == TENSOR_C8 ? 128 : type == TENSOR_C4 || type == TENSOR_G4 ? 8 : 2;
    int sixteenths = middle * 16 + (int)(test_random() % 32) - 16;
    put_u16(p, test_f16_round((double)test_uniform() * 0.02));
    put_u16(p + 2, test_f16_round(sixteenths / 16.0));
}

static void own_weights(enum tensor_type type, uint8_t *p, size_t bytes)
{
    const struct tensor_type_info *info = tensor_type_info((uint32_t)type);
    for (size_t i = 0; i < bytes; i++)
        p[i] = test_random() % 16 == 0 ? 0x80 : (uint8_t)(test_random() >> 11);
    put_grid(type, p);
    for (size_t at = 0; info->row_head_bytes == 0 && at < bytes; at += info->block_bytes)
        put_grid(type, p + at);
}

/* Random bytes whose float scales are of a usual size. */
static void unpacked_block(enum tensor_type type, uint8_t *p)
{
    const struct tensor_type_info *layout = tensor_type_info((uint32_t)type);
    const struct unpack_info *info = unpack_info((uint32_t)type);
    for (bool good = false; !good;) {
        good = true;
        for (uint32_t i = 0; i < layout->block_bytes; i++)
            p[i] = (uint8_t)(test_random() >> 11);
        for (uint32_t part = 0; good && part < layout->block_elems / info->unit; part++) {
            struct unpacked u;
            info->unpack(p, part, &u);
            float d = fabsf(u.d), dmin = fabsf(u.dmin);
            good = d > 1e-4f && d < 0.5f && dmin < 0.5f && (!info->minimums || dmin > 1e-4f);
        }
    }
}

void test_weights(enum tensor_type type, uint8_t *p, size_t bytes)
{
    if (own_type(type)) {
        own_weights(type, p, bytes);
        return;
    }
    size_t unit = tensor_type_info((uint32_t)type)->block_bytes;
    bool plain = !test_is_quant(type) || type == TENSOR_Q8_0 || type == TENSOR_Q4_0;
    for (size_t at = 0; !plain && at + unit <= bytes; at += unit)
        unpacked_block(type, p + at);
    if (!plain)
        return;
    for (size_t at = 0; at + unit <= bytes; at += unit) {
        float f = test_uniform();
        uint32_t word;
        memcpy(&word, &f, sizeof word);
        if (type == TENSOR_F32) {
            memcpy(p + at, &f, sizeof f);
        } else if (type == TENSOR_BF16) {
            put_u16(p + at, (uint16_t)(word >> 16));
        } else {
            put_u16(p + at, test_f16_round(f * (test_is_quant(type) ? 0.02 : 1.0)));
            for (size_t i = 2; i < unit; i++)
                p[at + i] = test_random() % 16 == 0 ? 0x80 : (uint8_t)(test_random() >> 11);
        }
    }
}

struct kernel_matrix test_matrix(enum tensor_type type, uint32_t k, uint32_t n)
{
    struct kernel_matrix m = {.k = k, .n = n, .type = type};
    ck_assert(tensor_type_row_bytes((uint32_t)type, k, &m.row_bytes));
    uint64_t used = m.row_bytes;
    m.row_bytes += 6;
    uint8_t *p = malloc(m.row_bytes * n + 1);
    ck_assert_ptr_nonnull(p);
    memset(p, 0xff, m.row_bytes * n + 1); /* NaN between the rows */
    for (uint32_t j = 0; j < n; j++)
        test_weights(type, p + 1 + j * m.row_bytes, used);
    m.data = p + 1;
    return m;
}

void test_matrix_free(struct kernel_matrix *m)
{
    free((uint8_t *)(uintptr_t)m->data - 1);
}

void *test_alloc(size_t bytes)
{
    void *p = aligned_alloc(64, align_up(bytes + 1, 64));
    ck_assert_ptr_nonnull(p);
    memset(p, 0xff, align_up(bytes + 1, 64));
    return p;
}

void *test_prepare(const struct kernel_ops *ops, enum tensor_type type, const float *x, uint32_t k,
                   uint32_t rows, size_t *stride)
{
    *stride = kernel_activation_bytes(type, k);
    ck_assert_uint_eq(*stride % 64, 0);
    uint8_t *act = test_alloc(*stride * rows);
    for (uint32_t r = 0; r < rows; r++)
        ops->activation(type, x + (size_t)r * k, k, act + r * *stride);
    return act;
}

uint8_t *test_guarded(size_t bytes)
{
    size_t mapped = align_up(bytes, PAGE_BYTES);
    uint8_t *p =
        mmap(NULL, mapped + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    ck_assert_int_eq(mprotect(p + mapped, PAGE_BYTES, PROT_NONE), 0);
    return p + mapped - bytes;
}

void test_guarded_free(uint8_t *p, size_t bytes)
{
    size_t mapped = align_up(bytes, PAGE_BYTES);
    munmap(p + bytes - mapped, mapped + PAGE_BYTES);
}

static int print_skips(void)
{
    static const char *const skip[ISA__COUNT] = {
#ifdef __aarch64__
        [ISA_DOTPROD] = "dotprod: CPU lacks instructions for dot products",
#else
        [ISA_AVX2] = "avx2: CPU lacks AVX2, FMA or F16C",
        [ISA_AVXVNNI] = "avxvnni: CPU lacks that of avx2, or AVX-VNNI",
        [ISA_AVX512] = "avx512: CPU lacks AVX-512 F, BW, VL, DQ or VNNI",
        [ISA_VBMI] = "avx512vbmi: CPU lacks that of avx512, or VBMI",
        [ISA_AMX] =
            "amx: CPU lacks that of avx512vbmi, AMX-TILE or AMX-INT8, or Linux does not save tiles",
#endif
    };
    int skipped = 0;
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        if (kernel_ops_of((enum kernel_isa)isa) == NULL) {
            printf("SKIP kernels.%s\n", skip[isa]);
            skipped++;
        }
    }
    return skipped;
}

void test_add_isa(TCase *tcase, const TTest *test)
{
    for (int isa = 0; isa < ISA__COUNT; isa++)
        if (kernel_ops_of((enum kernel_isa)isa) != NULL)
            tcase_add_loop_test(tcase, test, isa, isa + 1);
}

void test_add_isa_attention(TCase *tcase, const TTest *test)
{
    const struct kernel_ops *last = NULL;
    for (int isa = 0; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (ops == NULL || (last != NULL && ops->attention == last->attention))
            continue;
        tcase_add_loop_test(tcase, test, isa, isa + 1);
        last = ops;
    }
}

size_t test_other_sets(const struct kernel_ops *sets[ISA__COUNT - 1], bool attention)
{
    const struct kernel_ops *last = kernel_ops_of(ISA_GENERIC);
    size_t count = 0;
    for (int isa = ISA_GENERIC + 1; isa < ISA__COUNT; isa++) {
        const struct kernel_ops *ops = kernel_ops_of((enum kernel_isa)isa);
        if (ops == NULL || (attention && ops->attention == last->attention))
            continue;
        sets[count++] = last = ops;
    }
    return count;
}

int test_run(Suite *suite)
{
    int skipped = print_skips();
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    printf("%d run, %d failed, %d skipped\n", srunner_ntests_run(runner), failed, skipped);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
