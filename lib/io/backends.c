/* SPDX-License-Identifier: Apache-2.0 */
/* The table of read backends. */
#include "lib/io/backends.h"

#include "lib/base/assert.h"
#include "lib/base/bytes.h"

const struct io_backend_info *io_backend_info(enum io_backend_id id)
{
    static const struct io_backend_info infos[] = {
#define IO_BACKEND(id, name, number, module, threads, private_bytes, socket_bytes,                 \
                   libraries_bytes, stack_bytes)                                                   \
    {name, number, module, threads, private_bytes, socket_bytes, libraries_bytes, stack_bytes},
#include "lib/io/backends.tbl.h"
    };
    sl_assert((unsigned)id < ARRAY_LEN(infos));
    return &infos[id];
}
