/* SPDX-License-Identifier: Apache-2.0 */
/* The page: embedded files, with tables generated here, so that the numbers are shown without a
 * script, too. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "procs/engine/gateway/pages/pages.h"

#define MARK "<!--NUMBERS-->"
/* The assembler includes a file between these symbols. */
#define EMBED(name, file)                                                                          \
    __asm__(".section .rodata\n"                                                                   \
            ".balign 16\n"                                                                         \
            ".global gateway_" #name "\n"                                                          \
            ".hidden gateway_" #name "\n"                                                          \
            "gateway_" #name ":\n"                                                                 \
            ".incbin \"" GATEWAY_FILES "/" file "\"\n"                                             \
            ".global gateway_" #name "_end\n"                                                      \
            ".hidden gateway_" #name "_end\n"                                                      \
            "gateway_" #name "_end:\n"                                                             \
            ".byte 0\n"                                                                            \
            ".previous\n");                                                                        \
    extern const char gateway_##name[], gateway_##name##_end[]
EMBED(html, "page.html");
#define ASSET(name, file, type) EMBED(name, file);
#include "procs/engine/gateway/pages/assets.tbl.h"

static const struct asset {
    const char *file, *type, *text, *end;
} assets[] = {
#define ASSET(name, file, type)                                                                    \
    {file, type "; charset=utf-8", gateway_##name, gateway_##name##_end},
#include "procs/engine/gateway/pages/assets.tbl.h"
};

static void escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc(*text, out);
        }
    }
}

static void process_row(FILE *out, const json_t *row)
{
    char private[16], reserved[16], name[LOOKUP_NAME_BYTES];
    const char *state = lookup_text(row, "state");
    fputs("<tr><td>", out);
    escaped(out, lookup_name(row, name));
    fprintf(out, "</td><td%s>", strcmp(state, "ready") == 0 ? "" : " class=\"bad\"");
    escaped(out, state);
    fputs("</td><td class=\"w\">", out);
    escaped(out, lookup_text(row, "wait"));
    fprintf(out, "</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%s</td>",
            lookup_u64(row, "restarts"), bytes_format(lookup_u64(row, "private_bytes"), private));
    fprintf(out, "<td class=\"n\">%s</td><td class=\"w\">",
            bytes_format(lookup_u64(row, "reserved_bytes"), reserved));
    escaped(out, lookup_text(row, "exit_message"));
    fputs("</td></tr>\n", out);
}

/* Wall clock in UTC: without a script the reader's time zone is unknown. */
static void exit_row(FILE *out, const json_t *exit_record)
{
    char name[LOOKUP_NAME_BYTES], when[32] = "";
    time_t seconds = (time_t)(lookup_u64(exit_record, "wall_ms") / 1000);
    struct tm tm;
    if (gmtime_r(&seconds, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    fprintf(out, "<tr><td>%s</td><td>", when);
    escaped(out, lookup_name(exit_record, name));
    fputs("</td><td>", out);
    escaped(out, lookup_text(exit_record, "cause"));
    fputs("</td><td class=\"w\">", out);
    escaped(out, lookup_text(exit_record, "exit_message"));
    bool restarted = json_is_true(json_object_get(exit_record, "restarted"));
    fprintf(out, "</td><td>%s</td></tr>\n", restarted ? "yes" : "no");
}

static void exits(FILE *out, const json_t *doc)
{
    if (lookup_exits(doc) == 0)
        return;
    fputs("<table class=\"rows ends\"><tr><th>ended (UTC)</th><th>process</th><th>cause</th>"
          "<th class=\"w\">exit message</th><th>restarted</th></tr>\n",
          out);
    for (size_t i = 0; i < lookup_exits(doc); i++)
        exit_row(out, lookup_exit(doc, i));
    fputs("</table>\n", out);
}

static void put_text(FILE *out, const char *name, const char *text)
{
    fprintf(out, "<tr><th>%s</th><td>", name);
    escaped(out, text);
    fputs("</td></tr>\n", out);
}

static void put_bytes(FILE *out, const char *name, const json_t *doc, const char *path)
{
    char text[16];
    put_text(out, name, bytes_format(lookup_u64(doc, path), text));
}

static void put_counter(FILE *out, const char *name, const json_t *doc, const char *service,
                        const char *counter)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, lookup_counter(doc, service, counter));
    put_text(out, name, text);
}

static void put_gpu(FILE *out, const json_t *doc)
{
    char text[64];
    if (!json_object_get(doc, "gpu"))
        return;
    uint64_t layers = lookup_u64(doc, "gpu.layers"), on_cpu = lookup_u64(doc, "gpu.layers_on_cpu");
    snprintf(text, sizeof text, "GPU %s", lookup_text(doc, "gpu.numbers"));
    put_text(out, text, lookup_text(doc, "gpu.name"));
    if (lookup_counter(doc, "compute", "gpu_lost")) {
        put_text(out, "GPU lost", "computing on the CPU");
        return;
    }
    snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64, layers, layers + on_cpu);
    put_text(out, "GPU layers", text);
    put_text(out, "GPU policy", lookup_text(doc, "gpu.policy"));
    put_bytes(out, "GPU budget", doc, "gpu.budget_bytes");
    put_bytes(out, "GPU dense weights", doc, "gpu.plan.weights");
    put_bytes(out, "GPU experts", doc, "gpu.plan.experts");
    snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " used",
             lookup_u64(doc, "gpu.slots_used"), lookup_u64(doc, "gpu.slots"));
    put_text(out, "GPU expert slots", text);
    put_counter(out, "GPU hits", doc, "compute", "gpu_expert_hits");
    put_counter(out, "GPU uploads", doc, "compute", "gpu_expert_uploads");
    put_counter(out, "GPU evictions", doc, "compute", "gpu_expert_evictions");
    if (lookup_counter(doc, "compute", "gpu_prefetches")) {
        put_counter(out, "GPU prefetches timely", doc, "compute", "gpu_prefetches_timely");
        put_counter(out, "GPU prefetches late", doc, "compute", "gpu_prefetches_late");
        put_counter(out, "GPU prefetches unused", doc, "compute", "gpu_prefetches_unused");
    }
    if (lookup_counter(doc, "compute", "gpu_graph_launches"))
        put_counter(out, "GPU graph launches", doc, "compute", "gpu_graph_launches");
    bytes_format(lookup_counter(doc, "compute", "gpu_uploaded_bytes"), text);
    put_text(out, "copied to the GPU", text);
}

static void put_ratio(FILE *out, const char *name, const json_t *doc, const char *part,
                      const char *whole)
{
    char text[32];
    uint64_t all = lookup_counter(doc, "compute", whole);
    double value = all ? (double)lookup_counter(doc, "compute", part) / (double)all : 0;
    snprintf(text, sizeof text, "%.1f", value);
    put_text(out, name, text);
}

static void put_passes(FILE *out, const json_t *doc)
{
    put_counter(out, "requests computed", doc, "compute", "sequences_running");
    put_counter(out, "requests waiting", doc, "compute", "sequences_queued");
    put_ratio(out, "rows per pass", doc, "pass_rows", "passes");
    put_ratio(out, "experts per pass", doc, "pass_experts", "passes");
    put_ratio(out, "rows per expert", doc, "pass_expert_rows", "pass_experts");
}

static void put_prefixes(FILE *out, const json_t *doc)
{
    char text[16];
    put_counter(out, "prefixes kept", doc, "compute", "kv_kept_entries");
    put_text(out, "bytes of these",
             bytes_format(lookup_counter(doc, "compute", "kv_kept_bytes"), text));
    put_counter(out, "requests that began with one", doc, "compute", "sequences_reused");
    put_counter(out, "prompt tokens not computed", doc, "compute", "tokens_reused");
    put_counter(out, "prefixes given up", doc, "compute", "kv_kept_evictions");
}

static void put_stats(FILE *out, const json_t *doc)
{
    char text[64];
    uint64_t accesses = lookup_counter(doc, "compute", "accesses");
    double hits = (double)lookup_counter(doc, "compute", "hits");
    fputs("<table>\n", out);
    put_text(out, "state", lookup_text(doc, "state"));
    put_text(out, "model", lookup_text(doc, "model.path"));
    put_text(out, "preset", lookup_text(doc, "preset"));
    if (*lookup_text(doc, "auto.text"))
        put_text(out, "chosen by auto", lookup_text(doc, "auto.text"));
    put_bytes(out, "budget", doc, "memory.budget_bytes");
    put_bytes(out, "used", doc, "memory.used_bytes");
    put_bytes(out, "arena", doc, "memory.arena_quota_bytes");
    put_counter(out, "new tokens", doc, "compute", "tokens_decode");
    put_counter(out, "prompt tokens", doc, "compute", "tokens_prefill");
    snprintf(text, sizeof text, "%.1f %%", accesses ? 100.0 * hits / (double)accesses : 0.0);
    put_text(out, "experts found resident", text);
    snprintf(text, sizeof text, "%.1f s",
             (double)lookup_counter(doc, "compute", "stall_ns") / NS_PER_S);
    put_text(out, "waiting for experts", text);
    bytes_format(lookup_counter(doc, "loader", "bytes_read"), text);
    put_text(out, "read", text);
    if (lookup_u64(doc, "model.table_bytes") > 0)
        put_counter(out, "rows read of the table", doc, "compute", "table_rows");
    put_counter(out, "prefetches used", doc, "cache", "prefetches_used");
    put_counter(out, "prefetches unused", doc, "cache", "prefetches_unused");
    put_passes(out, doc);
    put_prefixes(out, doc);
    put_counter(out, "HTTP requests", doc, "gateway", "requests");
    put_gpu(out, doc);
    fputs("</table>\n", out);
}

char *page_make(const json_t *doc, size_t *bytes)
{
    char *text = NULL;
    const char *mark = strstr(gateway_html, MARK);
    sl_assert(mark != NULL);
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    fwrite(gateway_html, 1, (size_t)(mark - gateway_html), out);
    fputs("<table class=\"rows procs\"><tr><th>process</th><th>state</th><th class=\"w\">waits "
          "for</th><th class=\"n\">restarts</th>"
          "<th class=\"n\">private</th><th class=\"n\">reserved</th><th class=\"w\">exit "
          "message</th></tr>\n",
          out);
    for (size_t i = 0; i < lookup_processes(doc); i++)
        process_row(out, lookup_row(doc, i));
    fputs("</table>\n", out);
    exits(out, doc);
    put_stats(out, doc);
    fputs(mark + strlen(MARK), out);
    bool whole = !ferror(out);
    if (fclose(out) == 0 && whole)
        return text;
    free(text);
    return NULL;
}

static void respond(struct exchange *x, const struct asset *a)
{
    size_t bytes = (size_t)(a->end - a->text);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(bytes, (void *)(uintptr_t)a->text, MHD_RESPMEM_PERSISTENT);
    if (response)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, a->type);
    x->sent_bytes = bytes;
    exchange_respond(x, MHD_HTTP_OK, response);
}

void page_asset(struct exchange *x)
{
    for (size_t i = 0; i < ARRAY_LEN(assets); i++)
        if (strcmp(assets[i].file, x->rest) == 0) {
            respond(x, &assets[i]);
            return;
        }
    exchange_status_error(x, MHD_HTTP_NOT_FOUND, "the page has no such part");
}
