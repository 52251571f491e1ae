/* SPDX-License-Identifier: Apache-2.0 */
/* Reports restarts of engine processes while a response is pending; without it a restart of compute
 * would look like a frozen terminal. A thread polls the supervisor with its own client, because the
 * main client is blocked in the response's call, and prints only changes. */
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/services.h"
#include "lib/base/clock.h"
#include "lib/json/lookup.h"
#include "procs/clients/repl/repl.h"

#define POLL_MS     200
#define QUEUE_POLLS 2

struct seen {
    uint64_t restarts;
    bool down; /* reported as down */
};

struct watch {
    struct repl *repl;
    struct rpc_client *control;
    pthread_t thread;
    pthread_mutex_t lock;  /* protects the fields below and the output */
    pthread_cond_t change; /* CLOCK_MONOTONIC */
    bool active, end;
    volatile int stop;    /* cancels a call in progress */
    bool known;           /* `seen` is of this response */
    uint32_t queue_polls; /* polls that found a queue */
    struct seen seen[SERVICE_PROCESSES_MAX];
};

static void notice(struct repl *r, bool dim, const char *fmt, va_list args)
{
    char text[400];
    struct display display;
    size_t n = 1 + (size_t)vsnprintf(text + 1, sizeof text - 3, fmt, args);
    n = n < sizeof text - 3 ? n : sizeof text - 3;
    text[0] = '[';
    memcpy(text + n, "]\n", 2);
    progress_end(&r->progress_shown);
    if (r->mid_line && r->out_tty)
        putchar('\n');
    r->mid_line = false;
    if (r->terminal)
        display_at_start(&r->display, r->terminal);
    fflush(stdout);
    dim = dim && display_dims(STDERR_FILENO);
    display_start(&display, display_columns(STDERR_FILENO), false, NULL, NULL, false);
    fputs(dim ? DISPLAY_DIM : "", stderr);
    display_put(&display, text, n + 2, stderr);
    fputs(dim ? DISPLAY_PLAIN : "", stderr);
}

void repl_notice(struct repl *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    notice(r, false, fmt, args);
    va_end(args);
}

void repl_statistics(struct repl *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    notice(r, true, fmt, args);
    va_end(args);
}

static void compare(struct watch *w, const json_t *row, struct seen *seen)
{
    uint64_t restarts = lookup_u64(row, "restarts");
    const char *state = lookup_text(row, "state"), *name = lookup_text(row, "service");
    bool down = strcmp(state, "ready") != 0;
    if (w->known && down && !seen->down)
        repl_notice(w->repl, "%s is %s; its work resumes after a restart", name,
                    strcmp(state, "failed") == 0 ? "stopped after repeated failures"
                                                 : "being restarted");
    else if (w->known && !down && (seen->down || restarts > seen->restarts))
        repl_notice(w->repl, "%s was restarted", name);
    *seen = (struct seen){restarts, down};
}

static void compare_all(struct watch *w, const json_t *doc)
{
    for (size_t i = 0; i < lookup_processes(doc) && i < SERVICE_PROCESSES_MAX; i++)
        compare(w, lookup_row(doc, i), &w->seen[i]);
    w->known |= doc != NULL;
}

/* Few sequences run at a time, so a queued one may wait long; the progress states it where that is
 * shown. The own sequence is in the queue until compute has seen it: require two polls. */
static void report_queue(struct watch *w, const json_t *doc)
{
    uint64_t queued = lookup_counter(doc, "compute", "sequences_queued");
    if (w->repl->progress || w->repl->has_tokens || queued == 0 || w->queue_polls >= QUEUE_POLLS ||
        ++w->queue_polls < QUEUE_POLLS)
        return;
    repl_notice(w->repl, "waiting for other sequences to end (%" PRIu64 " in the queue)", queued);
}

/* One poll; the lock is released during the call. */
static void poll_engine(struct watch *w)
{
    json_t *doc = NULL;
    struct error ignored;
    pthread_mutex_unlock(&w->lock);
    int status = control_call(w->control, "stats", NULL, &doc, &ignored);
    pthread_mutex_lock(&w->lock);
    if (status == 0 && w->active) {
        compare_all(w, doc);
        report_queue(w, doc);
    }
    json_decref(doc);
}

static void *watch_main(void *arg)
{
    struct watch *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->end) {
        struct timespec until;
        if (w->active)
            poll_engine(w);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += POLL_MS * (long)NS_PER_MS;
        until.tv_sec += until.tv_nsec / (long)NS_PER_S;
        until.tv_nsec %= (long)NS_PER_S;
        if (w->active)
            pthread_cond_timedwait(&w->change, &w->lock, &until);
        else if (!w->end)
            pthread_cond_wait(&w->change, &w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

struct watch *watch_open(struct repl *r, struct error *error)
{
    struct watch *w = calloc(1, sizeof *w);
    if (!w) {
        error_set(error, ERR_NO_MEMORY, "out of memory (watch)");
        return NULL;
    }
    w->repl = r;
    w->control = control_client_open(r->session.run, error);
    if (!w->control) {
        free(w);
        return NULL;
    }
    rpc_client_set_stop(w->control, &w->stop);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->change, &monotonic);
    pthread_condattr_destroy(&monotonic);
    /* Signals are delivered to the main thread, which waits for keys. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, watch_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        return w;
    error_set_errno(error, ERR_NO_MEMORY, rc, "cannot start a thread");
    rpc_client_close(w->control);
    free(w);
    return NULL;
}

void watch_close(struct watch *w)
{
    if (!w)
        return;
    w->stop = 1;
    pthread_mutex_lock(&w->lock);
    w->active = false;
    w->end = true;
    pthread_cond_signal(&w->change);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    rpc_client_close(w->control);
    pthread_cond_destroy(&w->change);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

void watch_start(struct watch *w, const json_t *before)
{
    pthread_mutex_lock(&w->lock);
    w->known = w->repl->has_tokens = false;
    w->queue_polls = 0;
    compare_all(w, before);
    w->active = true;
    pthread_cond_signal(&w->change);
    pthread_mutex_unlock(&w->lock);
}

void watch_end(struct watch *w, const json_t *after)
{
    pthread_mutex_lock(&w->lock);
    w->active = false;
    compare_all(w, after);
    pthread_mutex_unlock(&w->lock);
}

void watch_lock(struct watch *w)
{
    pthread_mutex_lock(&w->lock);
}

void watch_unlock(struct watch *w)
{
    pthread_mutex_unlock(&w->lock);
}
