/* SPDX-License-Identifier: Apache-2.0 */
/* A tiny model and a store made from it, in a temporary directory. */
#ifndef SLUICE_TESTS_UNIT_LIB_MODEL_STORE_STORE_FIXTURE_H
#define SLUICE_TESTS_UNIT_LIB_MODEL_STORE_STORE_FIXTURE_H

#include <check.h>
#include <stdint.h>

#include "tests/unit/lib/model/store_make.h"

extern char top[], gguf[64], store[64]; /* the directory, and the model and the store in it */

/* Before and after each case. setup makes the model: 2 layers of 3 experts. */
void setup(void);
void teardown(void);

/* Removes a store and its files. */
int remove_dir(const char *dir);
/* Replaces the store by one made of this GGUF file. */
void make_it(const char *from, struct store_make how);
/* NULL with an error of one line. */
struct model_index *open_store(const char *dir, struct error *error);

struct open_file {
    const uint8_t *data;
    uint64_t bytes;
};

struct open_file map_file(const char *path);

/* The cases of invalid_test.c, delta_test.c. */
TCase *invalid_stores(void);
TCase *deltas(void);

#endif
