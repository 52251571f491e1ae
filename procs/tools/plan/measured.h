/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the measurements of a plan in a file next to it (PLAN.measured), so that a run that was
 * killed is continued and another budget or loss measures only what is new. A record belongs to a
 * key, a hash of everything that its value depends on; its value is numbers.
 *
 * File: struct measured_header | records: key, bytes of the value (uint32_t), value. Little-endian.
 * It is replaced after each record by a rename, and untrusted when it is read: a damaged one is
 * ignored with a line.
 *
 * One program at a time writes a plan: PLAN.lock is locked while a measured_file is open. */
#ifndef SLUICE_TOOLS_PLAN_MEASURED_H
#define SLUICE_TOOLS_PLAN_MEASURED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"

#define MEASURED_MAGIC     0x5341454d434c5301ull
#define MEASURED_KEY_BYTES 16
#define MEASURED_FILE_MAX  (4 * MIB)

struct measured_header {
    uint64_t magic, bytes; /* of the records */
    uint64_t checksum;     /* XXH3 of the records */
};
_Static_assert(sizeof(struct measured_header) == 24, "layout of a file");

struct measured_file;

/* Reads the file of the plan at `plan_path`, if there is one. Waits, with a line, while another
 * program has it open. NULL with *error: ERR_NO_MEMORY, ERR_IO (no lock), ERR_BAD_INPUT (the name
 * is too long, or is that of a directory, a FIFO or another file that is not regular). */
struct measured_file *measured_open(const char *plan_path, struct error *error);
void measured_close(struct measured_file *f); /* NULL is ignored */

/* The allowed values of a number. */
struct measured_range {
    double min, max;
};

/* Copies the value of a key with exactly `count` numbers; false: there is none, or a number of it
 * is not within the range. */
bool measured_find(const struct measured_file *f, const uint8_t key[MEASURED_KEY_BYTES],
                   struct measured_range range, double *value, size_t count);
/* Adds a record and replaces the file. -1 with *error: ERR_IO, ERR_NO_MEMORY. A full file
 * (MEASURED_FILE_MAX) begins again; a record that is larger than one is not kept. */
int measured_add(struct measured_file *f, const uint8_t key[MEASURED_KEY_BYTES],
                 const double *value, size_t count, struct error *error);

#endif
