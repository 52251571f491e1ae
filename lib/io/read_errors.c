/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up whose fault an error of a read is. */
#include "lib/io/read_errors.h"

#include <errno.h>
#include <stddef.h>

#include "lib/base/bytes.h"

static const struct row {
    int number, reported;
    enum read_fault fault;
} rows[] = {
#define READ_ERROR(number, fault, reported) {number, reported, READ_FAULT_##fault},
#include "lib/io/read_errors.tbl.h"
};

static const struct row *row_of(int errno_value)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].number == errno_value)
            return &rows[i];
    return NULL;
}

enum read_fault read_fault_of(int errno_value)
{
    const struct row *row = row_of(errno_value);
    return row ? row->fault : READ_FAULT_STORAGE;
}

int read_error_reported(int errno_value)
{
    const struct row *row = row_of(errno_value);
    return row ? row->reported : errno_value;
}

bool read_reported_memory(int errno_value)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].fault == READ_FAULT_MEMORY && rows[i].reported == errno_value)
            return true;
    return false;
}
