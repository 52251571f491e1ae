/* SPDX-License-Identifier: Apache-2.0 */
/* sluice bench: speed of the engine on one model, in one or more variants that differ in
 * parameters.
 *
 * Starts a private engine for each variant and repetition, feeds all of them the same forced tokens
 * (so that a variant's results cannot change its routing), and reads the statistics of the
 * sequences. Results go to stdout, progress to stderr. Maps no segment; when this process exits,
 * its engines exit.
 *
 * Trust: the engine's replies are checked by the stubs in ipc/; arguments are the user's. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option_error.h"
#include "lib/base/assert.h"
#include "lib/inspected/tokenizer.h"
#include "lib/model/index/model_index.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "procs/clients/bench/bench.h"
#include "procs/clients/common/options.h"
#include "procs/clients/common/token_stream.h"

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: sluice bench -m FILE [-p 512] [-n 128] [-d 0] [-r 5] [options]\n"
        "\n"
        "Measures prefill and decode. Every combination of listed values is a variant; each\n"
        "repetition runs every variant once, each in a private engine, on the same tokens.\n"
        "\n"
        "  -m, --model FILE           the model\n"
        "  -p, --prompt N             tokens of the prefill test, 0: none (default 512)\n"
        "  -n, --tokens N             steps of the decode test, 0: none (default 128)\n"
        "  -d, --depth LIST           tokens in the context before each test (default 0): both\n"
        "                             tests run once per depth\n"
        "  -r, --repetitions N        (default 5)\n"
        "      --budget LIST, --resident-experts LIST, --preset LIST, --throttle LIST,\n"
        "      --threads LIST         parameters of the engine, values separated by commas\n"
        "      --vary NAME=V1,V2,...  the same for any other parameter; repeatable\n"
        "      --variant NAME=V;NAME=V  a variant with these parameters; label=TEXT names it;\n"
        "                             repeatable, combined with the lists\n"
        "      --warmup N             warm-up rounds before each measurement (default 1)\n"
        "      --warmup-tokens N      steps of the decode test in a warm-up round (default: -n)\n"
        "      --interleave N         decode all variants of a repetition in alternating slices\n"
        "                             of N tokens with the other engines stopped, so that changes\n"
        "                             of the machine's speed affect all variants alike\n"
        "      --cold                 drop the file from the page cache before each engine start\n"
        "      --text FILE            take the tokens from a text (default: synthetic tokens)\n"
        "      --ids FILE             take the tokens from a file of token ids\n"
        "      --seed N, --group-stay P  of synthetic tokens: P is the probability that the next\n"
        "                             token is of the same group of %u (default 1, %g)\n"
        "      --compare A,B          ratio of the medians of two variants, by number; repeatable\n"
        "  -o, --output md|csv|json   (default md)\n"
        "  -v, --verbose              show the engines' logs\n"
        "\nOther parameters of the engines:\n",
        TOKEN_GROUP, TOKEN_STREAM_STAY);
    params_help(out);
}

struct options {
    const char *compare[BENCH_COMPARISONS_MAX];
    uint32_t compare_count;
    enum report form;
    bool ids; /* the text file is a list of token ids */
};

static int set_output(struct options *o, const char *format, struct error *error)
{
    static const char *const formats[] = {"md", "csv", "json"};
    for (size_t i = 0; i < 3; i++)
        if (strcmp(format, formats[i]) == 0) {
            o->form = (enum report)i;
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT, "--output: '%.80s' is not one of md|csv|json", format);
}

static int set_stay(struct bench *b, const char *text, struct error *error)
{
    char *end;
    b->stay = strtod(text, &end);
    if (end == text || *end || !(b->stay >= 0 && b->stay <= 1))
        return error_set(error, ERR_BAD_INPUT, "--group-stay: '%.40s' is not a number from 0 to 1",
                         text);
    return 0;
}

static int add_compare(struct options *o, const char *text, struct error *error)
{
    if (o->compare_count == BENCH_COMPARISONS_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %u comparisons", BENCH_COMPARISONS_MAX);
    o->compare[o->compare_count++] = text;
    return 0;
}

enum {
    OPT_WARMUP = 256,
    OPT_WARMUP_TOKENS,
    OPT_INTERLEAVE,
    OPT_COLD,
    OPT_TEXT,
    OPT_IDS,
    OPT_SEED,
    OPT_STAY,
    OPT_COMPARE
};

static const struct option options[] = {
    {"model", 1, NULL, 'm'},
    {"prompt", 1, NULL, 'p'},
    {"tokens", 1, NULL, 'n'},
    {"depth", 1, NULL, 'd'},
    {"repetitions", 1, NULL, 'r'},
    {"output", 1, NULL, 'o'},
    {"verbose", 0, NULL, 'v'},
    {"help", 0, NULL, 'h'},
    {"warmup", 1, NULL, OPT_WARMUP},
    {"warmup-tokens", 1, NULL, OPT_WARMUP_TOKENS},
    {"interleave", 1, NULL, OPT_INTERLEAVE},
    {"cold", 0, NULL, OPT_COLD},
    {"text", 1, NULL, OPT_TEXT},
    {"ids", 1, NULL, OPT_IDS},
    {"seed", 1, NULL, OPT_SEED},
    {"group-stay", 1, NULL, OPT_STAY},
    {"compare", 1, NULL, OPT_COMPARE},
    {NULL, 0, NULL, 0},
};

static int one_option(struct bench *b, struct options *o, int option, const char *value,
                      struct error *error)
{
    switch (option) {
    case 'm': b->model = value; return 0;
    case 'p': return option_i64("-p", value, 0, BENCH_TOKENS_MAX, &b->prompt, error);
    case 'n': return option_i64("-n", value, 0, BENCH_TOKENS_MAX, &b->tokens, error);
    case 'd': return depths_parse(b, value, error);
    case 'r': return option_i64("-r", value, 1, BENCH_REPETITIONS_MAX, &b->repetitions, error);
    case 'o': return set_output(o, value, error);
    case 'v': b->verbose = true; return 0;
    case OPT_WARMUP: return option_i64("--warmup", value, 0, 1000, &b->warmup, error);
    case OPT_WARMUP_TOKENS:
        return option_i64("--warmup-tokens", value, 1, BENCH_TOKENS_MAX, &b->warmup_tokens, error);
    case OPT_INTERLEAVE:
        return option_i64("--interleave", value, 1, BENCH_TOKENS_MAX, &b->slice_tokens, error);
    case OPT_COLD: b->cold = true; return 0;
    case OPT_TEXT:
    case OPT_IDS:
        b->text_path = value;
        o->ids = option == OPT_IDS;
        return 0;
    case OPT_SEED: return option_i64("--seed", value, 0, INT64_MAX, &b->seed, error);
    case OPT_STAY: return set_stay(b, value, error);
    case OPT_COMPARE: return add_compare(o, value, error);
    case 'h': usage(stdout); exit(fflush(stdout) == 0 ? 0 : 1);
    default: sl_panic("option %d of the table is not handled", option);
    }
}

/* Chooses a context for the longest test, unless one was given. */
static void choose_context(const struct bench *b, struct params *params)
{
    int64_t max = b->prompt > b->tokens ? b->prompt : b->tokens;
    max += tests_deepest(b);
    max = max > b->warmup_tokens ? max : b->warmup_tokens;
    if (params->ctx_size == 0)
        params->ctx_size = (uint64_t)(max + 16);
}

/* What can be known without an engine. */
static int check_depths(const struct bench *b, const struct params *params, struct error *error)
{
    int64_t deepest = tests_deepest(b), longest = b->prompt > b->tokens ? b->prompt : b->tokens;
    if (deepest + longest > BENCH_TOKENS_MAX)
        return error_set(error, ERR_BAD_INPUT,
                         "-d: %lld tokens of context and %lld of a test are more than %d",
                         (long long)deepest, (long long)longest, BENCH_TOKENS_MAX);
    if (deepest > 0 && b->prompt > 0 && (params->deterministic || params->keep_kv == 0))
        return error_set(error, ERR_BAD_INPUT,
                         "-d: prefill after a context requires that the engine keeps keys and "
                         "values, but --keep-kv is 0 or --deterministic is on; use -p 0");
    return 0;
}

static int parse(struct bench *b, struct options *o, int argc, char **argv, struct error *error)
{
    struct params params;
    struct varied varied = {.count = 0};
    params_defaults(&params);
    params.warm_start = false; /* runs do not depend on earlier ones */
    if (varied_take_args(&varied, &argc, argv, error) != 0 ||
        params_take_args(&params, &argc, argv, error) != 0)
        return -1;
    int option;
    while ((option = getopt_long(argc, argv, ":m:p:n:d:r:o:vh", options, NULL)) != -1)
        if ((option == '?' || option == ':'
                 ? option_error("bench", option, argv, options, true, NULL, error)
                 : one_option(b, o, option, optarg, error)) != 0)
            return -1;
    if (option_model(&b->model, argc, argv, "", error) != 0)
        return -1;
    if (!b->model)
        return error_set(error, ERR_BAD_INPUT, "no model given; use -m FILE");
    if (b->prompt == 0 && b->tokens == 0)
        return error_set(error, ERR_BAD_INPUT, "nothing to measure: -p and -n are both 0");
    if (b->slice_tokens > 0 && b->tokens == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "--interleave requires the decode test, but -n is 0");
    if (check_depths(b, &params, error) != 0)
        return -1;
    tests_make(b);
    choose_context(b, &params);
    if (variants_make(b, &varied, &params, error) != 0)
        return -1;
    for (uint32_t i = 0; i < o->compare_count; i++)
        if (comparison_add(b, o->compare[i], error) != 0)
            return -1;
    return 0;
}

static int tokenise(struct bench *b, const char *text, size_t bytes, struct error *error)
{
    struct inspected_tokenizer t;
    if (inspected_tokenizer_open(&t, b->model, error) != 0)
        return -1;
    int rc = tokenizer_encode(t.tokenizer, text, bytes, NULL, &b->text_ids, &b->text_count, error);
    inspected_tokenizer_close(&t);
    return rc;
}

static int parse_ids(struct bench *b, const char *text, struct error *error)
{
    b->text_ids = malloc((strlen(text) / 2 + 1) * sizeof *b->text_ids);
    if (!b->text_ids)
        return error_set(error, ERR_NO_MEMORY, "out of memory (token ids)");
    for (const char *at = text + strspn(text, " \n\t"); *at; at += strspn(at, " \n\t")) {
        char *end;
        unsigned long long id = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || id > INT32_MAX || (*end && !strchr(" \n\t", *end)))
            return error_set(error, ERR_BAD_INPUT, "%.200s: '%.20s' is not a token id",
                             b->text_path, at);
        b->text_ids[b->text_count++] = (uint32_t)id;
        at = end;
    }
    return 0;
}

static int read_text(struct bench *b, bool ids, struct error *error)
{
    char *text = NULL;
    size_t bytes;
    if (!b->text_path)
        return 0;
    int rc = option_file(b->text_path, TOKENIZER_TEXT_MAX, &text, &bytes, error);
    if (rc == 0)
        rc = ids ? parse_ids(b, text, error) : tokenise(b, text, bytes, error);
    free(text);
    return rc == 0 ? stream_check(b, error) : -1;
}

static int run(struct bench *b, const struct options *o, struct error *error)
{
    if (access(b->model, R_OK) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot read %.200s", b->model);
    if (read_text(b, o->ids, error) != 0 || measure_all(b, error) != 0)
        return -1;
    return report_print(b, o->form) == 0
               ? 0
               : error_set(error, ERR_FAILED, "cannot write to standard output");
}

int main(int argc, char **argv)
{
    struct bench b = {.prompt = 512,
                      .tokens = 128,
                      .depth_count = 1,
                      .repetitions = 5,
                      .warmup = 1,
                      .warmup_tokens = -1,
                      .seed = 1,
                      .stay = TOKEN_STREAM_STAY};
    struct options o = {.form = REPORT_MD};
    struct error error;
    session_signals();
    int status = parse(&b, &o, argc, argv, &error) == 0 && run(&b, &o, &error) == 0
                     ? 0
                     : report("bench", &error);
    json_decref(b.snapshot);
    free(b.text_ids);
    variants_free(&b);
    return status;
}
