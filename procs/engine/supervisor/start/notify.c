/* Notifies a service manager of readiness: one datagram to the socket in $NOTIFY_SOCKET, in the
 * protocol of systemd (sd_notify(3)). Without the variable it does nothing; errors are ignored.
 * Children do not inherit the variable, because only this process may notify. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "procs/engine/supervisor/supervisor.h"

void notify_take(struct supervisor *s)
{
    const char *path = getenv("NOTIFY_SOCKET");
    s->notify[0] = 0;
    if (path && (path[0] == '/' || path[0] == '@') && strlen(path) < sizeof s->notify)
        strcpy(s->notify, path);
    unsetenv("NOTIFY_SOCKET");
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
