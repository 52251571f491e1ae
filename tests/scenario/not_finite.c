/* SPDX-License-Identifier: Apache-2.0 */
/* One bad number anywhere in the model's file (a NaN or an infinity in a norm, in the scale of a
 * block of weights): an error that names the layer, over HTTP, of generate and of eval; never a
 * text. The engine stays, and answers the next request. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/completions.h"
#include "tests/scenario/continued.h"
#include "tests/scenario/spoiled.h"

static const struct bad {
    const char *tensor, *where;
    bool infinite;
} bads[] = {
    {"blk.1.attn_norm.weight", "layer 1", false},
    {"blk.1.attn_norm.weight", "layer 1", true},
    {"blk.0.attn_q_norm.weight", "layer 0", false},
    {"blk.2.ffn_norm.weight", "layer 2", false},
    {"blk.1.attn_q.weight", "layer 1", false},
    {"blk.1.attn_k.weight", "layer 1", true},
    {"blk.1.attn_v.weight", "layer 1", false},
    {"blk.0.attn_output.weight", "layer 0", false},
    {"blk.2.ffn_gate_inp.weight", "layer 2", false},
    {"blk.2.ffn_gate_exps.weight", "layer 2", false},
    {"blk.2.ffn_up_exps.weight", "layer 2", true},
    {"blk.3.ffn_down_exps.weight", "layer 3", false},
    {"token_embd.weight", "the embeddings", false},
    {"output_norm.weight", "the output", false},
    {"output_norm.weight", "the output", true},
};

static void check_text(const char *text, const struct bad *bad, const char *who)
{
    CHECK(strstr(text, bad->where) && strstr(text, "not finite"), "%s, %s: %.300s", bad->tensor,
          who, text);
}

static void check_engine(const char *path, const struct bad *bad)
{
    unsigned port;
    struct http h;
    struct engine *e = gateway_start(
        &port, (const char *const[]){"-m", path, "--http=0", "--resident-experts=50", NULL});
    for (int again = 0; again < 2; again++) { /* the engine computes the next request */
        completion_call(&h, port, test_prompt(0), 8, "", 500);
        check_text(h.body, bad, "HTTP");
        CHECK(strstr(h.body, "\"not_finite\""), "%.300s", h.body);
        http_close(&h);
    }
    CHECK(engine_restarts(e, "compute", 0) == 0, "compute was restarted");
    engine_stop(e);
}

static void check_command(const struct bad *bad, const char *const argv[])
{
    struct command c;
    command_run(&c, NULL, END_MS, argv);
    CHECK(c.status == 1, "%s, %s: status %d: %.300s", bad->tensor, argv[0], c.status, c.out);
    check_text(c.err, bad, argv[0]);
    command_free(&c);
}

static void anywhere(void)
{
    char path[PATH_MAX], text[PATH_MAX];
    if (!test_demo())
        test_skip("the tensors are those of the demo model");
    FILE *f = fopen(path_in_dir(text, "text"), "w");
    CHECK(f, "%s: %s", text, strerror(errno));
    for (int i = 0; i < 64; i++)
        fprintf(f, "It was a dark night, and the rain fell in the streets. ");
    fclose(f);
    unsigned met = 0;
    for (size_t i = 0; i < ARRAY_LEN(bads); i++) {
        spoiled_model(path, test_model(), bads[i].tensor, bads[i].infinite);
        check_engine(path, &bads[i]);
        check_command(&bads[i], (const char *const[]){"eval", "-m", path, "--text", text,
                                                      "--ctx-size=64", "--max-windows=2", NULL});
        if (test_sample(EVERY_not_finite_generate, &met))
            check_command(&bads[i], (const char *const[]){"generate", "-m", path, "-p",
                                                          "It was a dark night", "-n", "4", NULL});
    }
}

/* Tensors whose values meet a clamp, a sigmoid or blocks of integers before the end of the
 * layer. */
static const struct {
    const char *keys[16];
    struct bad bad;
} hidden[] = {
    {{"arch=gpt-oss", "layers=3", "window=64", NULL}, {"blk.1.ffn_up_exps.bias", "layer 1", false}},
    {{"arch=gpt-oss", "layers=3", "window=64", NULL},
     {"blk.1.ffn_gate_exps.bias", "layer 1", true}},
    {{"arch=dbrx", "layers=2", "clamp_qkv=8", NULL}, {"blk.0.attn_qkv.weight", "layer 0", true}},
    {{"arch=qwen35moe", "layers=2", "shared_inner=64", "rope_dims=8", "conv_taps=4",
      "delta_size=16", "delta_k_heads=2", "delta_v_heads=4", "delta_inner=64", "attention_step=2",
      NULL},
     {"blk.0.ssm_dt.bias", "layer 0", true}},
};

static void hidden_by_an_operation(void)
{
    char made[PATH_MAX], path[PATH_MAX];
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
        continued_make(made, hidden[i].keys);
        spoiled_model(path, made, hidden[i].bad.tensor, hidden[i].bad.infinite);
        check_engine(path, &hidden[i].bad);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(anywhere), ROW(hidden_by_an_operation)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
