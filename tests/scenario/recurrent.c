/* SPDX-License-Identifier: Apache-2.0 */
/* Models with recurrent layers: the same text whatever is resident, in any chunks, with any
 * threads; when compute is killed between tokens, within one, and between the state's last byte and
 * its commit; when a prompt continues from a checkpoint of an earlier sequence. Memory of the
 * states is within what the ledger reserved. The long form runs all combinations. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "shm/segment/inherited_fds.h"
#include "shm/segment/segment.h"
#include "tests/harness/harness.h"
#include "tests/scenario/continued.h"

#define SYNTH_MS 60000
#define TOKENS   60
#define KEYS_MAX 20

#define DELTA_KEYS                                                                                 \
    "shared_inner=64", "rope_dims=8", "conv_taps=4", "delta_size=16", "delta_k_heads=2",           \
        "delta_v_heads=4", "delta_inner=64", "attention_step=2"

#define NGRAM_KEYS                                                                                 \
    "ngram_size=3", "ngram_heads=2", "ngram_taps=4", "ngram_width=16", "ngram_rows=1000"

static const struct shape {
    const char *keys[KEYS_MAX];
} shapes[] = {
    {{"arch=qwen35moe", DELTA_KEYS, NULL}},
    {{"arch=qwen3next", DELTA_KEYS, NULL}},
    {{"arch=lfm2moe", "dense_layers=1", "dense_inner=128", "conv_taps=3", "attention_step=2",
      NULL}},
    {{"arch=granitehybrid", "conv_taps=4", "delta_size=16", "delta_k_heads=2", "delta_v_heads=4",
      "delta_inner=128", "attention_step=2", "shared_inner=64", NULL}},
    {{"arch=nemotron_h_moe", "pattern=ME*E", "conv_taps=4", "delta_size=16", "delta_k_heads=2",
      "delta_v_heads=4", "delta_inner=128", "shared_inner=64", "expert_width=64", NULL}},
    {{"arch=kimi-linear", "dense_layers=1", "dense_inner=128", "conv_taps=4", "delta_size=16",
      "attention_step=2", "kv_heads=1", "kv_rank=32", "mla_key_size=24", "mla_value_size=16",
      "rope_dims=8", "shared_inner=64", NULL}},
    {{"arch=bailingmoe3", "dense_layers=1", "dense_inner=128", "conv_taps=4", "delta_size=16",
      "attention_step=2", "kv_heads=1", "kv_rank=32", "q_rank=32", "mla_key_size=24",
      "mla_value_size=16", "rope_dims=8", "decay_bound=-5", "shared_inner=64", NULL}},
    {{"arch=qwen4exp", DELTA_KEYS, "streams=4", "stream_rank=16", NGRAM_KEYS, NULL}},
    {{"arch=minimax-01", "attention_step=2", "rope_dims=16", "normed_scale=1.5", NULL}},
    {{"arch=jamba", "dense_inner=128", "conv_taps=4", "delta_size=8", "step_rank=16",
      "delta_inner=192", "attention_step=3", "experts_every=2", NULL}},
    {{"arch=kimi-k3", "layers=5",        "dense_layers=1",   "dense_inner=128",
      "conv_taps=4",  "delta_size=16",   "attention_step=2", "kv_heads=1",
      "q_rank=32",    "kv_rank=32",      "mla_key_size=24",  "mla_value_size=16",
      "rope_dims=8",  "shared_inner=64", "expert_width=32",  "decay_bound=-5",
      "bank_block=2", "cap_gate=4",      "cap_up=25",        NULL}},
    {{"arch=glm5-next", "dense_layers=1", "dense_inner=128", "conv_taps=4", "delta_size=16",
      "attention_step=2", "kv_heads=1", "kv_rank=32", "q_rank=32", "mla_key_size=24",
      "mla_value_size=16", "decay_bound=-5", "shared_inner=64", "expert_limits=1", "streams=4",
      "stream_steps=20", NULL}},
};

static char model[PATH_MAX];

static void make(const struct shape *s)
{
    continued_make(model, s->keys);
}

static struct engine *start(const char *const options[])
{
    struct engine *e = engine_new();
    const char *args[12] = {"-m", model, "--checkpoint-tokens=32"};
    for (size_t i = 0; options[i]; i++)
        args[3 + i] = options[i];
    engine_start(e, args);
    return e;
}

static void reference(unsigned prompt, struct text *out)
{
    struct engine *e =
        start((const char *const[]){"--resident-experts=100", "--threads=1", "--keep-kv=0", NULL});
    engine_generate(e, test_prompt(prompt), TOKENS, out);
    engine_stop(e);
}

/* ---- combinations ---- */

static void combination(const struct continued *c, const char *resident, const char *threads,
                        const char *chunk, bool kills)
{
    char what[128];
    struct engine *e = start((const char *const[]){resident, threads, chunk, NULL});
    snprintf(what, sizeof what, "%s %s %s%s", resident, threads, chunk, kills ? " kills" : "");
    continued_after(e, c, kills ? 15 : 0, what);
    engine_stop(e);
}

static void combinations(const struct shape *s)
{
    static const char *const resident[] = {"--resident-experts=100", "--resident-experts=50",
                                           "--resident-experts=25"};
    static const char *const threads[] = {"--threads=1", "--threads=2"};
    static const char *const chunk[] = {"--prefill-chunk=1", "--prefill-chunk=7",
                                        "--prefill-chunk=64"};
    struct text want;
    const struct continued c = {.prompt = 1, .tokens = TOKENS, .want = &want};
    unsigned done = 0, met = 0;
    make(s);
    reference(1, &want);
    for (unsigned i = 0; i < 36; i++) {
        if (!test_sample(EVERY_recurrent_combinations, &met))
            continue;
        combination(&c, resident[i % 3], threads[i / 3 % 2], chunk[i / 6 % 3], i / 18 > 0);
        done++;
    }
    test_note("%u combinations", done);
    text_free(&want);
}

static void qwen35moe(void)
{
    combinations(&shapes[0]);
}

static void qwen3next(void)
{
    combinations(&shapes[1]);
}

static void lfm2moe(void)
{
    combinations(&shapes[2]);
}

static void granitehybrid(void)
{
    combinations(&shapes[3]);
}

static void nemotron(void)
{
    combinations(&shapes[4]);
}

static void kimi_k3(void)
{
    combinations(&shapes[10]);
}

static void kimi_linear(void)
{
    combinations(&shapes[5]);
}

static void bailingmoe3(void)
{
    combinations(&shapes[6]);
}

static void jamba(void)
{
    combinations(&shapes[9]);
}

static void minimax_01(void)
{
    combinations(&shapes[8]);
}

static void qwen4exp(void)
{
    combinations(&shapes[7]);
}

static void glm5_next(void)
{
    combinations(&shapes[11]);
}

/* ---- kills at points of the code ---- */

/* In the first chunk, within tokens, before the commit of a state, and while a kept sequence
 * changes hands. */
static void killed_at_every_point(void)
{
    static const struct {
        const char *point;
        int passes;
    } points[] = {{"COMPUTE_PREFILL", 1},       {"COMPUTE_STATE_WRITTEN", 0},
                  {"COMPUTE_MID_TOKEN", 3},     {"COMPUTE_STATE_WRITTEN", 1},
                  {"COMPUTE_STATE_WRITTEN", 9}, {"COMPUTE_STATE_WRITTEN", 40},
                  {"COMPUTE_SLOT_CUT", 0},      {"COMPUTE_SLOT_TAKEN", 0},
                  {"COMPUTE_SLOT_LOGGED", 0},   {"COMPUTE_SLOT_KEPT", 0}};
    struct text want;
    const struct continued c = {.prompt = 1, .tokens = TOKENS, .want = &want};
    make(&shapes[0]);
    reference(1, &want);
    struct engine *e =
        start((const char *const[]){"--resident-experts=25", "--prefill-chunk=16", NULL});
    for (unsigned i = 0; i < ARRAY_LEN(points); i++)
        continued_at(e, &c, points[i].point, points[i].passes);
    CHECK(engine_counter(e, "compute", "sequences_reused") > 0, "nothing was reused");
    text_free(&want);
    engine_stop(e);
}

/* Compute's successor, which may be stopped before it is ready. */
static pid_t successor(struct engine *e, pid_t pid)
{
    uint64_t deadline = deadline_in(CONTINUED_MS);
    for (;;) {
        json_t *doc = engine_stats(e);
        pid_t now = (pid_t)lookup_u64(lookup_process(doc, "compute", 0), "pid");
        json_decref(doc);
        if (now > 0 && now != pid)
            return now;
        CHECK(deadline_tick(deadline), "compute has no successor");
    }
}

/* Each successor is killed, too: at the points in turn, of one sequence that continues from a
 * checkpoint (if any is kept) and whose beginning alone is kept. */
static void kill_in_turn(const char *keep, const char *const points[], bool reuses)
{
    struct text want, got;
    reference(1, &want);
    struct engine *e = start((const char *const[]){"--prefill-chunk=16", keep, NULL});
    engine_generate(e, test_prompt(1), TOKENS, &got);
    text_check_same(&want, &got, keep);
    text_free(&got);
    pid_t pid = engine_pid(e, "compute", 0, 0);
    json_decref(engine_control(e, "inject", json_pack("{s:s}", "point", points[0])));
    struct generation *g = generation_start(e, test_prompt(1), TOKENS);
    for (size_t i = 0; points[i]; i++) {
        uint64_t deadline = deadline_in(CONTINUED_MS);
        while (process_state(pid) != 'T')
            CHECK(deadline_tick(deadline), "%s: compute did not reach the point", points[i]);
        if (points[i + 1]) /* before a successor is there */
            json_decref(engine_control(e, "inject", json_pack("{s:s}", "point", points[i + 1])));
        CHECK(kill(pid, SIGKILL) == 0, "compute %d exited on its own", (int)pid);
        pid = successor(e, pid);
    }
    generation_finish(g, CONTINUED_MS, &got);
    text_check_same(&want, &got, keep);
    text_free(&got);
    engine_generate(e, test_prompt(1), TOKENS, &got);
    text_check_same(&want, &got, "afterwards");
    CHECK((lookup_u64(got.stats, "cached_tokens") > 0) == reuses, "%s: %llu tokens reused", keep,
          (unsigned long long)lookup_u64(got.stats, "cached_tokens"));
    text_free(&got);
    text_free(&want);
    engine_stop(e);
}

static void killed_in_turn(void)
{
    make(&shapes[0]);
    kill_in_turn("--keep-kv=57344", /* 64 rows and two states */
                 (const char *const[]){"COMPUTE_SLOT_CUT", "COMPUTE_SLOT_TAKEN",
                                       "COMPUTE_STATE_WRITTEN", "COMPUTE_SLOT_LOGGED", NULL},
                 true);
    kill_in_turn("--keep-kv=57344",
                 (const char *const[]){"COMPUTE_SLOT_LOGGED", "COMPUTE_SLOT_LOGGED",
                                       "COMPUTE_SLOT_KEPT", NULL},
                 true);
    kill_in_turn("--keep-kv=0",
                 (const char *const[]){"COMPUTE_STATE_WRITTEN", "COMPUTE_STATE_WRITTEN",
                                       "COMPUTE_MID_TOKEN", NULL},
                 false);
}

/* ---- checkpoints ---- */

static void a_second_turn(void)
{
    const struct continued_turns turns = {.start = start,
                                          .alone = (const char *const[]){"--keep-kv=0", NULL},
                                          .reusing =
                                              (const char *const[]){"--resident-experts=25", NULL},
                                          .rounds = 12,
                                          .reused_min = 32};
    make(&shapes[0]);
    continued_turns(&turns, &(const struct continued){.prompt = 1, .tokens = 40});
}

/* ---- memory ---- */

/* Blocks of the kv segment, as the kernel counts them. */
static uint64_t segment_blocks(struct engine *e)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)engine_pid(e, "compute", 0, 0),
             INHERITED_SEGMENTS + SEGMENT_KV);
    CHECK(stat(path, &st) == 0, "cannot read %s", path);
    return (uint64_t)st.st_blocks * 512;
}

/* States of 528 KiB: with few tokens, almost all of the segment. */
static void memory_is_counted(void)
{
    static const struct shape large = {{"arch=qwen35moe", "layers=3", "conv_taps=4",
                                        "delta_size=128", "delta_k_heads=1", "delta_v_heads=4",
                                        "delta_inner=512", "attention_step=3", "shared_inner=64",
                                        "rope_dims=8", NULL}};
    struct text got;
    make(&large);
    struct engine *e = start((const char *const[]){"--state-checkpoints=3", "--parallel=1", NULL});
    uint64_t reserved = continued_planned(e);
    uint64_t before = segment_blocks(e);
    engine_generate(e, test_prompt(2), 20, &got);
    uint64_t states = engine_counter(e, "compute", "state_bytes");
    uint64_t all = engine_counter(e, "compute", "kv_bytes"), after = segment_blocks(e);
    uint64_t one = align_up(2 * (3 * 768 + 4 * 128 * 128) * sizeof(float), PAGE_BYTES);
    /* spare memory has more checkpoints */
    CHECK(states >= 4 * one && states % one == 0,
          "%llu bytes of states, not 3 checkpoints and the end or more, of %llu",
          (unsigned long long)states, (unsigned long long)one);
    CHECK(all > states && all <= continued_most(e), "%llu bytes of %llu that there may be",
          (unsigned long long)all, (unsigned long long)continued_most(e));
    CHECK(after >= before + all && after < before + all + 64 * KIB,
          "the segment grew by %llu bytes, %llu are counted", (unsigned long long)(after - before),
          (unsigned long long)all);
    text_free(&got);
    engine_stop(e);
    e = start((const char *const[]){"--state-checkpoints=32", "--parallel=1", NULL});
    uint64_t more = continued_planned(e) - reserved;
    CHECK(more == 29 * one, "29 more checkpoints reserve %llu bytes", (unsigned long long)more);
    engine_stop(e);
}

static json_t *memory_of(const struct shape *s)
{
    struct command c;
    make(s);
    command_run(&c, NULL, SYNTH_MS,
                (const char *const[]){"run", "-m", model, "--print-memory", NULL});
    CHECK(c.status == 0, "run --print-memory: %.300s", c.err);
    json_t *doc = json_loads(c.out, JSON_ALLOW_NUL, NULL);
    CHECK(doc, "%.300s", c.out);
    command_free(&c);
    return doc;
}

/* Compute copies the convolution's matrices: six more taps of 4096 channels in 7 layers. */
static void convolutions_are_estimated(void)
{
#define WIDE_KEYS(taps)                                                                            \
    "layers=8", taps, "delta_size=64", "delta_k_heads=16", "delta_v_heads=32", "delta_inner=2048", \
        "attention_step=8", "shared_inner=64", "rope_dims=8", NULL
    static const struct shape few = {{"arch=qwen35moe", WIDE_KEYS("conv_taps=2")}},
                              many = {{"arch=qwen35moe", WIDE_KEYS("conv_taps=8")}};
    json_t *a = memory_of(&few), *b = memory_of(&many);
    uint64_t kv = lookup_u64(b, "kv_bytes") - lookup_u64(a, "kv_bytes");
    uint64_t more = lookup_u64(b, "fixed_bytes") - lookup_u64(a, "fixed_bytes");
    uint64_t copied = 7 * 6 * 4096 * sizeof(float);
    CHECK(more >= kv + copied, "%llu bytes more, %llu of them states, for %llu bytes of taps",
          (unsigned long long)more, (unsigned long long)kv, (unsigned long long)copied);
    json_decref(a);
    json_decref(b);
}

/* Without kept sequences there are no checkpoints to reserve. */
static void nothing_is_kept(void)
{
    uint64_t bytes[2];
    make(&shapes[0]);
    for (size_t i = 0; i < 2; i++) {
        struct engine *e =
            start((const char *const[]){"--state-checkpoints=3", i ? "--keep-kv=0" : NULL, NULL});
        bytes[i] = continued_planned(e);
        engine_stop(e);
    }
    uint64_t one = align_up(2 * (3 * 128 + 4 * 16 * 16) * sizeof(float), PAGE_BYTES);
    CHECK(bytes[0] - bytes[1] == 3 * one, "%llu and %llu bytes reserved, a state has %llu",
          (unsigned long long)bytes[0], (unsigned long long)bytes[1], (unsigned long long)one);
}

/* The first layer has no heads. */
static void inspected(void)
{
    static const struct shape none = {{"arch=lfm2moe", "dense_layers=1", "dense_inner=128",
                                       "conv_taps=3", "attention_step=99", NULL}};
    make(&shapes[0]);
    continued_inspect(model, "of keys and values, head size 32, in 2 of 4 layers\n");
    make(&none);
    continued_inspect(model, "in no layer\n");
    struct text got;
    struct engine *e = start((const char *const[]){"--prefill-chunk=16", NULL});
    engine_generate(e, test_prompt(1), 5, &got);
    text_free(&got);
    engine_stop(e);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(qwen35moe),
                                             ROW(qwen3next),
                                             ROW(lfm2moe),
                                             ROW(granitehybrid),
                                             ROW(nemotron),
                                             ROW(jamba),
                                             ROW(kimi_linear),
                                             ROW(kimi_k3),
                                             ROW(glm5_next),
                                             ROW(qwen4exp),
                                             ROW(bailingmoe3),
                                             ROW(minimax_01),
                                             ROW(killed_at_every_point),
                                             ROW(killed_in_turn),
                                             ROW(a_second_turn),
                                             ROW(memory_is_counted),
                                             ROW(nothing_is_kept),
                                             ROW(inspected),
                                             ROW(convolutions_are_estimated)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
