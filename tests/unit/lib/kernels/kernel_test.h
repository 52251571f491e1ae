/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the kernel tests: random weights of every type, their values in double, the list of
 * instruction sets with its skips. */
#ifndef SLUICE_TESTS_UNIT_LIB_KERNELS_KERNEL_TEST_H
#define SLUICE_TESTS_UNIT_LIB_KERNELS_KERNEL_TEST_H

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/kernels/kernels.h"
#include "lib/tensor/tensor_type.h"

static const enum tensor_type test_types[] = {
#define TENSOR_TYPE(name, id, block_elems, block_bytes, row_head_bytes, computed) TENSOR_##name,
#include "lib/tensor/tensor_types.tbl.h"
};
#define TEST_TYPES ARRAY_LEN(test_types)

void test_seed(uint32_t seed);
uint32_t test_random(void);
float test_uniform(void); /* -1 .. 1 */
void test_fill(float *x, size_t n);

bool test_is_quant(enum tensor_type type);
uint32_t test_block(enum tensor_type type); /* elements per block */
/* Elements that share a scale of the activations. */
uint32_t test_activation_block(enum tensor_type type);

/* The value of one element at p; `i` is its index in the row. Implemented from the description of
 * the format, independently of the kernels. */
double test_f16_value(uint16_t h);
uint16_t test_f16_round(double x);
double test_weight(const struct kernel_matrix *m, uint32_t row, uint32_t i);

/* Random weights at an odd address, with a row stride larger than the row. Free with
 * test_matrix_free. */
struct kernel_matrix test_matrix(enum tensor_type type, uint32_t k, uint32_t n);
void test_matrix_free(struct kernel_matrix *m);
/* Random bytes of one row at p. */
void test_weights(enum tensor_type type, uint8_t *p, size_t bytes);

/* Converts rows of floats to prepared activations, in new memory. */
void *test_prepare(const struct kernel_ops *ops, enum tensor_type type, const float *x, uint32_t k,
                   uint32_t rows, size_t *stride);

/* Elements of keys or of values, in whole tiles. */
static inline size_t test_kv_elements(uint32_t positions, uint32_t kv_heads, uint32_t size)
{
    size_t tiles = (positions + KERNEL_KEY_TILE - 1) / KERNEL_KEY_TILE;
    return tiles * KERNEL_KEY_TILE * kv_heads * size;
}

/* The first element of a key or value of F16. */
static inline size_t test_kv_at(uint32_t kv_heads, uint32_t size, uint32_t position,
                                uint32_t kv_head)
{
    return kernel_kv_tile(KV_TYPE_F16, kv_heads, size, position, kv_head) / sizeof(uint16_t) +
           position % KERNEL_KEY_TILE * size;
}

void *test_alloc(size_t bytes); /* 64-byte aligned */
/* Memory followed by an inaccessible page. */
uint8_t *test_guarded(size_t bytes);
void test_guarded_free(uint8_t *p, size_t bytes);

/* Adds a test once per available instruction set; _i is the enum kernel_isa. */
void test_add_isa(TCase *tcase, const TTest *test);
/* The same for tests of attention: once for all sets that share its function. */
void test_add_isa_attention(TCase *tcase, const TTest *test);
/* Writes the available sets after the generic one, and returns how many: for tests that compare all
 * of them with one result. Of sets that share their attention the first (attention) or all. */
size_t test_other_sets(const struct kernel_ops *sets[ISA__COUNT - 1], bool attention);
/* Runs the suite, prints a counted skip per missing instruction set, returns the exit status. */
int test_run(Suite *suite);

#endif
