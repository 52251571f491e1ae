/* SPDX-License-Identifier: Apache-2.0 */
/* The pages for people and Prometheus are made of a snapshot of the supervisor, and of the
 * gateway's own counters. */
#ifndef SLUICE_ENGINE_GATEWAY_PAGES_PAGES_H
#define SLUICE_ENGINE_GATEWAY_PAGES_PAGES_H

#include "procs/engine/gateway/http/http.h"

/* A histogram in Prometheus form. */
#define HISTOGRAM_BUCKETS 20
struct histogram {
    uint64_t count[HISTOGRAM_BUCKETS + 1]; /* the last: above all bounds */
    double sum;
};

#define FINISH_REASONS 4

/* Of completions over HTTP. */
struct metrics {
    struct histogram first_token, inter_token;
    uint64_t finished[FINISH_REASONS];
};

/* metrics.c. Text in Prometheus' form, malloc'ed; NULL when out of memory. */
char *metrics_make(const struct metrics *m, const char *model_name, const json_t *doc,
                   size_t *bytes);
void metrics_first_token(struct metrics *m, uint64_t ns);
void metrics_tokens(struct metrics *m, uint64_t ns, uint64_t count);
/* reason: stop, length, cancelled or error. */
void metrics_finished(struct metrics *m, const char *reason);

/* page.c: the page, HTML; the same. */
char *page_make(const json_t *doc, size_t *bytes);
/* The files that it loads. */
route_fn page_asset;

#endif
