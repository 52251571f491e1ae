/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials of S3: from a file in the form of the AWS command line interface, or from the
 * environment. They are in no message. */
#ifndef SLUICE_IO_SERVER_HTTP_CREDENTIALS_H
#define SLUICE_IO_SERVER_HTTP_CREDENTIALS_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/error.h"

#define CREDENTIALS_BYTES_MAX (64 * 1024) /* of a file */

struct credentials { /* empty texts: requests are not signed */
    char id[256], secret[256];
    char token[4096]; /* of temporary ones, else empty */
};

/* The section [profile] of a file:
 *
 *   [default]
 *   aws_access_key_id = ...
 *   aws_secret_access_key = ...
 *   aws_session_token = ...
 *
 * Other keys, and lines that begin with # or ;, are ignored. -1 with ERR_BAD_INPUT, which has
 * nothing of the text. Pure. */
int credentials_parse(const char *text, size_t bytes, const char *profile, struct credentials *c,
                      struct error *error);

/* Of the file; path "": of the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
 * AWS_SESSION_TOKEN), empty ones if there are none. -1 with *error. */
int credentials_take(const char *path, const char *profile, struct credentials *c,
                     struct error *error);

/* Clears them. */
void credentials_forget(struct credentials *c);

#endif
