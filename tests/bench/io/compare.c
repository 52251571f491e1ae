/* SPDX-License-Identifier: Apache-2.0 */
/* Random reads of a file on a server: a loop of the back end (lib/io/server), and a loop of its
 * library, in turn. Prints medians of bandwidth and of CPU time per byte of the process, and the
 * ratio of bandwidths with its range.
 *
 *   build/bench/io_compare_{nbd,http,rados} URL BYTES DEPTH [PAIRS [SECONDS]] */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "lib/base/clock.h"
#include "lib/io/io.h"
#include "tests/bench/io/compare.h"

#define PAIRS_MAX 64
#define ALIGNMENT 4096
#define START_NS  (20 * NS_PER_S)

struct result {
    double rate, cpu; /* MB/s; ns per byte */
};

static const struct io_backend *backend;
static struct io *io;
static int fd;

void compare_fail(const char *what)
{
    fprintf(stderr, "io_compare: %s\n", what);
    exit(1);
}

uint64_t compare_offset(struct compare *c)
{
    uint64_t places = (c->file_bytes - c->bytes) / ALIGNMENT + 1;
    return random_below(&c->random, places) * ALIGNMENT;
}

bool compare_over(const struct compare *c)
{
    return clock_now_ns() >= c->end_ns;
}

static void wait_for(void)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    (void)poll(&ready, 1, 1000);
}

static void open_backend(struct compare *c)
{
    struct error error;
    struct io_done done;
    struct io_link link = {.up = false};
    const struct io_source source = {
        .url = c->url, .backend = c->parsed.backend, .depth = c->depth};
    backend = io_servers[0];
    io = backend->open(&source, &fd, &error);
    if (!io)
        compare_fail(error.text);
    for (uint64_t end = clock_now_ns() + START_NS; !link.up && clock_now_ns() < end;) {
        (void)backend->poll(io, &done, 1);
        backend->link(io, &link);
        if (!link.up)
            wait_for();
    }
    if (!link.up)
        compare_fail(link.why);
    c->file_bytes = link.bytes;
}

static void submit(struct compare *c, char *buffer)
{
    const struct io_read read = {
        .bytes = c->bytes, .file_offset = compare_offset(c), .buffer = buffer, .tag = buffer};
    if (backend->submit(io, &read, 1) != 1)
        compare_fail("a read was not taken");
}

static uint64_t backend_loop(struct compare *c)
{
    struct io_done done[128];
    uint64_t sum = 0;
    uint32_t open = 0;
    for (; open < c->depth; open++)
        submit(c, c->buffer + (size_t)open * c->bytes);
    while (open > 0) {
        uint32_t n = backend->poll(io, done, 128);
        bool over = compare_over(c);
        for (uint32_t i = 0; i < n; i++) {
            if (done[i].result <= 0)
                compare_fail("a read failed");
            sum += (uint64_t)done[i].result;
            if (over)
                open--;
            else
                submit(c, done[i].tag);
        }
        if (n == 0)
            wait_for();
    }
    return sum;
}

static double cpu_ns(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
}

static struct result measure(struct compare *c, uint64_t (*loop)(struct compare *), double seconds)
{
    uint64_t began = clock_now_ns();
    double cpu = cpu_ns();
    c->end_ns = began + (uint64_t)(seconds * 1e9);
    double bytes = (double)loop(c);
    return (struct result){bytes / (double)(clock_now_ns() - began) * 1e3,
                           (cpu_ns() - cpu) / bytes};
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *of, int n)
{
    qsort(of, (size_t)n, sizeof *of, ascending);
    return n % 2 ? of[n / 2] : (of[n / 2 - 1] + of[n / 2]) / 2;
}

int main(int argc, char **argv)
{
    static struct compare c;
    static double rate[2][PAIRS_MAX], cpu[2][PAIRS_MAX], ratio[PAIRS_MAX];
    struct error error;
    int pairs = argc > 4 ? atoi(argv[4]) : 6;
    double seconds = argc > 5 ? atof(argv[5]) : 1;
    if (argc < 4 || pairs < 1 || pairs > PAIRS_MAX)
        compare_fail("usage: io_compare_{nbd,http,rados} URL BYTES DEPTH [PAIRS [SECONDS]]");
    c.url = argv[1];
    c.bytes = (uint32_t)strtoul(argv[2], NULL, 10);
    c.depth = (uint32_t)strtoul(argv[3], NULL, 10);
    if (io_url_parse(c.url, &c.parsed, &error) != 0)
        compare_fail(error.text);
    c.buffer = aligned_alloc(ALIGNMENT, (size_t)c.depth * c.bytes);
    if (!c.buffer || c.depth == 0 || c.depth > 128 || c.bytes % ALIGNMENT != 0)
        compare_fail("bad size or depth");
    memset(c.buffer, 0, (size_t)c.depth * c.bytes);
    random_seed(&c.random, 1, 2);
    open_backend(&c);
    library_open(&c);
    for (int i = 0; i < pairs; i++) {
        struct result of[2];
        for (int turn = 0; turn < 2; turn++) {
            int which = (i + turn) % 2;
            of[which] = measure(&c, which ? library_loop : backend_loop, seconds);
        }
        for (int which = 0; which < 2; which++) {
            rate[which][i] = of[which].rate;
            cpu[which][i] = of[which].cpu;
        }
        ratio[i] = of[0].rate / of[1].rate;
    }
    double middle = median(ratio, pairs);
    printf("%u bytes, depth %u, %d pairs: %.0f / %.0f MB/s: %.2f (%.2f to %.2f); CPU %.2f / %.2f "
           "ns per byte\n",
           c.bytes, c.depth, pairs, median(rate[0], pairs), median(rate[1], pairs), middle,
           ratio[0], ratio[pairs - 1], median(cpu[0], pairs), median(cpu[1], pairs));
    backend->close(io);
    return 0;
}
