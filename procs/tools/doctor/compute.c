/* SPDX-License-Identifier: Apache-2.0 */
/* Throughput of the kernels on weights that are not in the CPU caches, as in decoding with
 * everything resident: matrices of an expert's shape, one activation row, a separate part per
 * thread. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/bulk.h"
#include "lib/kernels/kernels.h"
#include "lib/tensor/tensor_type.h"
#include "procs/tools/doctor/doctor.h"

#define WEIGHTS_BYTES (128 * MIB)
/* The best of several short runs counts: other load can only slow a run. */
#define RUNS        10
#define RUN_NS      (60 * NS_PER_MS)
#define THREADS_MAX 64u

struct worker {
    pthread_t thread;
    const struct kernel_ops *ops;
    struct kernel_matrix matrix; /* of the first one */
    uint64_t count;              /* consecutive matrices */
    const void *x;
    float *y;
    uint64_t deadline_ns;
    uint64_t bytes, ns; /* result */
};

static void *work(void *arg)
{
    struct worker *w = arg;
    uint64_t start_ns = clock_now_ns(), now = start_ns, bytes = w->matrix.row_bytes * w->matrix.n;
    while (now < w->deadline_ns) {
        for (uint64_t i = 0; i < w->count; i++) {
            struct kernel_matrix m = w->matrix;
            m.data = (const char *)m.data + i * bytes;
            w->ops->matmul(&m, 0, m.n, w->x, 0, 1, w->y, m.n);
        }
        w->bytes += w->count * bytes;
        now = clock_now_ns();
    }
    w->ns = now - start_ns;
    return NULL;
}

/* F32 for an unknown name. */
static enum tensor_type type_named(const char *name)
{
    for (uint32_t id = 0; id < TENSOR_TYPE_END; id++) {
        const struct tensor_type_info *t = tensor_type_info(id);
        if (t && t->computed && strcmp(t->name, name) == 0)
            return (enum tensor_type)id;
    }
    return TENSOR_F32;
}

static double run_workers(struct worker *workers, unsigned count)
{
    double rate = 0;
    unsigned started = 0;
    uint64_t deadline = clock_now_ns() + RUN_NS;
    for (; started < count; started++) {
        workers[started].deadline_ns = deadline;
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].ns > 0)
            rate += (double)workers[i].bytes * 1e9 / (double)workers[i].ns;
    }
    return rate;
}

static double with_weights(const struct kernel_ops *ops, struct kernel_matrix matrix, char *weights,
                           uint64_t bytes, unsigned threads)
{
    static struct worker workers[THREADS_MAX];
    uint64_t one = matrix.row_bytes * matrix.n, each = bytes / threads / one;
    size_t row = kernel_activation_bytes(matrix.type, matrix.k);
    float *x = bulk_buffer(matrix.k * sizeof *x),
          *y = bulk_buffer((uint64_t)threads * matrix.n * sizeof *y);
    char *prepared = bulk_buffer(row);
    double rate = 0;
    if (x && y && prepared && each > 0) {
        for (uint32_t i = 0; i < matrix.k; i++)
            x[i] = 0.5f;
        ops->activation(matrix.type, x, matrix.k, prepared);
        for (unsigned t = 0; t < threads; t++) {
            workers[t] = (struct worker){.ops = ops,
                                         .matrix = matrix,
                                         .count = each,
                                         .x = prepared,
                                         .y = y + (uint64_t)t * matrix.n};
            workers[t].matrix.data = weights + t * each * one;
        }
        for (int run = 0; run < RUNS; run++) {
            for (unsigned t = 0; t < threads; t++)
                workers[t].bytes = workers[t].ns = 0;
            double once = run_workers(workers, threads);
            rate = once > rate ? once : rate;
        }
    }
    free(x);
    free(y);
    free(prepared);
    return rate;
}

double compute_rate(uint32_t hidden, uint32_t inner, const char *type, uint64_t model_bytes)
{
    const struct kernel_ops *ops = kernel_ops_select(NULL);
    struct kernel_matrix matrix = {.k = hidden, .n = inner, .type = type_named(type)};
    unsigned threads = host_cpus();
    threads = threads < THREADS_MAX ? threads : THREADS_MAX;
    if (hidden == 0 || hidden > KERNEL_K_MAX || inner == 0 ||
        !tensor_type_row_bytes(matrix.type, hidden, &matrix.row_bytes))
        return 0;
    /* A model that fits into the CPU caches is measured with its own size. */
    uint64_t bytes = model_bytes < WEIGHTS_BYTES ? model_bytes : WEIGHTS_BYTES;
    uint64_t min = threads * matrix.row_bytes * matrix.n;
    bytes = bytes > min ? bytes : min;
    char *weights = bulk_buffer(bytes);
    if (!weights)
        return 0;
    memset(weights, 0, bytes); /* allocates the pages; the time does not depend on the values */
    double rate = with_weights(ops, matrix, weights, bytes, threads);
    free(weights);
    return rate;
}
