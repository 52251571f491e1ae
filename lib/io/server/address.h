/* SPDX-License-Identifier: Apache-2.0 */
/* Completes the URL of a server before the sandbox of the process that connects to it: there, no
 * name can be resolved, and no file be found that the URL does not name. */
#ifndef SLUICE_IO_SERVER_ADDRESS_H
#define SLUICE_IO_SERVER_ADDRESS_H

#include <stddef.h>

#include "lib/base/error.h"
#include "lib/io/server/url.h"

/* The URL with the address of its host, and with the files that other programs read where it names
 * none: credentials of S3 (the environment has precedence), ceph.conf. -1 with ERR_BAD_INPUT: it is
 * malformed, too long then, or the host is not known. */
int io_address_complete(const char *url, char to[IO_URL_TEXT_BYTES], struct error *error);

/* Puts `new` into a text at `at`, in place of `removed` bytes. -1 with ERR_BAD_INPUT, which names
 * the URL: it is too long then. */
int io_address_put(char text[IO_URL_TEXT_BYTES], const char *url, size_t at, size_t removed,
                   const char *new, struct error *error);

#endif
