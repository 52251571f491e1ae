/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use the gateway: whoever has the key, or, without a key, this machine; of pages of other
 * sites only those of --http-origins. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "procs/engine/gateway/http/http.h"
#include "shm/segment/inherited_fds.h"

#define HOST_BYTES 256

/* Takes equal time for right and wrong keys. */
static bool same_key(const char key[KEY_BYTES_MAX], const char *given)
{
    char padded[KEY_BYTES_MAX] = {0};
    unsigned char differs = strlen(given) >= sizeof padded;
    snprintf(padded, sizeof padded, "%s", given);
    for (size_t i = 0; i < sizeof padded; i++)
        differs |= (unsigned char)(padded[i] ^ key[i]);
    return differs == 0;
}

/* "Authorization: Bearer KEY", "x-api-key: KEY", or KEY as the password browsers ask for. */
static bool authorised(struct http *h, struct MHD_Connection *connection)
{
    if (!h->key[0])
        return true;
    const char *value =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    if (value && strncasecmp(value, "Bearer ", 7) == 0)
        return same_key(h->key, value + 7);
    value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "x-api-key");
    if (value)
        return same_key(h->key, value);
    char *password = NULL;
    char *user = MHD_basic_auth_get_username_password(connection, &password);
    bool right = password && same_key(h->key, password);
    MHD_free(user);
    MHD_free(password);
    return right;
}

/* The name in a Host header, without port and brackets. */
static bool host_name(const char *host, char out[HOST_BYTES])
{
    bool bracket = host[0] == '[';
    size_t n = bracket ? strcspn(host, "]") : strcspn(host, ":");
    if (n >= HOST_BYTES)
        return false;
    snprintf(out, HOST_BYTES, "%.*s", (int)(n - bracket), host + bracket);
    return true;
}

/* A page of another site in a browser of this machine must not use the gateway. */
static bool from_another_page(struct MHD_Connection *connection)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
    const char *authority = origin ? strstr(origin, "://") : NULL;
    return origin && (!authority || !host || strcasecmp(authority + 3, host) != 0);
}

/* Whether --http-origins has the origin of the page; "*" is all of them. */
static bool listed(const char *origins, const char *origin)
{
    size_t n = strlen(origin);
    for (const char *at = origins; *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        if ((length == 1 && *at == '*') || (length == n && strncasecmp(at, origin, n) == 0))
            return true;
        at += length;
    }
    return false;
}

bool auth_preflight(struct exchange *x, const char *method)
{
    const char *origin = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Origin");
    x->shared_origin = origin && listed(x->http->child->params->http_origins, origin);
    if (!x->shared_origin || strcmp(method, "OPTIONS") != 0)
        return false;
    const char *headers = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND,
                                                      "Access-Control-Request-Headers");
    exchange_respond(x, MHD_HTTP_NO_CONTENT,
                     MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
    exchange_header(x, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    exchange_header(x, "Access-Control-Allow-Headers", headers ? headers : "*");
    exchange_header(x, "Access-Control-Max-Age", "600");
    return true;
}

void auth_share(struct exchange *x, struct MHD_Response *response)
{
    const char *origin = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Origin");
    if (!response || !origin)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Vary", "Origin");
}

/* Nor must it reach a gateway without a key under a name of that site which resolves to this
 * machine: it is not the name of this machine. */
static bool foreign_name(const struct http *h, struct MHD_Connection *connection)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    char name[HOST_BYTES];
    struct in6_addr address;
    if (!host || !h->loopback || h->key[0])
        return false;
    return !host_name(host, name) ||
           (strcasecmp(name, "localhost") != 0 && inet_pton(AF_INET, name, &address) != 1 &&
            inet_pton(AF_INET6, name, &address) != 1);
}

bool auth_admits(struct exchange *x)
{
    struct http *h = x->http;
    if (!x->shared_origin && from_another_page(x->connection)) {
        exchange_status_error(x, MHD_HTTP_FORBIDDEN,
                              "cross-origin request from another site; --http-origins lists the "
                              "origins of pages that may send some");
        return false;
    }
    if (foreign_name(h, x->connection)) {
        exchange_status_error(x, MHD_HTTP_FORBIDDEN,
                              "the Host is no name of this machine: without a key, use localhost "
                              "or an address; with one (--http-key-file), any name");
        return false;
    }
    if (x->route->open || authorised(h, x->connection))
        return true;
    counter_add(h->child->process, CTR_GATEWAY_requests_unauthorised, 1);
    exchange_status_error(x, MHD_HTTP_UNAUTHORIZED,
                          "the key is missing or wrong (Authorization: Bearer KEY)");
    exchange_header(x, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Basic realm=\"sluice\"");
    return false;
}

void auth_read_own_address(struct http *h)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own = {0};
    socklen_t bytes = sizeof own;
    uint16_t port = 0;
    if (getsockname(INHERITED_HTTP, &own.any, &bytes) != 0)
        return;
    if (own.any.sa_family == AF_INET) {
        port = ntohs(own.v4.sin_port);
        h->loopback = ntohl(own.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    } else if (own.any.sa_family == AF_INET6) {
        port = ntohs(own.v6.sin6_port);
        h->loopback = IN6_IS_ADDR_LOOPBACK(&own.v6.sin6_addr);
    }
    counter_set(h->child->process, CTR_GATEWAY_port, port);
}
