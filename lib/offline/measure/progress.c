/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of progress, and estimates of the time that is left. */
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/offline/measure/evaluate.h"

/* An expert is read so often: worth a warning. */
#define MANY_READS 8

/* "40 s", "12 min", "3.5 h" */
static const char *duration(double seconds, char buf[32])
{
    if (seconds < 100)
        snprintf(buf, 32, "%.0f s", seconds);
    else if (seconds < 100 * 60)
        snprintf(buf, 32, "%.0f min", seconds / 60);
    else
        snprintf(buf, 32, "%.1f h", seconds / 3600);
    return buf;
}

const char *offline_duration_text(uint64_t ns, char text[OFFLINE_TEXT_BYTES])
{
    return duration((double)ns / NS_PER_S, text);
}

uint64_t offline_left_ns(double step_ns, uint64_t must, uint64_t left, uint64_t limit_ns)
{
    uint64_t all = (uint64_t)(step_ns * (double)left), needed = (uint64_t)(step_ns * (double)must);
    uint64_t limited = all < limit_ns ? all : limit_ns;
    return limited > needed ? limited : needed;
}

const char *offline_progress_text(const struct offline_progress *p, char text[OFFLINE_TEXT_BYTES])
{
    char bytes[16], left[32];
    int n = snprintf(text, OFFLINE_TEXT_BYTES, "%" PRIu64 " of %" PRIu64 ", about %s left", p->done,
                     p->of, duration((double)p->left_ns / NS_PER_S, left));
    if (p->read_bytes > 0)
        snprintf(text + n, OFFLINE_TEXT_BYTES - (size_t)n, ", %s read",
                 bytes_format(p->read_bytes, bytes));
    return text;
}

const char *offline_estimate_text(const struct offline_estimate *e, char text[OFFLINE_TEXT_BYTES])
{
    char all[16], slots[16], took[32], enough[16];
    double times = (double)e->read_bytes / (double)e->expert_bytes;
    double seconds = e->bytes_per_s > 0 ? (double)e->read_bytes / e->bytes_per_s : 0;
    int n = snprintf(
        text, OFFLINE_TEXT_BYTES,
        "%u windows, %u at a time through the layers; reads at most %s, every expert %.1f times, "
        "about %s on one thread; %s for experts",
        e->windows, e->group, bytes_format(e->read_bytes, all), times, duration(seconds, took),
        bytes_format(e->slot_bytes, slots));
    if (times > MANY_READS && n < OFFLINE_TEXT_BYTES)
        snprintf(text + n, OFFLINE_TEXT_BYTES - (size_t)n,
                 "; many reads are repeated: %s of memory would avoid that",
                 bytes_format(e->enough_bytes, enough));
    return text;
}
