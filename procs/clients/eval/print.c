/* SPDX-License-Identifier: Apache-2.0 */
/* Prints an outcome as text, json, csv or a Markdown table row. */
#include "procs/clients/eval/in_process.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "lib/base/bytes.h"

static json_t *real(double x)
{
    return isnan(x) ? json_null() : json_real(x);
}

static json_t *texts_of(const struct outcome *o)
{
    json_t *all = json_array();
    for (size_t i = 0; i < o->texts; i++) {
        const struct outcome_text *t = &o->text[i];
        json_array_append_new(all,
                              json_pack("{s:s, s:I, s:o, s:o, s:o}", "text", t->path, "tokens",
                                        (json_int_t)t->tokens, "loss", real(t->loss), "kld_mean",
                                        real(t->kld_mean), "top1_same", real(t->top1_same)));
    }
    return all;
}

static void print_json(const struct outcome *o)
{
    json_t *out = json_pack("{s:s}", "preset", o->preset);
#define OUTCOME_REAL(name, doc)  json_object_set_new(out, #name, real(o->name));
#define OUTCOME_COUNT(name, doc) json_object_set_new(out, #name, json_integer((json_int_t)o->name));
#include "procs/clients/eval/outcome.tbl.h"
    json_object_set_new(out, "texts", texts_of(o));
    json_dumpf(out, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(out);
}

static void print_csv(const struct outcome *o)
{
    printf("preset");
#define OUTCOME_REAL(name, doc)  printf("," #name);
#define OUTCOME_COUNT(name, doc) printf("," #name);
#include "procs/clients/eval/outcome.tbl.h"
    printf("\n%s", o->preset);
#define OUTCOME_REAL(name, doc)  isnan(o->name) ? printf(",") : printf(",%.9g", o->name);
#define OUTCOME_COUNT(name, doc) printf(",%" PRIu64, o->name);
#include "procs/clients/eval/outcome.tbl.h"
    printf("\n");
}

static void md_real(const char *format, double x)
{
    if (isnan(x))
        printf(" |");
    else
        printf(format, x);
}

static void print_md(const struct outcome *o)
{
    printf("| preset | perplexity | loss (95 %%) | KLD mean | KLD 99.9 %% | same top-1 | hits "
           "| MiB/token | tokens |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    printf("| %s | %.4f | %+.2f %% (%.2f .. %.2f) |", o->preset, o->ppl, 100 * o->loss,
           100 * o->loss_low, 100 * o->loss_high);
    md_real(" %.5f |", o->kld_mean);
    md_real(" %.3f |", o->kld_p999);
    md_real(" %.2f %% |", 100 * o->top1_same);
    md_real(" %.1f %% |", 100 * o->hit_rate);
    md_real(" %.3f |", o->bytes_per_token / (double)MIB);
    printf(" %" PRIu64 " |\n", o->tokens);
}

static void print_text(const struct outcome *o)
{
    char size[16];
    printf("%s: perplexity %.4f, lossless %.4f: %+.3f %% (95 %%: %+.3f .. %+.3f) over %" PRIu64
           " tokens; experts %s\n",
           o->preset, o->ppl, o->ppl_lossless, 100 * o->loss, 100 * o->loss_low, 100 * o->loss_high,
           o->tokens, bytes_format(o->expert_bytes, size));
    if (!isnan(o->kld_mean))
        printf("  KLD mean %.6f, p99.9 %.4f; same top-1 token %.2f %%\n", o->kld_mean, o->kld_p999,
               100 * o->top1_same);
    if (!isnan(o->share_high))
        printf("  %.1f %% high, %.1f %% low, %.1f %% skipped\n", 100 * o->share_high,
               100 * o->share_low, 100 * o->share_skipped);
    if (!isnan(o->hit_rate))
        printf("  simulated at %.4g MB/s: %.1f %% hits, %.3f MiB and %.3f ms per token, "
               "%.3f ms of them stalled\n",
               o->device_bytes_per_s / 1e6, 100 * o->hit_rate, o->bytes_per_token / (double)MIB,
               o->token_ms, o->stall_ms);
    if (o->cloze_items)
        printf("  cloze: %.1f %% of %" PRIu64 " right, lossless %.1f %%: %+.1f (95 %%: %+.1f .. "
               "%+.1f) points; same answer %.1f %%\n",
               100 * o->cloze_right, o->cloze_items, 100 * o->cloze_right_lossless,
               100 * (o->cloze_right - o->cloze_right_lossless), 100 * o->cloze_low,
               100 * o->cloze_high, 100 * o->cloze_same);
    if (o->note[0])
        printf("  %s\n", o->note);
}

void outcome_print(const struct outcome *o, enum eval_output output)
{
    switch (output) {
    case EVAL_JSON: print_json(o); break;
    case EVAL_CSV: print_csv(o); break;
    case EVAL_MD: print_md(o); break;
    case EVAL_TEXT: print_text(o); break;
    }
}
