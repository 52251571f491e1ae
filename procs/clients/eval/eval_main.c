/* SPDX-License-Identifier: Apache-2.0 */
/* sluice eval: perplexity of a text, by the usual protocol.
 *
 * The whole text is tokenised in this process, from the model file, as one text without control
 * tokens. It is cut into consecutive windows without overlap; the last, incomplete one is dropped.
 * Every window is scored separately, tokens 1..ctx-1 each from the preceding tokens of the window.
 * perplexity = exp(mean negative log-likelihood in nats). Two windows are submitted ahead so that
 * the engine never waits for this client.
 *
 * Trust: the model file and the text are untrusted, checked by lib/model; replies by the stubs. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/option_error.h"
#include "config/option_table.h"
#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/inspected/tokenizer.h"
#include "lib/json/lookup.h"
#include "lib/model/tokenizer/tokenizer.h"
#include "lib/terminal/terminal.h"
#include "procs/clients/common/options.h"
#include "procs/clients/common/stream.h"
#include "procs/clients/eval/cloze.h"
#include "procs/clients/eval/ids.h"
#include "procs/clients/eval/in_process.h"

#define WINDOWS_AHEAD     2
#define PROGRESS_NS       (2 * NS_PER_S)
#define WINDOW_TOKENS_MAX ENGINE_PROMPT_IDS_MAX

struct eval {
    struct session_request engine;
    const char *text_path; /* the first text */
    const char *ids_path;  /* instead of a text */
    bool per_token;
    struct in_process in_process;
    bool offline;
    size_t window;
    int64_t windows_max; /* 0: all */

    uint32_t *ids;
    size_t ids_count, windows;
    double nll, *nll_each; /* nll_each: with per_token, of the scored tokens */
    uint64_t scored, prefill_ns;
    bool raw;
};

static int take_text(void *program, const char *value, struct error *error)
{
    struct eval *e = program;
    if (e->in_process.texts == IN_PROCESS_TEXTS_MAX)
        return error_set(error, ERR_BAD_INPUT, "at most %d texts", IN_PROCESS_TEXTS_MAX);
    e->in_process.text_path[e->in_process.texts++] = value;
    e->text_path = e->in_process.text_path[0];
    return 0;
}

static int take_output(void *program, const char *value, struct error *error)
{
    struct eval *e = program;
    static const char *const formats[] = {"text", "json", "csv", "md"};
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(value, formats[i]) == 0) {
            e->in_process.output = (enum eval_output)i;
            return 0;
        }
    return error_set(error, ERR_BAD_INPUT, "--output: '%.80s' is not one of " EVAL_OUTPUTS, value);
}

static int take_bandwidth(void *program, const char *value, struct error *error)
{
    struct eval *e = program;
    e->offline = true;
    if (speed_parse(value, &e->in_process.read_bandwidth))
        return 0;
    return error_set(error, ERR_BAD_INPUT,
                     "--read-bandwidth: '%.80s' is not a bandwidth such as 500MB/s", value);
}

static int take_kv_type(void *program, const char *value, struct error *error)
{
    struct eval *e = program;
    e->in_process.reference_kv_type = kv_type_find(value);
    return e->in_process.reference_kv_type < KV_TYPE__COUNT
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "--reference-kv-type: '%.80s' is not f32, f16, q8_0 or q4_0", value);
}

static int take_memory(void *program, const char *value, struct error *error)
{
    struct eval *e = program;
    if (bytes_parse(value, &e->in_process.memory) && e->in_process.memory > 0)
        return 0;
    return error_set(error, ERR_BAD_INPUT, "--memory: '%.40s' is not a size", value);
}

static int take_method(void *program, const char *value, struct error *error)
{
    struct eval *e = program;
    return quant_method_option("--method", value, &e->in_process.method, error);
}

static int take_dense(void *program, const char *value, struct error *error)
{
    struct eval *e = program;
    return precision_dense_option("--dense", value, &e->in_process.dense,
                                  &e->in_process.dense_given, error);
}

static const struct option_row rows[] = {
    {'m', "model", "FILE", OPTION_TEXT(struct eval, engine.model),
     "GGUF file, or a directory made by pack"},
    {0, "text", "FILE", OPTION_CALL(take_text),
     "the text, - for standard input; repeatable in process"},
    {0, "ids", "FILE", OPTION_TEXT(struct eval, ids_path),
     "instead of a text its tokens: {\"ids\": [1, 2, ...]}"},
    {0, "per-token", NULL, OPTION_FLAG(struct eval, per_token),
     "with --output json: also ids, and nll_per_token of each "
     "predicted token"},
    {0, "read-bandwidth", "RATE", OPTION_CALL(take_bandwidth),
     "in process, of the simulated storage device: 500MB/s"},
    {0, "offline", NULL, OPTION_FLAG(struct eval, offline), "in process, worst case"},
    {0, "memory", "SIZE", OPTION_CALL(take_memory),
     "in process: maximum memory, experts are read as they are "
     "needed; also --budget, which is the engine's otherwise "
     "(default: the model is mapped if it fits with all its "
     "precisions, else most of the available memory)"},
    {0, "method", "METHOD", OPTION_CALL(take_method),
     "in process: quantisation of int4 and int2, channel (default) or "
     "hqq"},
    {0, "dense", "PRECISION", OPTION_CALL(take_dense),
     "in process: of dense weights, native, int8 or int4, or auto "
     "(default): as in the plan"},
    {0, "kld", NULL, OPTION_FLAG(struct eval, in_process.compare),
     "in process: also KL divergence and top-1 agreement"},
    {0, "cloze", "N", OPTION_NUMBER(struct eval, in_process.cloze, 1, CLOZE_ITEMS_MAX),
     "in process: N items of the text, in each of which the true one of "
     "four continuations should be the most probable (docs/eval.md)"},
    {0, "reference-kv-type", "T", OPTION_CALL(take_kv_type),
     "in process: KV cache of the lossless model: f32, f16 "
     "(default), q8_0 or q4_0"},
    {0, "record", "FILE", OPTION_TEXT(struct eval, in_process.record),
     "in process: write the logits (2 bytes x vocabulary size "
     "per token of the text)"},
    {0, "logits", "FILE.npy", OPTION_TEXT(struct eval, in_process.npy),
     "in process: write the logits for other programs (NumPy's format, "
     "4 bytes x vocabulary size per token; docs/eval.md)"},
    {0, "against", "FILE", OPTION_TEXT(struct eval, in_process.against),
     "in process: compare with recorded logits instead of the "
     "lossless model"},
    {'c', "ctx-size", "N", OPTION_ELSEWHERE, "tokens per window (default 512; of --cloze 64)"},
    {0, "max-windows", "N", OPTION_NUMBER(struct eval, windows_max, 1, INT32_MAX),
     "only the first N windows of each text"},
    {0, "output", "FORMAT", OPTION_CALL(take_output),
     "format on stdout: text (default), json; in process also "
     "csv, md"},
    {0, "raw", NULL, OPTION_FLAG(struct eval, raw),
     "control characters go to a terminal unchanged"},
    {0, "name", "NAME", OPTION_TEXT(struct eval, engine.run), "the engine to use"},
    {'v', "verbose", NULL, OPTION_FLAG(struct eval, engine.verbose), "show the engine's log"},
};

static const struct option_table options = {
    .command = "eval",
    .before = "usage: sluice eval -m FILE --text FILE [--ctx-size 512] [options]\n"
              "\n"
              "Perplexity of a text: consecutive windows of --ctx-size tokens, scored\n"
              "separately. --read-bandwidth and --offline evaluate in this process, without an\n"
              "engine: lossy presets (--preset, --plan, --policy, --resident-experts) against\n"
              "the lossless model, with a 95 % bootstrap interval over windows.\n"
              "--read-bandwidth: token by token with a simulated clock and cache. --offline:\n"
              "the worst case (hobbit: every access misses).\n"
              "\n",
    OPTION_ROWS(rows),
    .column = 29,
    .groups = {{"Parameters of the private engine:", params_options}},
};

static int check_window(const struct eval *e, struct error *error)
{
    if (e->window > WINDOW_TOKENS_MAX)
        return error_set(error, ERR_BAD_INPUT, "--ctx-size: a window has at most %u tokens",
                         WINDOW_TOKENS_MAX);
    if (e->in_process.cloze && e->window < CLOZE_WINDOW_MIN)
        return error_set(error, ERR_BAD_INPUT,
                         "--ctx-size: a window of --cloze has at least %d tokens",
                         CLOZE_WINDOW_MIN);
    if (e->window < 2)
        return error_set(
            error, ERR_BAD_INPUT,
            "--ctx-size: a window has at least 2 tokens, since the first is not scored");
    return 0;
}

static int check_options(const struct eval *e, struct error *error)
{
    const struct in_process *in = &e->in_process;
    bool wanted = in->texts > 1 || in->compare || in->against || in->record || in->npy ||
                  in->memory || in->output == EVAL_CSV || in->output == EVAL_MD;
    if (in->reference_kv_type != KV_TYPE_F16 && (!e->offline || !in->compare))
        return error_set(error, ERR_BAD_INPUT, "--reference-kv-type requires --kld");
    if (!e->offline && wanted)
        return error_set(
            error, ERR_BAD_INPUT,
            "several texts, --kld, --record, --logits, --against, --memory, csv and md require "
            "--offline or --read-bandwidth RATE");
    if (e->offline && (e->ids_path || e->per_token))
        return error_set(error, ERR_BAD_INPUT, "--ids and --per-token require an engine");
    if (in->cloze && (!e->offline || in->record || in->npy || in->against || e->windows_max))
        return error_set(error, ERR_BAD_INPUT,
                         "--cloze requires --offline or --read-bandwidth RATE, and does not go "
                         "with --record, --logits, --against and --max-windows");
    if (e->per_token && in->output != EVAL_JSON)
        return error_set(error, ERR_BAD_INPUT, "--per-token requires --output json");
    return check_window(e, error);
}

static int parse(struct eval *e, int argc, char **argv, struct error *error)
{
    struct params *params = &e->engine.params;
    params_defaults(params);
    if (params_take_args(params, &argc, argv, error) != 0)
        return -1;
    if (options_read(&options, e, argc, argv, error) != 0)
        return -1;
    /* A private engine needs only one window; a longer context would only cost budget. */
    if (params->ctx_size == 0)
        params->ctx_size = e->in_process.cloze ? CLOZE_WINDOW_DEFAULT : IN_PROCESS_WINDOW_DEFAULT;
    e->window = params->ctx_size;
    if (option_model_or_server(&e->engine.model, argc, argv, "", error) != 0)
        return -1;
    if (!e->engine.model || !e->text_path == !e->ids_path)
        return error_set(error, ERR_BAD_INPUT,
                         "-m FILE and either --text FILE or --ids FILE are required");
    if ((e->offline || e->text_path) &&
        session_need_file(e->engine.model,
                          e->offline ? "in process, eval reads a file"
                                     : "--text reads the tokenizer of a file (--ids needs none)",
                          error) != 0)
        return -1;
    if (e->engine.run) /* the context of a running engine cannot be changed */
        params->ctx_size = 0;
    return check_options(e, error);
}

static int tokenise(struct eval *e, const char *text, size_t bytes, struct error *error)
{
    struct inspected_tokenizer t;
    if (inspected_tokenizer_open(&t, e->engine.model, error) != 0)
        return -1;
    int result = tokenizer_encode(t.tokenizer, text, bytes, NULL, &e->ids, &e->ids_count, error);
    inspected_tokenizer_close(&t);
    return result;
}

static int cut(struct eval *e, struct error *error)
{
    e->windows = e->ids_count / e->window;
    if (e->windows_max && e->windows > (size_t)e->windows_max)
        e->windows = (size_t)e->windows_max;
    if (e->windows == 0)
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s has %zu tokens, fewer than one window of %zu (--ctx-size)",
                         e->text_path ? e->text_path : e->ids_path, e->ids_count, e->window);
    if (e->per_token) {
        e->nll_each = calloc(e->windows, (e->window - 1) * sizeof *e->nll_each);
        if (!e->nll_each)
            return error_set(error, ERR_NO_MEMORY, "out of memory (%zu windows)", e->windows);
    }
    return 0;
}

static int submit_window(struct eval *e, struct session *s, size_t window, uint64_t *id,
                         struct error *error)
{
    struct engine_submit submit;
    engine_submit_defaults(&submit);
    submit.prompt_ids = e->ids + window * e->window;
    submit.prompt_ids_count = e->window;
    submit.max_tokens = 0;
    submit.score_prompt = true;
    submit.sampling.temperature = 0;
    return stream_submit(s, &submit, id, error);
}

/* Adds the log-probabilities of one window. Position 0 has none: the list starts at position 1, or
 * its first value is ignored. */
static int add_scores(struct eval *e, const double *scores, size_t count, struct error *error)
{
    size_t wanted = e->window - 1;
    if (count != wanted && count != wanted + 1)
        return error_set(error, ERR_FAILED, "the engine scored %zu of %zu tokens of a window",
                         count, wanted);
    for (size_t i = count - wanted, at = e->scored; i < count; i++, at++) {
        e->nll -= scores[i];
        if (e->nll_each)
            e->nll_each[at] = -scores[i];
    }
    if (!isfinite(e->nll))
        return error_set(error, ERR_FAILED, "the engine returned a non-finite log-probability");
    e->scored += wanted;
    return 0;
}

static int collect_window(struct eval *e, struct session *s, uint64_t id, struct error *error)
{
    struct stream_result result;
    int status = stream_follow(s, id, NULL, NULL, &result, error);
    if (status == 0 && strcmp(result.finish, "cancelled") == 0)
        status = error_set(error, ERR_CANCELLED, "interrupted");
    if (status == 0)
        status = add_scores(e, result.logprobs, result.logprobs_count, error);
    stream_result_free(&result);
    return status;
}

static void progress(const struct eval *e, size_t done, uint64_t *reported_ns)
{
    uint64_t now = clock_now_ns();
    if (now - *reported_ns < PROGRESS_NS && done < e->windows)
        return;
    *reported_ns = now;
    fprintf(stderr, "sluice eval: window %zu of %zu, perplexity so far %.4f\n", done, e->windows,
            exp(e->nll / (double)e->scored));
}

static int score(struct eval *e, struct session *s, struct error *error)
{
    uint64_t ids[WINDOWS_AHEAD], reported_ns = clock_now_ns();
    size_t submitted = 0;
    for (size_t done = 0; done < e->windows; done++) {
        for (; submitted < e->windows && submitted < done + WINDOWS_AHEAD; submitted++)
            if (submit_window(e, s, submitted, &ids[submitted % WINDOWS_AHEAD], error) != 0)
                return -1;
        if (collect_window(e, s, ids[done % WINDOWS_AHEAD], error) != 0)
            return -1;
        progress(e, done + 1, &reported_ns);
    }
    return 0;
}

static void print_result(const struct eval *e, const json_t *doc, double seconds)
{
    double mean = e->nll / (double)e->scored;
    double tps = (double)(e->windows * e->window) / seconds;
    if (!(e->in_process.output == EVAL_JSON)) {
        printf("perplexity %.4f over %" PRIu64 " tokens (%zu windows of %zu), %.5f nats/token, "
               "%.1f tokens/s\n",
               exp(mean), e->scored, e->windows, e->window, mean, tps);
        return;
    }
    json_t *out = json_pack(
        "{s:f, s:I, s:f, s:f, s:I, s:I, s:I, s:f, s:I, s:I}", "ppl", exp(mean), "tokens",
        (json_int_t)e->scored, "nll", mean, "nll_sum", e->nll, "windows", (json_int_t)e->windows,
        "ctx_size", (json_int_t)e->window, "text_tokens", (json_int_t)e->ids_count, "tps", tps,
        "peak_memory_bytes", (json_int_t)lookup_counter(doc, "supervisor", "used_bytes_max"),
        "budget_bytes", (json_int_t)lookup_counter(doc, "supervisor", "budget_bytes"));
    if (e->per_token) {
        json_object_set_new(out, "ids", ids_json(e->ids, e->windows * e->window));
        json_object_set_new(out, "nll_per_token", ids_losses_json(e->nll_each, e->scored));
    }
    json_dumpf(out, stdout, e->per_token ? JSON_COMPACT : JSON_INDENT(2));
    printf("\n");
    json_decref(out);
}

/* The tokens of the text, or those given. */
static int load(struct eval *e, struct error *error)
{
    if (e->ids_path)
        return ids_read(e->ids_path, &e->ids, &e->ids_count, error);
    char *text = NULL;
    size_t bytes = 0;
    int status = option_file(e->text_path, TOKENIZER_TEXT_MAX, &text, &bytes, error);
    if (status == 0)
        status = tokenise(e, text, bytes, error);
    free(text);
    return status;
}

static int run_offline(struct eval *e, struct error *error)
{
    struct in_process *in = &e->in_process;
    in->model_path = e->engine.model;
    in->params = &e->engine.params;
    in->window = (uint32_t)e->window;
    in->windows_max = e->windows_max;
    return in_process_eval(in, error);
}

static int run(struct eval *e, struct error *error)
{
    if (e->offline)
        return run_offline(e, error); /* a signal ends it */
    session_signals();
    if (load(e, error) != 0 || cut(e, error) != 0)
        return -1;
    struct session session;
    if (session_open(&session, &e->engine, error) != 0)
        return -1;
    uint64_t started = clock_now_ns();
    int status = score(e, &session, error);
    if (status == 0) {
        json_t *doc = session_stats(&session);
        print_result(e, doc, (double)(clock_now_ns() - started) / (double)NS_PER_S);
        json_decref(doc);
    }
    session_close(&session);
    return status;
}

int main(int argc, char **argv)
{
    struct eval e = {.engine = {.command = "eval"}, .in_process = {.method = QUANT_METHOD_DEFAULT}};
    struct error error;
    int status = parse(&e, argc, argv, &error);
    if (status == 0) {
        terminal_guard(e.raw);
        status = run(&e, &error);
    }
    if (status != 0)
        status = report("eval", &error);
    free(e.ids);
    free(e.nll_each);
    return status;
}
