/* SPDX-License-Identifier: Apache-2.0 */
/* This machine: what a tuning was measured on, and whether that is still so; the minimum of the
 * budget. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/json/json_file.h"
#include "lib/json/lookup.h"
#include "lib/memory/available.h"
#include "procs/tools/tune/tune.h"

#define READ_BYTES MIB
#define READS      33
#define MODEL_MIN  (64 * MIB) /* of a smaller file, reads say nothing about the device */
/* What an engine needs more with a store: another reader, and more entries. */
#define STORE_BYTES        (2 * MIB)
#define STORE_EXPERT_BYTES 256
#define RATE_FACTOR        4 /* rates of one device differ by less */

static int by_time(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The median of reads past the page cache, spread over the file; 0: unknown. */
static double sample_rate(const char *path, uint64_t file_bytes)
{
    uint64_t ns[READS];
    void *buffer = NULL;
    int fd = file_bytes < MODEL_MIN ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    size_t done = 0;
    if (fd >= 0 && posix_memalign(&buffer, PAGE_BYTES, READ_BYTES) != 0)
        buffer = NULL;
    for (; buffer && done < READS; done++) {
        uint64_t at = align_down((file_bytes - READ_BYTES) / READS * done, PAGE_BYTES);
        uint64_t begun = clock_now_ns();
        if (pread(fd, buffer, READ_BYTES, (off_t)at) != (ssize_t)READ_BYTES)
            break;
        ns[done] = clock_now_ns() - begun + 1;
    }
    free(buffer);
    if (fd >= 0)
        close(fd);
    if (done < READS)
        return 0;
    qsort(ns, READS, sizeof *ns, by_time);
    return (double)READ_BYTES * NS_PER_S / (double)ns[READS / 2];
}

void machine_look(const struct tune *t, struct machine *m)
{
    char path[PATH_MAX];
    uint32_t part = model_largest_part(t);
    tunings_cpu(m->cpu);
    model_part(t, part, path);
    m->sample_bytes_per_s = sample_rate(path, (uint64_t)t->part[part].st_size);
}

const char *machine_difference(const struct machine *was, const struct machine *is)
{
    double a = was->sample_bytes_per_s, b = is->sample_bytes_per_s;
    if (was->cpu[0] && is->cpu[0] && strcmp(was->cpu, is->cpu) != 0)
        return "another CPU";
    if (a > 0 && b > 0 && (a > RATE_FACTOR * b || b > RATE_FACTOR * a))
        return "another speed of the storage device";
    return NULL;
}

int engine_ask(struct tune *t, const char *model, bool with_budget, struct engine_facts *facts,
               struct error *error)
{
    char *out = NULL, budget[48];
    int status = 0;
    snprintf(budget, sizeof budget, "--budget=%llu", (unsigned long long)t->budget);
    const char *argv[] = {"-m",
                          model,
                          "--cgroup=off",
                          "--no-tune",
                          "--print-memory",
                          with_budget && t->budget ? budget : NULL,
                          NULL};
    t->quiet = true;
    int rc = run_program(t, "run", argv, &out, &status, error);
    t->quiet = false;
    json_t *o = rc == 0 && status == 0 && out ? json_text(out, strlen(out), error) : NULL;
    const json_t *share = json_object_get(json_object_get(o, "auto"), "share");
    *facts = (struct engine_facts){.share = json_number_value(share)};
    if (o) {
        facts->min_budget = lookup_u64(o, "min_budget");
        facts->experts = lookup_u64(o, "expert_count");
        facts->context = lookup_u64(o, "ctx_size");
    }
    json_decref(o);
    free(out);
    return rc != 0 && error->code == ERR_CANCELLED ? -1 : 0;
}

int budget_check(struct tune *t, struct error *error)
{
    char a[16], b[16];
    struct engine_facts facts;
    if (t->budget == 0)
        return 0;
    if (engine_ask(t, t->model, false, &facts, error) != 0)
        return -1;
    uint64_t minimum = facts.min_budget; /* 0: what is wrong is left to the next step */
    if (minimum > 0)
        minimum = align_up(minimum + STORE_BYTES + facts.experts * STORE_EXPERT_BYTES, MIB);
    if (t->budget >= minimum)
        return 0;
    return error_set(error, ERR_BUDGET_TOO_SMALL,
                     "--budget %s is too small for a tuning of this model: minimum %s",
                     bytes_format(t->budget, a), bytes_format(minimum, b));
}

int store_fits(struct tune *t, uint64_t *minimum, struct error *error)
{
    struct engine_facts facts = {0};
    if (t->budget > 0 && engine_ask(t, t->store, false, &facts, error) != 0)
        return -1;
    *minimum = facts.min_budget;
    return t->budget >= *minimum;
}

uint64_t memory_of_child(const struct tune *t)
{
    uint64_t own = memory_private() + MIB; /* it changes a little */
    return t->memory > 2 * own ? align_down(t->memory - own, MIB) : t->memory;
}
