/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured for a plan, in a file next to it (PLAN.measured), so that a run that was killed is continued
 * and another budget or loss measures only what is new. A record belongs to a key, a hash of everything that its
 * value depends on.
 *
 * File: struct measured_header | records: key, bytes of the value (uint32_t), value. Little-endian. It is replaced
 * after each record by a rename, and untrusted when it is read: a damaged one is ignored with a line. */
#ifndef SLUICE_TOOLS_PLAN_MEASURED_H
#define SLUICE_TOOLS_PLAN_MEASURED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define MEASURED_MAGIC     0x5341454d434c5301ull
#define MEASURED_KEY_BYTES 16
#define MEASURED_FILE_MAX  (64u << 20)

struct measured_header {
    uint64_t magic, bytes; /* of the records */
    uint64_t checksum;     /* XXH3 of the records */
};
_Static_assert(sizeof(struct measured_header) == 24, "layout of a file");

struct measured_file;

/* Reads the file of the plan at `plan_path`, if there is one. NULL with *error: out of memory, or the name is too
 * long. */
struct measured_file *measured_open(const char *plan_path, struct error *error);
void measured_close(struct measured_file *f); /* NULL is ignored */

/* Copies the value of a key with exactly `bytes` bytes to `value`; false: there is none. */
bool measured_find(const struct measured_file *f, const uint8_t key[MEASURED_KEY_BYTES],
                   void *value, size_t bytes);
/* Adds a record and replaces the file. -1 with *error: ERR_IO, ERR_NO_MEMORY. A full file (MEASURED_FILE_MAX) begins
 * again. */
int measured_add(struct measured_file *f, const uint8_t key[MEASURED_KEY_BYTES], const void *value,
                 size_t bytes, struct error *error);

#endif
