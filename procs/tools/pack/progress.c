/* SPDX-License-Identifier: Apache-2.0 */
/* Progress line of a pack: bytes, rate, time left, and the bottleneck. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "procs/tools/pack/pack.h"

#define TICK_NS     (50 * NS_PER_MS)
#define TERMINAL_NS (200 * NS_PER_MS)
#define LOG_NS      (10 * NS_PER_S) /* without a terminal */

const char *pack_bound(const struct pack *p)
{
    return atomic_load(&p->meters.storage_ns) >= atomic_load(&p->meters.quantiser_ns) ? "device"
                                                                                      : "quantiser";
}

static uint64_t bytes_of_store(const struct pack *p)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < p->manifest.stripe_count; s++)
        bytes += p->manifest.stripe[s].bytes;
    return bytes;
}

static void show(const struct progress *g)
{
    const struct pack *p = g->pack;
    char now[16], all[16], rate[16];
    uint32_t done = atomic_load(&p->meters.experts_done);
    uint64_t total = bytes_of_store(p);
    double seconds = (double)(clock_now_ns() - p->started_ns) / (double)NS_PER_S;
    double written = (double)atomic_load(&p->meters.bytes_written);
    double moved = written + (double)atomic_load(&p->meters.bytes_read);
    double new = (double)(done - p->resumed), left = (double)(p->expert_count - done);
    uint64_t storage = atomic_load(&p->meters.storage_ns);
    uint64_t quantiser = atomic_load(&p->meters.quantiser_ns);
    uint64_t both = storage + quantiser ? storage + quantiser : 1;
    fprintf(stderr,
            "%spack: %s of %s, %" PRIu32 " of %" PRIu32 " experts, %s/s read and written, %.0f s "
            "left, bound by the %s (device %" PRIu64 " %%, quantiser %" PRIu64 " %%)%s",
            g->terminal ? "\r\033[K" : "",
            bytes_format((uint64_t)((double)total * done / p->expert_count), now),
            bytes_format(total, all), done, p->expert_count,
            bytes_format(seconds > 0 ? (uint64_t)(moved / seconds) : 0, rate),
            new > 0 ? seconds / new *left : 0, pack_bound(p), storage * 100 / both,
            quantiser * 100 / both, g->terminal ? "" : "\n");
    fflush(stderr);
}

void progress_start(struct progress *g, struct pack *p)
{
    *g = (struct progress){.pack = p, .terminal = isatty(STDERR_FILENO) == 1};
    g->next_ns = clock_now_ns() + (g->terminal ? TERMINAL_NS : LOG_NS);
}

void progress_tick(struct progress *g)
{
    struct timespec t = {0, TICK_NS};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
    if (g->pack->options.quiet || clock_now_ns() < g->next_ns)
        return;
    show(g);
    g->shown = true;
    g->next_ns = clock_now_ns() + (g->terminal ? TERMINAL_NS : LOG_NS);
}

void progress_end(struct progress *g)
{
    if (g->pack->options.quiet)
        return;
    show(g);
    if (g->terminal)
        fputc('\n', stderr);
}
