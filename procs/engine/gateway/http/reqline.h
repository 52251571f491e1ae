/* Are these bytes the first line of a request in HTTP/1.x (RFC 9112, 3)? Pure. */
#ifndef SLUICE_ENGINE_GATEWAY_HTTP_REQLINE_H
#define SLUICE_ENGINE_GATEWAY_HTTP_REQLINE_H

#include <stddef.h>

/* What of a connection is looked at. A line may be longer: what stands in these bytes decides. */
#define REQLINE_LOOK_BYTES   1024
#define REQLINE_METHOD_BYTES 32

enum reqline {
    REQLINE_MORE, /* so far it can become one */
    REQLINE_TAKEN,
    REQLINE_REFUSED,
};

/* The first n bytes of a connection, REQLINE_LOOK_BYTES of them or all that came. One empty line
 * may go before the request, as RFC 9112, 2.2 wants it. *why: for REFUSED, a constant text. */
enum reqline reqline_look(const char *bytes, size_t n, const char **why);

#endif
