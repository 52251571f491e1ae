/* SPDX-License-Identifier: Apache-2.0 */
/* NNG initialises itself when a process opens its first socket. If it cannot allocate memory then,
 * it cleans up under a lock that it holds already, and waits for itself forever. A second thread
 * ends the process in that case, with a reason; a child of the supervisor is started again. Its
 * poller then gets no name, which would make the end of the process expensive. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ipc/rpc/link.h"
#include "lib/base/log.h"

#define FIRST_S      10
#define FIRST_LOG_MS 100
#define EXIT_FAILED  1

struct first {
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool done;
};

static void *watch(void *arg)
{
    struct first *first = arg;
    struct timespec end;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += FIRST_S;
    pthread_mutex_lock(&first->lock);
    while (!first->done && rc != ETIMEDOUT)
        rc = pthread_cond_clockwait(&first->change, &first->lock, CLOCK_MONOTONIC, &end);
    bool done = first->done;
    pthread_mutex_unlock(&first->lock);
    if (done)
        return NULL;
    log_line(LOG_LEVEL_ERROR, "error: no memory: the first socket was not opened within %d s",
             FIRST_S);
    log_flush(FIRST_LOG_MS);
    _exit(EXIT_FAILED);
}

int link_socket_first(nng_socket *socket, int (*open)(nng_socket *))
{
    static atomic_bool opened;
    struct first first = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    pthread_t thread;
    if (atomic_load(&opened))
        return open(socket);
    if (pthread_create(&thread, NULL, watch, &first) != 0)
        return NNG_ENOMEM;
    int rv = open(socket);
    pthread_mutex_lock(&first.lock);
    first.done = true;
    pthread_cond_signal(&first.change);
    pthread_mutex_unlock(&first.lock);
    pthread_join(thread, NULL);
    atomic_store(&opened, rv == 0);
    return rv;
}

/* In place of the C library's, for all that calls it in this process. NNG names its poller from the
 * outside, for which the C library opens a file of that thread in /proc. At the end of the process
 * the kernel then forgets that file while the parent waits for it in a loop: 4 ms of CPU time for
 * every process where others want the CPUs. A sandbox forbids the file in any case. */
__attribute__((visibility("default"))) int pthread_setname_np(pthread_t thread, const char *name)
{
    int (*original)(pthread_t, const char *) = NULL;
    if (!pthread_equal(thread, pthread_self()) && strncmp(name, "nng:", 4) == 0)
        return 0;
    *(void **)&original = dlsym(RTLD_NEXT, "pthread_setname_np");
    return original ? original(thread, name) : ENOSYS;
}
