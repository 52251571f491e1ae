/* SPDX-License-Identifier: Apache-2.0 */
/* Compares exits by SIGKILL with the kernel's counts of OOM kills. */
#include "procs/engine/supervisor/budget/oom.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/assert.h"

#define SCORE_MAX 1000

void oom_watch_start(struct oom_watch *w, const struct oom_counts *counts)
{
    *w = (struct oom_watch){.seen = *counts};
}

void oom_watch_note(struct oom_watch *w, const struct oom_counts *counts, uint64_t now_ns)
{
    if (counts->hits > w->seen.hits) {
        w->hit = true;
        w->hits_ns = now_ns;
    } else if (now_ns - w->hits_ns > OOM_RECENT_NS) {
        w->hit = false;
    }
    if (counts->kills > w->seen.kills) {
        w->unexplained += counts->kills - w->seen.kills;
        w->at_limit = w->hit;
        w->kills_ns = now_ns;
    } else if (now_ns - w->kills_ns > OOM_RECENT_NS) {
        w->unexplained = 0;
    }
    w->seen = *counts;
}

bool oom_watch_explains(struct oom_watch *w)
{
    if (w->unexplained == 0)
        return false;
    w->unexplained--;
    return true;
}

bool oom_count_parse(const char *text, const char *key, uint64_t *count)
{
    size_t n = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) != 0 || line[n] != ' ' || line[n + 1] < '0' || line[n + 1] > '9')
            continue;
        *count = strtoull(line + n + 1, NULL, 10);
        return true;
    }
    return false;
}

int oom_score_raised(int base, unsigned raise)
{
    sl_assert(raise <= SCORE_MAX && base >= -SCORE_MAX && base <= SCORE_MAX);
    int score = base + (int)raise;
    return score < SCORE_MAX ? score : SCORE_MAX;
}
