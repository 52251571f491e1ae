/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches samples in a thread: the stats snapshot, the map, and files of /proc. */
#include "procs/clients/top/sample.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/engine/engine_client.h"
#include "lib/base/clock.h"
#include "lib/json/lookup.h"
#include "procs/clients/common/cpu_time.h"

#define CALL_TIMEOUT_MS    2000 /* a stopped supervisor sends no reply */
#define REQUEST_TIMEOUT_MS 500  /* compute, while it starts again */

struct poller {
    char run[64];
    pthread_t thread;
    pthread_mutex_t lock;  /* protects everything below */
    pthread_cond_t change; /* CLOCK_MONOTONIC */
    uint64_t interval_ns;
    bool end, fresh, now;
    volatile int stop; /* cancels a call in progress */
    struct sample newest;
    struct error error;
};

/* Reads CPU time and memory of a process; zeros when it has exited. Display only: a reused pid does
 * no harm. */
static void see_process(pid_t pid, struct process_seen *seen)
{
    char path[64], text[2048];
    *seen = (struct process_seen){.cpu_ns = cpu_time_ns(pid)};
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(text, sizeof text, f)) {
        uint64_t kib;
        if (sscanf(text, "RssAnon: %" SCNu64, &kib) == 1)
            seen->anon = kib * 1024;
    }
    if (f)
        fclose(f);
}

int calls_open(struct calls *calls, const char *run, volatile int *stop, struct error *error)
{
    calls->control = control_client_open(run, error);
    calls->engine = calls->control ? engine_client_open(run, error) : NULL;
    if (!calls->engine) {
        calls_close(calls);
        return -1;
    }
    rpc_client_set_stop(calls->control, stop);
    rpc_client_set_stop(calls->engine, stop);
    return 0;
}

void calls_close(struct calls *calls)
{
    rpc_client_close(calls->control);
    rpc_client_close(calls->engine);
    *calls = (struct calls){0};
}

static bool compute_is_ready(const json_t *doc)
{
    return strcmp(lookup_text(lookup_process(doc, "compute", 0), "state"), "ready") == 0;
}

int sample_get(const struct calls *calls, struct sample *sample, struct error *error)
{
    struct error no_map, no_requests;
    *sample = (struct sample){0};
    if (rpc_call(calls->control, "stats", NULL, CALL_TIMEOUT_MS, &sample->doc, error) != 0)
        return -1;
    sample->when_ns = clock_now_ns();
    for (size_t i = 0; i < lookup_processes(sample->doc) && i < SERVICE_PROCESSES_MAX; i++)
        see_process((pid_t)lookup_u64(lookup_row(sample->doc, i), "pid"), &sample->seen[i]);
    /* A missing or invalid map is not an error. */
    if (rpc_call(calls->control, "map", NULL, CALL_TIMEOUT_MS, &sample->map_reply, &no_map) == 0 &&
        map_read(sample->map_reply, &sample->map, &no_map) != 0)
        sample->map = (struct map){0};
    if (compute_is_ready(sample->doc) && rpc_call(calls->engine, "status", NULL, REQUEST_TIMEOUT_MS,
                                                  &sample->requests, &no_requests) != 0)
        sample->requests = NULL;
    return 0;
}

void sample_free(struct sample *sample)
{
    map_free(&sample->map);
    json_decref(sample->map_reply);
    json_decref(sample->requests);
    json_decref(sample->doc);
    *sample = (struct sample){0};
}

/* After an error the clients are opened again: the next engine of that name has other sockets. */
static int attempt(struct poller *l, struct calls *calls, struct sample *sample,
                   struct error *error)
{
    if (!calls->control && calls_open(calls, l->run, &l->stop, error) != 0)
        return -1;
    if (sample_get(calls, sample, error) == 0)
        return 0;
    calls_close(calls);
    return -1;
}

static void wait_for_turn(struct poller *l, uint64_t since_ns)
{
    while (!l->end && !l->now) {
        uint64_t until_ns = since_ns + l->interval_ns;
        if (clock_now_ns() >= until_ns)
            break;
        struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                                 .tv_nsec = (long)(until_ns % NS_PER_S)};
        pthread_cond_timedwait(&l->change, &l->lock, &until);
    }
    l->now = false;
}

static void *poller_main(void *arg)
{
    struct poller *l = arg;
    struct calls calls = {0};
    pthread_mutex_lock(&l->lock);
    while (!l->end) {
        struct sample sample;
        struct error error = {.code = ERR_NONE};
        uint64_t since_ns = clock_now_ns();
        pthread_mutex_unlock(&l->lock);
        int status = attempt(l, &calls, &sample, &error);
        pthread_mutex_lock(&l->lock);
        if (status == 0) {
            sample_free(&l->newest);
            l->newest = sample;
            l->fresh = true;
        }
        l->error = error;
        wait_for_turn(l, since_ns);
    }
    pthread_mutex_unlock(&l->lock);
    calls_close(&calls);
    return NULL;
}

struct poller *poller_open(const char *run, uint64_t interval_ns, struct error *error)
{
    struct poller *l = calloc(1, sizeof *l);
    if (!l) {
        error_set(error, ERR_NO_MEMORY, "out of memory (poller)");
        return NULL;
    }
    snprintf(l->run, sizeof l->run, "%s", run);
    l->interval_ns = interval_ns;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->change, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigset_t all, before; /* signals are delivered to the screen's thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&l->thread, NULL, poller_main, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        return l;
    error_set_errno(error, ERR_NO_MEMORY, rc, "cannot start a thread");
    free(l);
    return NULL;
}

void poller_close(struct poller *l)
{
    if (!l)
        return;
    l->stop = 1;
    pthread_mutex_lock(&l->lock);
    l->end = true;
    pthread_cond_signal(&l->change);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    sample_free(&l->newest);
    pthread_cond_destroy(&l->change);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

void poller_set_interval(struct poller *l, uint64_t interval_ns, bool now)
{
    pthread_mutex_lock(&l->lock);
    l->interval_ns = interval_ns;
    l->now = now;
    pthread_cond_signal(&l->change);
    pthread_mutex_unlock(&l->lock);
}

bool poller_take(struct poller *l, struct sample *sample, struct error *error)
{
    pthread_mutex_lock(&l->lock);
    bool fresh = l->fresh;
    if (fresh) {
        *sample = l->newest;
        l->newest = (struct sample){0};
        l->fresh = false;
    }
    *error = l->error;
    pthread_mutex_unlock(&l->lock);
    return fresh;
}
