/* SPDX-License-Identifier: Apache-2.0 */
/* Progress, and the limit of the rate. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "procs/tools/push/push.h"

#define TERMINAL_NS (200 * NS_PER_MS)
#define LOG_NS      (10 * NS_PER_S) /* without a terminal */
#define NAP_NS      (100 * NS_PER_MS)

static double rate_of(const struct push *p)
{
    double seconds = (double)(clock_now_ns() - p->started_ns) / (double)NS_PER_S;
    return seconds > 0 ? (double)p->moved / seconds : 0;
}

static void show(struct push *p)
{
    char now[16], all[16], rate[16];
    uint64_t there = p->done + p->sent;
    double each = rate_of(p), left = there < p->total ? (double)(p->total - there) : 0;
    fprintf(stderr, "%spush: %s of %s, %s/s, %.0f s left%s", p->terminal ? "\r\033[K" : "",
            bytes_format(there, now), bytes_format(p->total, all),
            bytes_format((uint64_t)each, rate), each > 0 ? left / each : 0,
            p->terminal ? "" : "\n");
    fflush(stderr);
    p->shown = true;
}

void meter_start(struct push *p)
{
    p->started_ns = p->shown_ns = clock_now_ns();
    p->terminal = isatty(STDERR_FILENO) == 1;
}

static void tick(struct push *p)
{
    uint64_t now = clock_now_ns();
    if (p->quiet || now - p->shown_ns < (p->terminal ? TERMINAL_NS : LOG_NS))
        return;
    p->shown_ns = now;
    show(p);
}

void meter_moved(struct push *p, uint64_t bytes)
{
    p->sent += bytes;
    p->moved += bytes;
    tick(p);
    while (p->rate > 0) {
        uint64_t due =
            p->started_ns + (uint64_t)((double)p->moved / (double)p->rate * (double)NS_PER_S);
        uint64_t now = clock_now_ns(), left = due > now ? due - now : 0;
        if (left == 0)
            return;
        left = left < NAP_NS ? left : NAP_NS;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, (long)left}, NULL);
        tick(p);
    }
}

void meter_piece(struct push *p, uint64_t bytes, bool there)
{
    p->sent = 0;
    p->done += there ? bytes : 0;
}

void meter_end(struct push *p)
{
    char all[16], rate[16], moved[16];
    if (p->quiet)
        return;
    if (p->terminal && p->shown)
        fputs("\r\033[K", stderr);
    fprintf(stderr, "push: %s: %s, of which this run sent %s at %s/s\n", p->given,
            bytes_format(p->total, all), bytes_format(p->moved, moved),
            bytes_format((uint64_t)rate_of(p), rate));
}
