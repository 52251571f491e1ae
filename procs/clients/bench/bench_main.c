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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/inspected/tokenizer.h"
#include "lib/model/index/model_index.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/synthetic/token_stream.h"
#include "lib/tensor/kv_type.h"
#include "procs/clients/bench/bench.h"
#include "procs/clients/common/options.h"

struct options {
    const char *compare[BENCH_COMPARISONS_MAX];
    uint32_t compare_count;
    enum report form;
    bool ids; /* the text file is a list of token ids */
};

_Static_assert(TOKEN_GROUP == 64, "the help states it");

#define AS_TEXT(value)    #value
#define VALUE_TEXT(macro) AS_TEXT(macro)

/* What the options are for. */
struct measurement {
    struct bench bench;
    struct options options;
};

static int take_output(void *program, const char *value, struct error *error)
{
    struct measurement *m = program;
    static const char *const formats[] = {"md", "csv", "json"};
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(value, formats[i]) == 0) {
            m->options.form = (enum report)i;
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT, "--output: '%.80s' is not one of md|csv|json", value);
}

static int take_stay(void *program, const char *value, struct error *error)
{
    struct measurement *m = program;
    char *end;
    m->bench.stay = strtod(value, &end);
    if (end == value || *end || !(m->bench.stay >= 0 && m->bench.stay <= 1))
        return error_set(error, ERR_BAD_INPUT, "--group-stay: '%.40s' is not a number from 0 to 1",
                         value);
    return 0;
}

static int take_compare(void *program, const char *value, struct error *error)
{
    struct measurement *m = program;
    struct options *o = &m->options;
    if (o->compare_count == BENCH_COMPARISONS_MAX)
        return error_set(error, ERR_BAD_INPUT, "more than %u comparisons", BENCH_COMPARISONS_MAX);
    o->compare[o->compare_count++] = value;
    return 0;
}

static int take_depths(void *program, const char *value, struct error *error)
{
    struct measurement *m = program;
    return depths_parse(&m->bench, value, error);
}

/* ids: the file has token ids. */
static int take_text(void *program, int ids, const char *value, struct error *error)
{
    struct measurement *m = program;
    (void)error;
    m->bench.text_path = value;
    m->options.ids = ids;
    return 0;
}

static int take_grammar(void *program, int kind, const char *value, struct error *error)
{
    struct measurement *m = program;
    return option_grammar((enum grammar_kind)kind, value, &m->bench.grammar, error);
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct measurement, bench.model), "the model"},
    {'p', "prompt", "N", OPTION_NUMBER(struct measurement, bench.prompt, 0, BENCH_TOKENS_MAX),
     "tokens of the prefill test, 0: none (default 512)"},
    {'n', "tokens", "N", OPTION_NUMBER(struct measurement, bench.tokens, 0, BENCH_TOKENS_MAX),
     "steps of the decode test, 0: none (default 128)"},
    {'d', "depth", "LIST", OPTION_CALL(take_depths),
     "tokens in the context before each test (default 0): both "
     "tests run once per depth"},
    {'r', "repetitions", "N",
     OPTION_NUMBER(struct measurement, bench.repetitions, 1, BENCH_REPETITIONS_MAX),
     "runs of each variant (default 5)"},
    {0, "budget", "LIST", OPTION_ELSEWHERE,
     "budgets of the engine, separated by commas: 4GiB,8GiB"},
    {0, "resident-experts", "LIST", OPTION_ELSEWHERE,
     "maximum shares of the experts that are resident: 50,100"},
    {0, "preset", "LIST", OPTION_ELSEWHERE, "presets (sluice sim --help lists them)"},
    {0, "throttle", "LIST", OPTION_ELSEWHERE, "bandwidth limits per loader in bytes per second"},
    {0, "threads", "LIST", OPTION_ELSEWHERE, "numbers of compute threads"},
    {0, "parallel", "LIST", OPTION_ELSEWHERE,
     "sequences that decode together: 1,2,4 (default 1); a table "
     "tells what they share"},
    {0, "vary", "NAME=V1,V2,...", OPTION_ELSEWHERE,
     "values of any other parameter of the engine, or grammar=on,off; "
     "repeatable"},
    {0, "variant", "NAME=V;NAME=V", OPTION_ELSEWHERE,
     "a variant with these parameters; label=TEXT names it; "
     "repeatable, combined with the lists"},
    {0, "warmup", "N", OPTION_NUMBER(struct measurement, bench.warmup, 0, 1000),
     "warm-up rounds before each measurement (default 1)"},
    {0, "warmup-tokens", "N",
     OPTION_NUMBER(struct measurement, bench.warmup_tokens, 1, BENCH_TOKENS_MAX),
     "steps of the decode test in a warm-up round (default: -n)"},
    {0, "interleave", "N",
     OPTION_NUMBER(struct measurement, bench.slice_tokens, 1, BENCH_TOKENS_MAX),
     "decode all variants of a repetition in alternating slices "
     "of N tokens with the other engines stopped, so that changes "
     "of the machine's speed affect all variants alike"},
    {0, "cold", NULL, OPTION_FLAG(struct measurement, bench.cold),
     "drop the file from the page cache before each engine start"},
    {0, "text", "FILE", OPTION_NTH(take_text, false),
     "take the tokens from a text (default: synthetic tokens)"},
    {0, "ids", "FILE", OPTION_NTH(take_text, true), "take the tokens from a file of token ids"},
    {0, "json-schema", "FILE", OPTION_NTH(take_grammar, GRAMMAR_JSON_SCHEMA),
     "the decode test samples JSON that fits this schema, which must "
     "leave room for -n tokens (docs/grammar.md)"},
    {0, "grammar", "FILE", OPTION_NTH(take_grammar, GRAMMAR_GBNF),
     "the decode test samples by this grammar in GBNF"},
    {0, "seed", "N", OPTION_NUMBER(struct measurement, bench.seed, 0, INT64_MAX),
     "of synthetic tokens (default 1)"},
    {0, "group-stay", "P", OPTION_CALL(take_stay),
     "of synthetic tokens: probability that the next token is of "
     "the same group of 64 (default " VALUE_TEXT(TOKEN_STREAM_STAY) ")"},
    {0, "compare", "A,B", OPTION_CALL(take_compare),
     "ratio of the medians of two variants, by number; repeatable"},
    {'o', "output", "md|csv|json", OPTION_CALL(take_output), "(default md)"},
    {'v', "verbose", NULL, OPTION_FLAG(struct measurement, bench.verbose),
     "show the engines' logs"},
};

static const struct option_table options = {
    .command = "bench",
    .before = "usage: sluice bench -m FILE [-p 512] [-n 128] [-d 0] [-r 5] [options]\n"
              "\n"
              "Measures prefill and decode. Every combination of listed values is a variant;\n"
              "each repetition runs every variant once, each in a private engine, on the same\n"
              "tokens.\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 29,
    .groups = {{"Other parameters of the engines:", params_options}},
};

/* Chooses a context for the longest test, unless one was given. Sequences that decode together
 * share the memory of one context, which is the same in every variant, and each has whole tiles. */
static void choose_context(struct bench *b)
{
    int64_t decoded = b->tokens > b->warmup_tokens ? b->tokens : b->warmup_tokens;
    int64_t one = decoded + tests_deepest(b) + 16;
    int64_t together = b->sequences_max > 1 ? (int64_t)align_up((uint64_t)one, KV_TILE) : one;
    together *= b->sequences_max;
    int64_t alone = b->prompt + tests_deepest(b) + 16;
    for (uint32_t i = 0; i < b->variant_count; i++)
        if (b->variants[i].params.ctx_size == 0)
            b->variants[i].params.ctx_size = (uint64_t)(alone > together ? alone : together);
}

static int check_parallel(const struct bench *b, struct error *error)
{
    for (uint32_t i = 0; i < b->variant_count; i++)
        if (b->variants[i].params.parallel > 1 && b->variants[i].params.deterministic)
            return error_set(error, ERR_BAD_INPUT, "--parallel: --deterministic runs one sequence");
    if (b->sequences_max > 1 && b->slice_tokens > 0)
        return error_set(error, ERR_BAD_INPUT, "--interleave takes no --parallel above 1");
    return 0;
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

static int parse(struct measurement *m, int argc, char **argv, struct error *error)
{
    struct bench *b = &m->bench;
    const struct options *o = &m->options;
    struct params params;
    struct varied varied = {.count = 0};
    params_defaults(&params);
    params.warm_start = false; /* runs do not depend on earlier ones */
    params.parallel = 1;
    if (varied_take_args(&varied, &argc, argv, error) != 0 ||
        params_take_args(&params, &argc, argv, error) != 0 ||
        options_read(&options, m, argc, argv, error) != 0)
        return -1;
    if (option_model_or_server(&b->model, argc, argv, "", error) != 0)
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
    if (variants_make(b, &varied, &params, error) != 0 || check_parallel(b, error) != 0)
        return -1;
    choose_context(b);
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
    const char *what = b->cold                   ? "--cold is of a file"
                       : b->text_path && !o->ids ? "--text reads the tokenizer of a file"
                                                 : NULL;
    if (what && session_need_file(b->model, what, error) != 0)
        return -1;
    if (!session_on_server(b->model) && access(b->model, R_OK) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "cannot read %.200s", b->model);
    if (read_text(b, o->ids, error) != 0 || measure_all(b, error) != 0)
        return -1;
    return report_print(b, o->form) == 0
               ? 0
               : error_set(error, ERR_FAILED, "cannot write to standard output");
}

int main(int argc, char **argv)
{
    struct measurement m = {.bench = {.prompt = 512,
                                      .tokens = 128,
                                      .depth_count = 1,
                                      .repetitions = 5,
                                      .warmup = 1,
                                      .warmup_tokens = -1,
                                      .seed = 1,
                                      .stay = TOKEN_STREAM_STAY},
                            .options = {.form = REPORT_MD}};
    struct bench *b = &m.bench;
    struct error error;
    session_signals();
    int status = parse(&m, argc, argv, &error) == 0 && run(b, &m.options, &error) == 0
                     ? 0
                     : report("bench", &error);
    json_decref(b->snapshot);
    free(b->text_ids);
    option_grammar_free(&b->grammar);
    variants_free(b);
    return status;
}
