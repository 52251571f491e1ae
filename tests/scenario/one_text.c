/* SPDX-License-Identifier: Apache-2.0 */
/* Invariant 1: greedy text is byte-identical for any budget, threads, loaders, I/O size, back end
 * and eviction policy. Also on models of other tensor types: --type (harness.h). */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"

/* The short form has one prompt of a case, another one from case to case. */
static bool left_out(unsigned prompt, const char *const options[])
{
    unsigned sum = 0;
    for (size_t i = 0; options[i]; i++)
        for (const char *c = options[i]; *c; c++)
            sum += (unsigned char)*c;
    return !test_long() && prompt != sum % TEST_PROMPTS;
}

/* Compares the prompts on an engine with these options. */
static void same_text(const char *const options[], bool scarce)
{
    baseline(0);
    struct engine *e = engine_new();
    engine_start(e, options);
    for (unsigned i = 0; i < TEST_PROMPTS; i++)
        if (!left_out(i, options))
            baseline_compare(e, i, options[0]);
    uint64_t misses = engine_counter(e, "compute", "misses");
    uint64_t evictions = engine_counter(e, "cache", "evictions");
    json_t *doc = engine_stats(e);
    uint64_t accesses = lookup_counter(doc, "compute", "accesses");
    uint64_t parts =
        lookup_counter(doc, "compute", "hits") + lookup_counter(doc, "compute", "hits_inflight") +
        lookup_counter(doc, "compute", "misses") + lookup_counter(doc, "compute", "skipped");
    uint64_t restarts = lookup_restarts(doc);
    json_decref(doc);
    CHECK(accesses > 0 && accesses == parts,
          "%llu accesses, but hits + in flight + misses + skipped = %llu",
          (unsigned long long)accesses, (unsigned long long)parts);
    CHECK(restarts == 0, "%llu restarts", (unsigned long long)restarts);
    if (scarce)
        CHECK(misses > 0 && evictions > 0, "%llu misses, %llu evictions",
              (unsigned long long)misses, (unsigned long long)evictions);
    uint64_t submitted = engine_counter(e, "loader", "bytes_submitted");
    uint64_t published = engine_counter(e, "loader", "bytes_published");
    test_note("%s: misses %llu, evictions %llu, read %.1f MiB", options[0],
              (unsigned long long)misses, (unsigned long long)evictions,
              (double)submitted / (double)MIB);
    CHECK(submitted >= published, "more bytes published than submitted for reading");
    engine_stop(e);
}

#define CASE(name, scarce, ...)                                                                    \
    static void name(void)                                                                         \
    {                                                                                              \
        same_text((const char *const[]){__VA_ARGS__, NULL}, scarce);                               \
    }

CASE(experts_100, false, "--resident-experts=100", "--threads=2")
CASE(experts_50, true, "--resident-experts=50")
CASE(experts_25, true, "--resident-experts=25")
CASE(experts_18_75, true, "--resident-experts=18.75")
CASE(experts_12_5, true, "--resident-experts=12.5")
CASE(threads_1, true, "--threads=1", "--resident-experts=25")
CASE(threads_2, true, "--threads=2", "--resident-experts=25")
CASE(loaders_2, true, "--loaders=2", "--resident-experts=25")
CASE(prefill_chunk_1, true, "--prefill-chunk=1", "--resident-experts=50")
CASE(prefill_chunk_7, true, "--prefill-chunk=7", "--resident-experts=50")
CASE(prefill_chunk_64, true, "--prefill-chunk=64", "--resident-experts=25")
CASE(prefill_chunk_512, true, "--prefill-chunk=512", "--resident-experts=25")
CASE(backend_pread, true, "--backend=pread", "--resident-experts=25")
CASE(backend_io_uring, true, "--backend=io_uring", "--resident-experts=25")
CASE(eviction_lru, true, "--eviction=lru", "--resident-experts=25")
CASE(eviction_lfu, true, "--eviction=lfu", "--resident-experts=25")
CASE(eviction_fifo, true, "--eviction=fifo", "--resident-experts=25")
CASE(eviction_learned, true, "--eviction=learned", "--resident-experts=25")
CASE(eviction_random, true, "--eviction=random", "--resident-experts=25")
CASE(prediction_none, true, "--prediction=none", "--resident-experts=25")
CASE(order_index, true, "--policy=prefill_order=index", "--resident-experts=25")
CASE(page_cache, true, "--direct-io=off", "--resident-experts=25")
CASE(loaders_2_pread_tight, true, "--loaders=2", "--backend=pread", "--resident-experts=12.5",
     "--prefill-chunk=64", "--threads=2")

/* The same prompt cold, warm, and several times at once: the text is the same. */
static void queued_together(void)
{
    struct engine *e = engine_new();
    struct generation *g[6];
    baseline(0);
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    for (unsigned i = 0; i < ARRAY_LEN(g); i++)
        g[i] = generation_start(e, test_prompt(i % TEST_PROMPTS), baseline_tokens());
    for (unsigned i = 0; i < ARRAY_LEN(g); i++) {
        struct text got;
        generation_finish(g[i], 300000, &got);
        text_check_same(baseline(i % TEST_PROMPTS), &got, "queued together");
        text_free(&got);
    }
    engine_stop(e);
}

/* As in a container that rejects io_uring. For this process and all that it starts, so that no case
 * can follow. */
static void forbid_io_uring(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {ARRAY_LEN(program), program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        test_skip("seccomp: %s", strerror(errno));
}

/* The loader reads with pread, and logs it once; the text is the same. */
static void io_uring_rejected(void)
{
    baseline(0);
    forbid_io_uring();
    struct engine *e = engine_new();
    engine_start(e, (const char *const[]){"--resident-experts=25", NULL});
    baseline_compare(e, 0, "without io_uring");
    json_t *doc = engine_stats(e);
    CHECK(lookup_restarts(doc) == 0, "a process exited");
    json_decref(doc);
    char *log = engine_log(e), *line = strstr(log, "cannot set up io_uring");
    CHECK(line && !strstr(line + 1, "cannot set up io_uring"), "not logged once: %.600s", log);
    free(log);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        ROW(experts_100),
        ROW(experts_50),
        ROW(experts_25),
        ROW(experts_18_75),
        ROW(experts_12_5),
        ROW(threads_1),
        ROW(threads_2),
        ROW(loaders_2),
        ROW(prefill_chunk_1),
        ROW(prefill_chunk_7),
        ROW(prefill_chunk_64),
        ROW(prefill_chunk_512),
        ROW(backend_pread),
        ROW(backend_io_uring),
        ROW(eviction_lru),
        ROW(eviction_lfu),
        ROW(eviction_fifo),
        ROW(eviction_random),
        ROW(eviction_learned),
        ROW(prediction_none),
        ROW(order_index),
        ROW(page_cache),
        ROW(loaders_2_pread_tight),
        ROW(queued_together),
        ROW(io_uring_rejected), /* the last: see forbid_io_uring */
    };
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
