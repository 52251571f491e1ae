/* SPDX-License-Identifier: Apache-2.0 */
/* Responses that are stored, so that clients can fetch them and continue from them: at most so
 * many, with so many bytes of text. Beyond that, what was not used for longest goes. Pure. */
#ifndef SLUICE_ENGINE_GATEWAY_API_STORED_H
#define SLUICE_ENGINE_GATEWAY_API_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORED_ID_BYTES 48 /* with its terminator */

struct stored_response {
    char id[STORED_ID_BYTES]; /* "": free */
    char *body;               /* what the client got, without log-probabilities */
    char *conversation;       /* up to and with this response, in the form of the dialect */
    size_t bytes;
    uint64_t used;
};

struct stored {
    struct stored_response *all;
    size_t count, bytes_max, bytes;
    uint64_t uses;
};

/* False: no memory. count or bytes 0: nothing is stored. */
bool stored_open(struct stored *s, size_t count, size_t bytes);
void stored_close(struct stored *s);
/* Takes both texts, malloc'ed; NULL: no memory, then nothing is stored, as with a text that is too
 * long. */
void stored_put(struct stored *s, const char *id, char *body, char *conversation);
/* NULL: there is none of that name. Borrowed, until the next call. */
const struct stored_response *stored_find(struct stored *s, const char *id);
bool stored_delete(struct stored *s, const char *id);

#endif
