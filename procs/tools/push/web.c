/* SPDX-License-Identifier: Apache-2.0 */
/* The back end of web servers and S3. A web server gets each file with one PUT (RFC 9110, 9.3.4).
 * S3 gets a small file so, too, and a larger one in parts (CreateMultipartUpload, UploadPart,
 * CompleteMultipartUpload of Amazon's API reference), which makes files beyond 5 GiB possible, and
 * of which an interrupted run has lost one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/io/server/remote.h"
#include "procs/tools/push/push.h"
#include "procs/tools/push/request.h"

#define WHOLE      "-" /* the id of a file that is not sent in parts */
#define PART_BYTES 160 /* of the text that ends an upload, for each part */

struct target {
    struct push *push;
    struct client *client;
};

struct target *target_open(struct push *p, struct error *error)
{
    struct target *t = calloc(1, sizeof *t);
    if (!t) {
        error_set(error, ERR_NO_MEMORY, "out of memory (push)");
        return NULL;
    }
    *t = (struct target){.push = p, .client = client_open(p, error)};
    if (t->client)
        return t;
    free(t);
    return NULL;
}

void target_close(struct target *t)
{
    client_close(t->client);
    free(t);
}

int target_look(struct target *t, const char *name, struct target_file *found, struct error *error)
{
    struct answer a;
    const struct request r = {.method = METHOD_HEAD, .name = name, .query = ""};
    if (client_ask(t->client, &r, &a, error) != 0)
        return -1;
    *found = (struct target_file){a.bytes, remote_hash(a.tag[0] ? a.tag : a.modified)};
    return a.status != 404;
}

int target_get(struct target *t, const char *name, char *to, uint64_t room, uint64_t *count,
               struct error *error)
{
    struct answer a;
    const struct request r = {
        .method = METHOD_GET, .name = name, .query = "", .to = to, .room = room};
    int rc = client_ask(t->client, &r, &a, error);
    *count = a.status == 404 ? 0 : a.bytes;
    return rc;
}

uint64_t target_piece_bytes(const struct target *t, uint64_t bytes)
{
    uint64_t each = t->push->part_bytes;
    if (!client_is_s3(t->client))
        return bytes;
    while ((bytes + each - 1) / each > PUSH_PIECES_MAX)
        each *= 2;
    return each;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int refused(const struct push *p, const char *name, const char *why, struct error *error)
{
    return error_set(error, ERR_IO, "%.200s: %.100s: %s", p->given, name, why);
}

int target_begin(struct target *t, const struct push_file *f, char id[PUSH_ID_BYTES],
                 struct error *error)
{
    struct answer a;
    const struct request r = {
        .method = METHOD_POST, .name = f->name, .query = "?uploads=", .text = ""};
    strcpy(id, WHOLE);
    if (target_piece_bytes(t, f->bytes) >= f->bytes)
        return 0;
    if (client_ask(t->client, &r, &a, error) != 0)
        return -1;
    const char *from = strstr(a.text, "<UploadId>");
    size_t n = from ? strcspn(from + 10, "<") : 0;
    if (n == 0 || n >= PUSH_ID_BYTES || strcspn(from + 10, " \r\n") < n)
        return refused(t->push, f->name, "the answer has no UploadId", error);
    memcpy(id, from + 10, n);
    id[n] = 0;
    return 0;
}

/* As a value of a query that is signed: a slash is encoded, too. */
static void encode_id(const char *id, char to[3 * PUSH_ID_BYTES])
{
    char plain[3 * PUSH_ID_BYTES];
    io_url_encode(id, plain);
    for (const char *c = plain; *c; c++) {
        size_t n = *c == '/' ? 3 : 1;
        memcpy(to, *c == '/' ? "%2F" : c, n);
        to += n;
    }
    *to = 0;
}

int target_piece(struct target *t, const struct push_file *f, const char *id, uint32_t number,
                 uint64_t at, uint64_t bytes, char tag[PUSH_TAG_BYTES], struct error *error)
{
    struct answer a;
    char query[3 * PUSH_ID_BYTES + 64] = "", encoded[3 * PUSH_ID_BYTES];
    bool part = strcmp(id, WHOLE) != 0;
    encode_id(id, encoded);
    if (part)
        snprintf(query, sizeof query, "?partNumber=%" PRIu32 "&uploadId=%s", number + 1, encoded);
    const struct request r = {
        .method = METHOD_PUT, .name = f->name, .query = query, .file = f, .at = at, .bytes = bytes};
    if (client_ask(t->client, &r, &a, error) != 0)
        return -1;
    strcpy(tag, WHOLE);
    if (!part)
        return 0;
    if (!a.tag[0] || strlen(a.tag) >= PUSH_TAG_BYTES || strpbrk(a.tag, " \t<>&"))
        return refused(t->push, f->name, "the answer to a part has no ETag", error);
    strcpy(tag, a.tag);
    return 0;
}

int target_end(struct target *t, const struct push_file *f, const char *id,
               char (*tag)[PUSH_TAG_BYTES], uint32_t pieces, struct error *error)
{
    struct answer a;
    char query[3 * PUSH_ID_BYTES + 16], encoded[3 * PUSH_ID_BYTES];
    size_t room = (size_t)pieces * PART_BYTES + 128, n = 0;
    if (strcmp(id, WHOLE) == 0)
        return 0;
    char *text = malloc(room);
    if (!text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (push)");
    encode_id(id, encoded);
    snprintf(query, sizeof query, "?uploadId=%s", encoded);
    n += (size_t)snprintf(text, room, "<CompleteMultipartUpload>");
    for (uint32_t i = 0; i < pieces; i++)
        n += (size_t)snprintf(text + n, room - n,
                              "<Part><PartNumber>%" PRIu32 "</PartNumber><ETag>%s</ETag></Part>",
                              i + 1, tag[i]);
    snprintf(text + n, room - n, "</CompleteMultipartUpload>");
    const struct request r = {.method = METHOD_POST, .name = f->name, .query = query, .text = text};
    int rc = client_ask(t->client, &r, &a, error);
    free(text);
    return rc;
}
