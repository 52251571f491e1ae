/* SPDX-License-Identifier: Apache-2.0 */
/* One turn: sends the prompt, prints the response as it arrives, then the rates. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/json/lookup.h"
#include "procs/clients/common/generation_stats.h"
#include "procs/clients/repl/fit.h"
#include "procs/clients/repl/repl.h"

#define RESERVE_SHARE 8

static void print_text(struct repl *r, const struct engine_next *next)
{
    r->has_tokens = true;
    if (r->display.columns > 0) {
        display_put(&r->display, next->text, next->text_bytes, r->terminal);
        fflush(r->terminal);
    } else {
        fwrite(next->text, 1, next->text_bytes, stdout);
        fflush(stdout);
    }
    r->mid_line = next->text[next->text_bytes - 1] != '\n';
}

/* The text begins where the progress was. */
static void print_next(const struct engine_next *next, void *arg)
{
    struct repl *r = arg;
    watch_lock(r->watch);
    if (r->progress)
        progress_show(&next->progress, &r->progress_shown);
    if (next->text_bytes > 0)
        print_text(r, next);
    watch_unlock(r->watch);
}

static double real(const json_t *stats, const char *key)
{
    return json_number_value(json_object_get(stats, key));
}

static void report_rates(struct repl *r, const struct stream_result *result)
{
    const json_t *f = r->stats;
    uint64_t resumes = lookup_u64(result->stats, "resumes");
    if (strcmp(result->finish, "cancelled") == 0)
        repl_notice(r, session_stop == SIGINT ? "ended by Ctrl-C"
                       : session_stop         ? "ended by a signal"
                                              : "ended by the engine");
    if (resumes)
        repl_notice(r, "restarts of compute during this response: %" PRIu64, resumes);
    if (strcmp(result->finish, "length") == 0 && r->context_used >= r->context_size)
        repl_notice(r, "the context of %" PRIu64 " tokens is full: the response ends here",
                    r->context_size);
    if (r->quiet)
        return;
    if (result->count == 0)
        repl_statistics(r, "no token; prompt of %" PRIu64 ", context %" PRIu64 " of %" PRIu64,
                        lookup_u64(f, "prompt_tokens"), r->context_used, r->context_size);
    else
        repl_statistics(r,
                        "%zu token%s at %.1f tokens/s, first after %.0f ms; prompt of %" PRIu64
                        " (%" PRIu64 " kept) at %.1f tokens/s; context %" PRIu64 " of %" PRIu64,
                        result->count, result->count == 1 ? "" : "s", real(f, "decode_tps"),
                        real(f, "ttft_ms"), lookup_u64(f, "prompt_tokens"),
                        lookup_u64(f, "cached_tokens"), real(f, "prefill_tps"), r->context_used,
                        r->context_size);
}

static void keep(struct repl *r, const char *prompt, const struct stream_result *result,
                 const json_t *before, const json_t *after)
{
    json_decref(r->stats);
    r->stats = generation_stats_make(result, before, after);
    r->context_used = lookup_u64(result->stats, "prompt_tokens") + result->count;
    if (conversation_add(&r->conversation, prompt, result->text, result->text_bytes) != 0)
        repl_notice(r, "out of memory: this turn is not in the conversation");
}

/* Gets the model's chat format. Without a reply the last known one stays. */
static void update_format(struct repl *r)
{
    json_t *reply = NULL;
    struct error error;
    if (control_call(r->session.control, "chat", NULL, &reply, &error) != 0)
        return;
    if (r->format_reply && json_equal(reply, r->format_reply)) {
        json_decref(reply);
        return;
    }
    json_decref(r->format_reply);
    r->format_reply = reply;
    if (chat_format_read(&r->format, reply, &error) != 0 && !r->format.program)
        repl_notice(r, "%s: the conversation has the form of the family '%s'", error.text,
                    chat_name((enum chat_family)r->format.model.family));
}

/* NULL, too, if the template decides. */
static json_t *template_variables(const struct repl *r)
{
    int on = r->thinking == TERNARY_ON;
    return r->thinking == TERNARY_AUTO
               ? NULL
               : json_pack("{s:b, s:b}", "enable_thinking", on, "thinking", on);
}

static int make_chat_prompt(struct repl *r, const char *prompt, struct chat_prompt *out,
                            struct error *error)
{
    json_t *variables = template_variables(r);
    struct conversation_form form = {
        .chat = &r->format, .system = r->system, .variables = variables};
    int status = conversation_chat(&r->conversation, &form, prompt, out, error);
    json_decref(variables);
    return status;
}

/* Prompt to submit: a chat prompt for models with a chat template, otherwise plain text to be
 * continued. */
static int make_prompt(struct repl *r, const char *prompt, struct chat_prompt *out,
                       struct error *error)
{
    if (r->chat && (r->format.program || r->format.model.family != CHAT_PLAIN))
        return make_chat_prompt(r, prompt, out, error);
    *out = (struct chat_prompt){0};
    out->text = conversation_text(&r->conversation, prompt, &out->bytes);
    if (!out->text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    if (r->special && text_ranges_add(&out->written, 0, out->bytes) != 0)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    return 0;
}

/* Tokens of the context that a response should have at least. */
static uint64_t reserve(const struct engine_submit *submit, uint64_t context)
{
    uint64_t share = context / RESERVE_SHARE, wanted = (uint64_t)submit->max_tokens;
    return wanted < share ? wanted : share;
}

/* A prompt that is made, and what is known of it. */
struct fitting {
    struct repl *repl;
    const char *prompt;
    struct chat_prompt *made;     /* freed by the caller */
    struct engine_submit *submit; /* borrows from it */
    uint64_t tokens, context;     /* context: maximum with the response */
};

/* Makes the prompt with the turns from number `first` on, and counts its tokens. A fit_count. */
static int count_from(void *arg, size_t first, uint64_t *tokens, struct error *error)
{
    struct fitting *f = arg;
    struct repl *r = f->repl;
    r->conversation.first = first;
    chat_prompt_free(f->made);
    if (make_prompt(r, f->prompt, f->made, error) != 0)
        return -1;
    f->submit->prompt = f->made->text;
    f->submit->prompt_bytes = f->made->bytes;
    f->submit->special = f->made->written;
    if (stream_count(&r->session, f->submit, tokens, &f->context, error) != 0)
        return -1;
    f->tokens = *tokens;
    if (r->context > 0 && (uint64_t)r->context < f->context)
        f->context = (uint64_t)r->context;
    return 0;
}

int turn_count(struct repl *r, const char *prompt, uint64_t *tokens, uint64_t *context,
               struct error *error)
{
    struct chat_prompt made = {0};
    struct engine_submit submit = r->submit;
    struct fitting f = {.repl = r, .prompt = prompt, .made = &made, .submit = &submit};
    size_t first = r->conversation.first;
    update_format(r);
    int status = count_from(&f, first, tokens, error);
    *context = f.context;
    chat_prompt_free(&made);
    r->conversation.first = first; /* only a turn changes it */
    return status;
}

/* Makes the prompt. When the context is full, the oldest turns are left out until half of it is
 * free: at every turn after that, the prompt begins with the one before, and only what was added is
 * computed. -1 with *error; *made is freed by the caller in any case. */
static int fit_prompt(struct repl *r, const char *prompt, struct chat_prompt *made,
                      struct engine_submit *submit, struct error *error)
{
    struct conversation *c = &r->conversation;
    struct fitting f = {.repl = r, .prompt = prompt, .made = made, .submit = submit};
    size_t before = c->first, first;
    uint64_t tokens;
    *submit = r->submit;
    if (submit->max_tokens == 0)
        submit->max_tokens = ENGINE_TOKENS_MAX;
    if (count_from(&f, before, &tokens, error) != 0)
        return -1;
    if (tokens > f.context - reserve(submit, f.context) && c->first < c->count &&
        fit_turns(c->first + 1, c->count, f.context / 2, count_from, &f, &first, error) != 0)
        return -1;
    r->context_size = f.context;
    if (c->first > before)
        repl_notice(r,
                    "the context of %" PRIu64 " tokens is full: the oldest %zu of %zu turns are "
                    "no longer sent",
                    f.context, c->first, c->count);
    if (f.tokens < f.context && (uint64_t)submit->max_tokens > f.context - f.tokens)
        submit->max_tokens = (int64_t)(f.context - f.tokens);
    return 0;
}

static void start_display(struct repl *r, const struct chat_prompt *made)
{
    const struct answer_marks *marks = &r->format.answer.reasoning;
    unsigned columns = r->raw ? 0 : display_columns(STDOUT_FILENO);
    display_start(&r->display, columns, display_dims(STDOUT_FILENO), marks->open, marks->close,
                  answer_front(&r->format.answer, made->text, made->bytes) > 0);
    r->progress = !r->quiet && display_dims(STDERR_FILENO);
}

/* After Ctrl-C or an error, there may still be progress. */
static void remove_progress(struct repl *r)
{
    watch_lock(r->watch);
    progress_end(&r->progress_shown);
    watch_unlock(r->watch);
}

static void end_display(struct repl *r)
{
    if (r->display.columns == 0)
        return;
    display_end(&r->display, r->terminal);
    fflush(r->terminal);
}

int turn_run(struct repl *r, const char *prompt, struct error *error)
{
    struct stream_result result;
    struct engine_submit submit;
    struct chat_prompt made = {0};
    char *grammar = NULL;
    json_t *before = session_stats(&r->session);
    update_format(r);
    if (fit_prompt(r, prompt, &made, &submit, error) != 0 ||
        (r->chat &&
         conversation_place_grammar(&r->format.answer, &made, &submit.grammar, &grammar, error))) {
        free(grammar);
        chat_prompt_free(&made);
        json_decref(before);
        return -1;
    }
    start_display(r, &made);
    watch_start(r->watch, before);
    int status = stream_run(&r->session, &submit, print_next, r, &result, error);
    remove_progress(r);
    json_t *after = session_stats(&r->session);
    watch_end(r->watch, after);
    end_display(r);
    if (r->mid_line || (status == 0 && !r->out_tty)) /* in a script every response ends with a line
                                                      * end */
        putchar('\n');
    r->mid_line = false;
    if (status == 0) {
        keep(r, prompt, &result, before, after);
        report_rates(r, &result);
    } else if (error->code == ERR_CANCELLED && session_stop) {
        repl_notice(r, "ended before the first token");
        status = 0;
    }
    json_decref(after);
    json_decref(before);
    stream_result_free(&result);
    free(grammar);
    chat_prompt_free(&made);
    return status;
}
