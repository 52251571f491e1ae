/* SPDX-License-Identifier: Apache-2.0 */
/* Joins paths, their handlers and their dialects. */
#include "procs/engine/gateway/routes.h"

#include "lib/base/bytes.h"
#include "procs/engine/gateway/serve/serve.h"

#define ROUTE(method, path, handler, speaks, open) extern const struct dialect speaks;
#define OTHERWISE(speaks)                          extern const struct dialect speaks;
#include "procs/engine/gateway/routes.tbl.h"

static const struct http_route routes[] = {
#define ROUTE(method, path, handler, speaks, open) {method, path, handler, &speaks, open},
#define OTHERWISE(speaks)
#include "procs/engine/gateway/routes.tbl.h"
};

static json_t *error_body(const struct dialect *d, unsigned status, const struct error *error,
                          const char *param)
{
    return d->error(status, error, param);
}

static void on_ended(struct exchange *x)
{
    if (x->stream)
        stream_client_left(x->stream);
    ask_forget(x);
    stats_forget(x);
}

const struct http_service gateway_service = {
    .routes = routes,
    .count = ARRAY_LEN(routes),
#define ROUTE(method, path, handler, speaks, open)
#define OTHERWISE(speaks) .otherwise = &speaks,
#include "procs/engine/gateway/routes.tbl.h"
    .error = error_body,
    .ended = on_ended,
};
