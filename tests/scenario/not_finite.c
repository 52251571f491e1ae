/* SPDX-License-Identifier: Apache-2.0 */
/* One bad number anywhere in the model's file (a NaN or an infinity in a norm, in the scale of a block of
 * weights): an error that names the layer, over HTTP, of generate and of eval; never a text. The engine
 * stays, and answers the next request. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/model/gguf/gguf.h"
#include "lib/tensor/tensor_type.h"
#include "tests/scenario/baseline.h"
#include "tests/scenario/completions.h"

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

static ssize_t read_mapped(void *file, void *buf, size_t n, uint64_t offset)
{
    memcpy(buf, (const char *)file + offset, n);
    return (ssize_t)n;
}

/* The first number of the tensor, of each of its experts, or of each row of the embeddings: the first
 * float, or the scale of the first block. */
static void spoil(char *file, const struct model_tensor *t, bool infinite)
{
    static const uint32_t nan = 0x7fc00000, inf = 0x7f800000;
    static const uint16_t half_nan = 0x7e00, half_inf = 0x7c00;
    uint64_t each = t->dims == 3 ? t->bytes / t->ne[2] : t->dims == 2 ? t->row_bytes : t->bytes;
    bool all = t->dims == 3 || strcmp(t->name, "token_embd.weight") == 0;
    for (uint64_t at = 0; at < t->bytes; at += all ? each : t->bytes) {
        char *to = file + t->file_offset + at;
        if (t->type == TENSOR_F32)
            memcpy(to, infinite ? &inf : &nan, sizeof nan);
        else
            memcpy(to, infinite ? &half_inf : &half_nan, sizeof half_nan);
    }
}

static void spoiled_model(char path[PATH_MAX], const struct bad *bad)
{
    struct error error;
    struct stat st;
    struct gguf g;
    struct command c;
    snprintf(path, PATH_MAX, "%s/spoiled.gguf", test_dir());
    command_run(&c, NULL, END_MS, (const char *const[]){"/bin/cp", test_model(), path, NULL});
    CHECK(c.status == 0, "%.300s", c.err);
    command_free(&c);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0, "%s: %s", path, strerror(errno));
    char *file = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    CHECK(file != MAP_FAILED, "%s: %s", path, strerror(errno));
    struct gguf_source source = {.read = read_mapped, .arg = file, .bytes = (uint64_t)st.st_size};
    CHECK(gguf_open(&g, &source, &error) == 0, "%s", error.text);
    uint32_t found = 0;
    for (uint32_t i = 0; i < g.tensor_count; i++)
        if (strcmp(g.tensors[i].name, bad->tensor) == 0) {
            spoil(file, &g.tensors[i], bad->infinite);
            found++;
        }
    CHECK(found == 1, "no tensor %s", bad->tensor);
    gguf_close(&g);
    munmap(file, (size_t)st.st_size);
}

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
    for (size_t i = 0; i < ARRAY_LEN(bads); i++) {
        spoiled_model(path, &bads[i]);
        check_engine(path, &bads[i]);
        check_command(&bads[i], (const char *const[]){"eval", "-m", path, "--text", text,
                                                      "--ctx-size=64", "--max-windows=2", NULL});
        if (i % 4 == 0 || test_long())
            check_command(&bads[i], (const char *const[]){"generate", "-m", path, "-p",
                                                          "It was a dark night", "-n", "4", NULL});
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {ROW(anywhere)};
    return test_main(argc, argv, cases, ARRAY_LEN(cases));
}
