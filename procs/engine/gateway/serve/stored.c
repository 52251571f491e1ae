/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches and deletes stored responses. */
#include <string.h>

#include "procs/engine/gateway/serve/serve.h"

static void no_response(struct exchange *x)
{
    struct error error;
    error_set(&error, ERR_NOT_FOUND, "Response with id '%.60s' not found.", x->rest);
    exchange_error(x, &error, NULL);
}

void stored_get(struct exchange *x)
{
    const struct stored_response *r = stored_find(&x->gateway->stored, x->rest);
    char *text = r ? strdup(r->body) : NULL;
    if (r)
        exchange_counted(x, text, text ? strlen(text) : 0);
    else
        no_response(x);
}

void stored_remove(struct exchange *x)
{
    struct api_request named = {.store = false};
    if (!stored_delete(&x->gateway->stored, x->rest)) {
        no_response(x);
        return;
    }
    snprintf(named.previous, sizeof named.previous, "%.47s", x->rest);
    exchange_json(x, MHD_HTTP_OK, x->dialect->reply(&named, NULL));
}
