/* SPDX-License-Identifier: Apache-2.0 */
/* A device for tests: the host, with what another device would differ in.
 *  - An address, also that of shared memory, is none of this process: HOST_TAG is added.
 *  - An operation runs at the next wait or read. Arrays in host memory are copied before.
 *  - Device memory that an operation names is copied to memory of exactly that size, with NaN
 *    around it, and what it writes is copied back: reads and writes outside what ops.tbl.h states
 *    change the result. (Direct: matrices, outputs of `products`; of these the range is checked.)
 *  - The same holds for sequences: of keys and values, an operation sees the rows that it states to
 *    read, and NaN elsewhere; the rows that it states to append are copied back. Parts of a
 *    sequence that it does not state have no address.
 *  - A range outside memory that was allocated or shared is a fault, and the operation does not
 *    run.
 * Written from ops.tbl.h, so it has every operation. */
#ifndef SLUICE_TESTS_UNIT_LIB_DEVICE_CHECKED_H
#define SLUICE_TESTS_UNIT_LIB_DEVICE_CHECKED_H

#include "lib/device/device.h"
#include "tests/harness/tagged.h"

struct device *checked_device(const struct kernel_ops *kernels, uint32_t threads);

uint32_t checked_pending(const struct device *d); /* operations that have not run */
uint32_t checked_faults(const struct device *d);
const char *checked_fault(const struct device *d);                 /* the first one, or "" */
uint64_t checked_count(const struct device *d, enum device_op op); /* that have run */

#endif
