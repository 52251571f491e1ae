/* SPDX-License-Identifier: Apache-2.0 */
/* JSON envelope of remote calls: limits for parsing, and the required fields of requests and
 * replies. Pure functions over bytes; fuzzed. */
#ifndef SLUICE_IPC_RPC_JSON_H
#define SLUICE_IPC_RPC_JSON_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/error.h"

#define RPC_VERSION  1
#define RPC_ID_BYTES 16 /* hex digits */
#define RPC_OP_MAX   32 /* lower-case letters, digits and '_' */
#define RPC_DEPTH_MAX                                                                              \
    32 /* nested arrays and objects, bounded because thread stacks here are 256
                          * KiB */
#define RPC_NO_ID "0000000000000000"

/* Parses a text of at most `max` bytes into an object; checks depth, duplicate keys, UTF-8 and
 * numbers. -1 with ERR_BAD_INPUT or ERR_NO_MEMORY. The caller json_decrefs. */
int rpc_json_parse(const void *text, size_t bytes, size_t max, json_t **object,
                   struct error *error);

/* Parses and checks a request. */
int rpc_request_parse(const void *text, size_t bytes, json_t **body, struct error *error);

/* Parses a reply to call `id`. 0 with *reply, or -1 with *error: the error in the reply, or no
 * memory to parse it (*broken false), or the reason why the reply is invalid (*broken true). */
int rpc_reply_parse(const void *text, size_t bytes, const char *id, json_t **reply, bool *broken,
                    struct error *error);

/* Encodes an object (borrowed). NULL when it cannot be encoded or exceeds RPC_BYTES_MAX; *bytes is
 * its length, also in the latter case, else 0. The caller frees. */
char *rpc_json_encode(const json_t *object, size_t *bytes);

/* {"v","id","ok":false,"error":{...}}; NULL only when out of memory. */
json_t *rpc_error_object(const char *id, const struct error *error);

/* {"code","text"} of an error, and the reverse (unknown codes and wrong types become
 * ERR_FAILED). */
json_t *rpc_error_json(const struct error *error);
void rpc_error_from_json(const json_t *json, struct error *error);

/* A JSON string of any bytes: each maximal subpart of invalid UTF-8 becomes U+FFFD. */
json_t *rpc_text_json(const char *text, size_t bytes);

#endif
