/* SPDX-License-Identifier: Apache-2.0 */
/* A client that sends single bytes could keep a connection open forever: the HTTP library limits
 * pauses only. So a connection may rest (be without a complete request) for at most two time
 * limits.
 *
 *   RESTING --(request complete: connection_works)--> WORKING
 *     | ^                                               |
 *     | +---------(response sent: connection_rests)-----+
 *     |
 *     +--(too long: connections_tick)--> shut down; the library then closes it
 *
 * Resting connections are in a list, in the order of the start of their rest. */
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "lib/base/assert.h"
#include "procs/engine/gateway/http/http.h"

#define CONNECTION_MAGIC 0x434f4e4eu
#define PAUSES           2
#define DESCRIPTORS_OURS 96 /* descriptors not used by clients */

struct connection {
    uint32_t magic;
    bool resting;
    int fd;
    uint64_t since_ns;
    struct http *http;
    struct connection *older, *newer;
};

static void leave_list(struct connection *c)
{
    struct http *h = c->http;
    if (!c->resting)
        return;
    *(c->older ? &c->older->newer : &h->oldest) = c->newer;
    *(c->newer ? &c->newer->older : &h->newest) = c->older;
    c->older = c->newer = NULL;
    c->resting = false;
}

static void rest(struct connection *c)
{
    struct http *h = c->http;
    leave_list(c);
    c->resting = true;
    c->since_ns = clock_now_ns();
    c->older = h->newest;
    *(h->newest ? &h->newest->newer : &h->oldest) = c;
    h->newest = c;
}

static void add_connection(struct http *h, struct MHD_Connection *connection, void **slot)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *c = calloc(1, sizeof *c);
    h->connections++;
    *slot = c;
    if (!c)
        return; /* it is served, but not timed */
    *c = (struct connection){
        .magic = CONNECTION_MAGIC, .http = h, .fd = info ? info->connect_fd : -1};
    rest(c);
}

void connection_event(void *http, struct MHD_Connection *connection, void **slot,
                      enum MHD_ConnectionNotificationCode what)
{
    struct http *h = http;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        add_connection(h, connection, slot);
    } else {
        struct connection *c = *slot;
        h->connections--;
        if (c) {
            OBJ_CHECK(c, CONNECTION_MAGIC);
            leave_list(c);
            c->magic = 0;
            free(c);
        }
        *slot = NULL;
    }
}

static struct connection *of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

void connection_works(struct MHD_Connection *connection)
{
    struct connection *c = of(connection);
    if (!c)
        return;
    OBJ_CHECK(c, CONNECTION_MAGIC);
    leave_list(c);
}

void connection_rests(struct MHD_Connection *connection)
{
    struct connection *c = of(connection);
    if (!c)
        return;
    OBJ_CHECK(c, CONNECTION_MAGIC);
    rest(c);
}

void connections_tick(struct http *h, uint64_t now_ns)
{
    uint64_t limit = PAUSES * h->child->params->http_timeout * NS_PER_S;
    while (h->oldest && now_ns > h->oldest->since_ns && now_ns - h->oldest->since_ns > limit) {
        struct connection *c = h->oldest;
        leave_list(c);
        if (c->fd >= 0)
            shutdown(c->fd, SHUT_RDWR);
        counter_add(h->child->process, CTR_GATEWAY_connections_timed_out, 1);
    }
}

unsigned connections_max(const struct params *p)
{
    struct rlimit limit;
    unsigned wanted = (unsigned)p->http_connections;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted + DESCRIPTORS_OURS)
        return wanted;
    unsigned max = limit.rlim_cur > 2 * DESCRIPTORS_OURS
                       ? (unsigned)limit.rlim_cur - DESCRIPTORS_OURS
                       : DESCRIPTORS_OURS;
    log_warn("limited to %u connections: the limit of open files is %llu", max,
             (unsigned long long)limit.rlim_cur);
    return max;
}
