/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the reference data of tests/golden/data. Failures are fatal. */
#ifndef SLUICE_TESTS_GOLDEN_REFERENCE_H
#define SLUICE_TESTS_GOLDEN_REFERENCE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* In $SLUICE_GOLDEN_DATA, or without it the source tree's directory; a file that is not there may
 * be one that the build makes (CMakeLists.txt). The result is static. */
const char *golden_path(const char *file);
/* The demo model (Q8_0). */
const char *golden_demo_path(void);

json_t *golden_json(const char *file);

/* The demo model, then a model of every architecture: its file and its name. Both are valid during
 * the call. */
void golden_models(void (*each)(const char *path, const char *name));

struct golden_ids {
    uint32_t *id;
    size_t count;
};
struct golden_ids golden_ids_of(const json_t *array);
void golden_ids_free(struct golden_ids *ids);

/* A two-dimensional float32 .npy file: rows x columns floats, caller frees. */
float *golden_npy(const char *file, size_t *rows, size_t *columns);

/* A whole text file, caller frees. */
char *golden_text(const char *file, size_t *bytes);

/* Counts of a test program: failed checks are printed at once, the totals at the end. */
struct golden_tally {
    unsigned checks, failed;
};
extern struct golden_tally golden_tally;
void golden_check(int ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int golden_result(const char *name); /* exit status */

#endif
