/* SPDX-License-Identifier: Apache-2.0 */
/* States what is known of each read backend without its code: for the ledger and the sandbox. */
#ifndef SLUICE_IO_BACKENDS_H
#define SLUICE_IO_BACKENDS_H

#include <stdint.h>

enum io_backend_id {
#define IO_BACKEND(id, name, number, module, threads, private_bytes, socket_bytes,                 \
                   libraries_bytes, stack_bytes)                                                   \
    IO_##id,
#include "lib/io/backends.tbl.h"
    IO_BACKEND__COUNT
};

struct io_backend_info {
    const char *name;
    uint32_t number;
    const char *module;
    uint32_t threads;
    uint64_t private_bytes, socket_bytes, libraries_bytes, stack_bytes;
};

const struct io_backend_info *io_backend_info(enum io_backend_id id);

#endif
