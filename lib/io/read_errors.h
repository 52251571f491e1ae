/* SPDX-License-Identifier: Apache-2.0 */
/* Says whose fault the error of a read is: only those of the device say anything about the
 * device. */
#ifndef SLUICE_IO_READ_ERRORS_H
#define SLUICE_IO_READ_ERRORS_H

#include <stdbool.h>

enum read_fault {
    READ_FAULT_STORAGE, /* the device, its file system, or the request itself */
    READ_FAULT_MEMORY,  /* no memory for the bytes: read_errors.tbl.h */
    READ_FAULT_AGAIN    /* not served now */
};

/* errno_value: as read(2) sets it, or as a completion of io_uring has it, negated. */
enum read_fault read_fault_of(int errno_value);

/* The number under which a read that is given up fails; itself for most. */
int read_error_reported(int errno_value);

/* Whether a read with this reported number failed for lack of memory. */
bool read_reported_memory(int errno_value);

#endif
