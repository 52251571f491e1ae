/* The page for people: three files that are part of the program, and tables in them made here, so
 * that the numbers are there without a script, too. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/base/assert.h"
#include "lib/base/bytes.h"
#include "lib/json/lookup.h"
#include "procs/engine/gateway/gateway.h"

#define MARK "<!--NUMBERS-->"
/* The assembler puts a file's bytes where the symbols say. */
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
EMBED(html, "dashboard.html");
EMBED(css, "dashboard.css");
EMBED(js, "dashboard.js");

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
    char private[16], held[16], name[DOCUMENT_NAME_BYTES];
    const char *state = document_text(row, "state");
    fputs("<tr><td>", out);
    escaped(out, document_name(row, name));
    fprintf(out, "</td><td%s>", strcmp(state, "ready") == 0 ? "" : " class=\"bad\"");
    escaped(out, state);
    fputs("</td><td class=\"w\">", out);
    escaped(out, document_text(row, "wait"));
    fprintf(out, "</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%s</td>",
            document_u64(row, "restarts"),
            bytes_format(document_u64(row, "private_bytes"), private));
    fprintf(out, "<td class=\"n\">%s</td><td class=\"w\">",
            bytes_format(document_u64(row, "lease_bytes"), held));
    escaped(out, document_text(row, "last_words"));
    fputs("</td></tr>\n", out);
}

/* By the clock of this machine's users, in UTC: without a script nobody knows the reader's zone. */
static void death_row(FILE *out, const json_t *death)
{
    char name[DOCUMENT_NAME_BYTES], when[32] = "";
    time_t seconds = (time_t)(document_u64(death, "wall_ms") / 1000);
    struct tm tm;
    if (gmtime_r(&seconds, &tm))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    fprintf(out, "<tr><td>%s</td><td>", when);
    escaped(out, document_name(death, name));
    fputs("</td><td>", out);
    escaped(out, document_text(death, "cause"));
    fputs("</td><td class=\"w\">", out);
    escaped(out, document_text(death, "words"));
    bool restarted = json_is_true(json_object_get(death, "restarted"));
    fprintf(out, "</td><td>%s</td></tr>\n", restarted ? "yes" : "no");
}

static void deaths(FILE *out, const json_t *doc)
{
    if (document_deaths(doc) == 0)
        return;
    fputs("<table class=\"rows ends\"><tr><th>ended (UTC)</th><th>process</th><th>cause</th>"
          "<th class=\"w\">last words</th><th>restarted</th></tr>\n",
          out);
    for (size_t i = 0; i < document_deaths(doc); i++)
        death_row(out, document_death(doc, i));
    fputs("</table>\n", out);
}

static void figure(FILE *out, const char *name, const char *text)
{
    fprintf(out, "<tr><th>%s</th><td>", name);
    escaped(out, text);
    fputs("</td></tr>\n", out);
}

static void figure_bytes(FILE *out, const char *name, const json_t *doc, const char *path)
{
    char text[16];
    figure(out, name, bytes_format(document_u64(doc, path), text));
}

static void figure_counter(FILE *out, const char *name, const json_t *doc, const char *service,
                           const char *counter)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, document_counter(doc, service, counter));
    figure(out, name, text);
}

static void figures(FILE *out, const json_t *doc)
{
    char text[64];
    uint64_t uses = document_counter(doc, "compute", "uses");
    double hits = (double)document_counter(doc, "compute", "hits");
    fputs("<table>\n", out);
    figure(out, "state", document_text(doc, "state"));
    figure(out, "model", document_text(doc, "model.path"));
    figure_bytes(out, "budget", doc, "memory.budget_bytes");
    figure_bytes(out, "used", doc, "memory.used_bytes");
    figure_bytes(out, "arena", doc, "memory.arena_quota_bytes");
    figure_counter(out, "new tokens", doc, "compute", "tokens_decode");
    figure_counter(out, "prompt tokens", doc, "compute", "tokens_prefill");
    snprintf(text, sizeof text, "%.1f %%", uses ? 100.0 * hits / (double)uses : 0.0);
    figure(out, "experts found resident", text);
    snprintf(text, sizeof text, "%.1f s",
             (double)document_counter(doc, "compute", "stall_ns") / NS_PER_S);
    figure(out, "waited for experts", text);
    bytes_format(document_counter(doc, "loader", "bytes_read"), text);
    figure(out, "read", text);
    figure_counter(out, "prefetches used", doc, "cache", "prefetches_used");
    figure_counter(out, "prefetches in vain", doc, "cache", "prefetches_wasted");
    figure_counter(out, "HTTP requests", doc, "gateway", "requests");
    fputs("</table>\n", out);
}

char *page_make(struct gateway *g, const json_t *doc, size_t *bytes)
{
    char *text = NULL;
    (void)g;
    const char *mark = strstr(gateway_html, MARK);
    sl_assert(mark != NULL);
    FILE *out = open_memstream(&text, bytes);
    if (!out)
        return NULL;
    fwrite(gateway_html, 1, (size_t)(mark - gateway_html), out);
    fputs("<table class=\"rows procs\"><tr><th>process</th><th>state</th><th class=\"w\">waits "
          "for</th><th class=\"n\">restarts</th>"
          "<th class=\"n\">private</th><th class=\"n\">held</th><th class=\"w\">last "
          "words</th></tr>\n",
          out);
    for (size_t i = 0; i < document_processes(doc); i++)
        process_row(out, document_row(doc, i));
    fputs("</table>\n", out);
    deaths(out, doc);
    figures(out, doc);
    fputs(mark + strlen(MARK), out);
    bool whole = !ferror(out);
    if (fclose(out) == 0 && whole)
        return text;
    free(text);
    return NULL;
}

static void asset(struct exchange *x, const char *type, const char *text, const char *end)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        (size_t)(end - text), (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
    if (response)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    exchange_answer(x, MHD_HTTP_OK, response);
}

void page_style(struct exchange *x)
{
    asset(x, "text/css; charset=utf-8", gateway_css, gateway_css_end);
}

void page_script(struct exchange *x)
{
    asset(x, "text/javascript; charset=utf-8", gateway_js, gateway_js_end);
}
