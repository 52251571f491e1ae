/* SPDX-License-Identifier: Apache-2.0 */
/* Notifies a service manager of readiness: one datagram to the socket in $NOTIFY_SOCKET, in the
 * protocol of systemd (sd_notify(3)). Without the variable it does nothing; errors are ignored.
 * Children do not inherit the variable, because only this process may notify. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "procs/engine/supervisor/children/children.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

#define WATCHDOG_MAX_US UINT64_C(86400000000)

void notify_take(struct supervisor *s)
{
    const char *path = getenv("NOTIFY_SOCKET");
    s->notify[0] = 0;
    if (path && (path[0] == '/' || path[0] == '@') && strlen(path) < sizeof s->notify)
        strcpy(s->notify, path);
    unsetenv("NOTIFY_SOCKET");
    /* WATCHDOG_PID names the process that must send them. */
    const char *period = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t us = period ? strtoull(period, NULL, 10) : 0;
    if (us > 0 && us < WATCHDOG_MAX_US && (!pid || strtoull(pid, NULL, 10) == (uint64_t)getpid()))
        s->notify_period_ns = us * 1000 / 2;
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void notify_alive(struct supervisor *s, uint64_t now_ns)
{
    char text[64];
    const char *phase = phase_text(s);
    if (phase != s->notify_phase) {
        snprintf(text, sizeof text, "STATUS=%s", phase);
        notify_send(s, text);
        s->notify_phase = phase;
    }
    if (s->notify_period_ns == 0 || now_ns < s->notify_next_ns)
        return;
    s->notify_next_ns = now_ns + s->notify_period_ns;
    notify_send(s, "WATCHDOG=1");
}

void notify_send(const struct supervisor *s, const char *text)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = strlen(s->notify);
    if (n == 0 || n >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, s->notify, n);
    if (to.sun_path[0] == '@')
        to.sun_path[0] = 0; /* the abstract namespace */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
    close(fd);
}
