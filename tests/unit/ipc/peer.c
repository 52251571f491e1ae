/* SPDX-License-Identifier: Apache-2.0 */
/* A peer process for the tests, to be stopped and killed.
 *   ipc_peer loader-dial|loader-listen PATH      replies to FLUSH with FLUSHED
 *   ipc_peer nobody-listen PATH                  the same as user 65534
 *   ipc_peer rpc-echo PATH                       replies to every request, prints the ids
 *   ipc_peer rpc-mute PATH                       receives requests, prints the ids, never replies
 *   ipc_peer rpc-client PATH                     calls "ping" forever
 * Prints "ready" once it is set up. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "ipc/channel/channel.h"
#include "ipc/rpc/rpc.h"
#include "lib/base/clock.h"
#include "lib/base/log.h"

static void reply_to_flushes(struct channel *channel)
{
    _Alignas(8) static unsigned char buf[MSG_BYTES_MAX];
    while (channel_receive(channel, buf) > 0) {
        struct msg_flush flush;
        memcpy(&flush, buf, sizeof flush);
        if (flush.head.type == MSG_FLUSH)
            channel_send(channel, &flush, MSG_FLUSHED);
    }
}

_Noreturn static void run_loader(const char *path, bool listens)
{
    struct error error;
    struct channel *channel = listens ? channel_listen(path, ROLE_LOADER, 7, &error)
                                      : channel_dial(path, ROLE_LOADER, 7, &error);
    if (!channel)
        log_fatal(1, "%s", error.text);
    puts("ready");
    for (;;) {
        struct pollfd p = {.fd = channel_fd(channel), .events = POLLIN};
        poll(&p, 1, 50);
        reply_to_flushes(channel);
        channel_tick(channel, clock_now_ns());
    }
}

_Noreturn static void run_server(const char *path, bool replies)
{
    struct error error;
    struct rpc_server *server = rpc_server_open(path, 64, &error);
    if (!server)
        log_fatal(1, "%s", error.text);
    puts("ready");
    for (;;) {
        struct pollfd p = {.fd = rpc_server_fd(server), .events = POLLIN};
        poll(&p, 1, 50);
        for (struct rpc_request *r; (r = rpc_server_take(server));) {
            puts(r->id);
            if (replies)
                rpc_reply(server, r, json_pack("{s:i}", "pid", (int)getpid()));
        }
        rpc_server_tick(server, clock_now_ns());
    }
}

_Noreturn static void run_client(const char *path)
{
    struct error error;
    struct rpc_client *client = rpc_client_open(path, &error);
    if (!client)
        log_fatal(1, "%s", error.text);
    puts("ready");
    for (;;) {
        json_t *reply;
        if (rpc_call(client, "ping", NULL, 1000, &reply, &error) == 0)
            json_decref(reply);
    }
}

int main(int argc, char **argv)
{
    log_init("peer", LOG_LEVEL_NONE);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 3)
        return 2;
    const char *mode = argv[1], *path = argv[2];
    if (strcmp(mode, "nobody-listen") == 0 && setuid(65534) != 0)
        return 1;
    if (strcmp(mode, "loader-dial") == 0)
        run_loader(path, false);
    if (strcmp(mode, "loader-listen") == 0 || strcmp(mode, "nobody-listen") == 0)
        run_loader(path, true);
    if (strcmp(mode, "rpc-echo") == 0 || strcmp(mode, "rpc-mute") == 0)
        run_server(path, strcmp(mode, "rpc-echo") == 0);
    if (strcmp(mode, "rpc-client") == 0)
        run_client(path);
    return 2;
}
