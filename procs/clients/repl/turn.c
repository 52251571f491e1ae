/* SPDX-License-Identifier: Apache-2.0 */
/* One turn: sends the prompt, prints the response as it arrives, then the rates. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "lib/json/lookup.h"
#include "procs/clients/common/generation_stats.h"
#include "procs/clients/repl/repl.h"

static void print_next(const struct engine_next *next, void *arg)
{
    struct repl *r = arg;
    if (next->text_bytes == 0)
        return;
    watch_lock(r->watch);
    r->has_tokens = true;
    fwrite(next->text, 1, next->text_bytes, stdout);
    fflush(stdout);
    r->mid_line = next->text[next->text_bytes - 1] != '\n';
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
    if (!r->quiet)
        repl_notice(
            r, "%zu tokens at %.1f tokens/s, prompt of %" PRIu64 " at %.1f tokens/s, TTFT %.0f ms",
            result->count, real(f, "decode_tps"), lookup_u64(f, "prompt_tokens"),
            real(f, "prefill_tps"), real(f, "ttft_ms"));
}

static void keep(struct repl *r, const char *prompt, const struct stream_result *result,
                 const json_t *before, const json_t *after)
{
    json_decref(r->stats);
    r->stats = generation_stats_make(result, before, after);
    if (conversation_add(&r->conversation, prompt, result->text) != 0)
        repl_notice(r, "out of memory: this turn is not in the conversation");
}

/* Prompt to submit: a chat prompt for models with a chat template, otherwise plain text to be
 * continued. */
static int make_prompt(struct repl *r, const char *prompt, struct chat_prompt *out,
                       struct error *error)
{
    if (r->chat && r->family.family != CHAT_PLAIN)
        return conversation_chat(&r->conversation, &r->family, prompt, (size_t)r->context, out,
                                 error);
    *out = (struct chat_prompt){
        .text = conversation_text(&r->conversation, prompt, (size_t)r->context)};
    if (!out->text)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    out->bytes = strlen(out->text);
    if (r->special && text_ranges_add(&out->written, 0, out->bytes) != 0)
        return error_set(error, ERR_NO_MEMORY, "out of memory (prompt)");
    return 0;
}

int turn_run(struct repl *r, const char *prompt, struct error *error)
{
    struct stream_result result;
    struct engine_submit submit = r->submit;
    struct chat_prompt made = {0};
    json_t *before = session_stats(&r->session);
    if (before) /* otherwise keep the last known template */
        chat_describe(&r->family, lookup_text(before, "model.chat_template"),
                      lookup_text(before, "model.chat_bos"), lookup_text(before, "model.chat_eos"),
                      lookup_u64(before, "model.chat_bos_first") != 0);
    if (make_prompt(r, prompt, &made, error) != 0) {
        chat_prompt_free(&made);
        json_decref(before);
        return -1;
    }
    submit.prompt = made.text;
    submit.prompt_bytes = made.bytes;
    submit.special = made.written;
    watch_start(r->watch, before);
    int status = stream_run(&r->session, &submit, print_next, r, &result, error);
    json_t *after = session_stats(&r->session);
    watch_end(r->watch, after);
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
    chat_prompt_free(&made);
    return status;
}
