/* SPDX-License-Identifier: Apache-2.0 */
/* Of a program that reads files only. */
#include <stddef.h>

#include "lib/io/io.h"

const struct io_backend *const io_servers[] = {NULL};
const uint32_t io_servers_count = 0;
