/* SPDX-License-Identifier: Apache-2.0 */
/* Writes calls of tools as GBNF. Arguments that are an object follow the tool's schema; arguments.c
 * has those of models that write them one by one. */

#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/json/text.h"
#include "procs/engine/gateway/api/constraints/writing.h"
#include "procs/engine/gateway/api/request.h"

#define TOKEN_BYTES_MAX 64

/* ---- texts ----------------------------------------------------------------------------------- */

/* The bytes of <name>, of [NAME], or of another control token at the start of a text; 0: it does
 * not begin so. */
static size_t token_bytes(const char *text)
{
    static const char *const others[] = {CALLS_NAMESPACE, CALLS_DSML};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strncmp(text, others[i], strlen(others[i])) == 0)
            return strlen(others[i]);
    if (strncmp(text + strspn(text, "</"), CALLS_DSML, strlen(CALLS_DSML)) == 0)
        return 0;
    bool square = text[0] == '[';
    size_t n = text[0] ? 2 + (square ? strspn(text + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_/")
                                     : strcspn(text + 1, "<>\n"))
                       : 0;
    bool named = n > 2 && n <= TOKEN_BYTES_MAX && (square || text[0] == '<') && text[1] != '[';
    return named && text[n - 1] == (square ? ']' : '>') ? n : 0;
}

/* A part of a literal. */
static void put_inside(FILE *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c < ' ' || c == 0x7f)
            fprintf(out, "\\x%02x", c);
        else
            fputc(c, out);
    }
}

void calls_put_quoted(FILE *out, const char *text, size_t bytes)
{
    fputs(" \"", out);
    put_inside(out, text, bytes);
    fputc('"', out);
}

void calls_put(FILE *out, const char *text)
{
    while (*text) {
        size_t n = token_bytes(text), plain = 0;
        if (n > 0) {
            const char *as = *text == '<' ? " %.*s" : *text == '[' ? " <%.*s>" : " <\"%.*s\">";
            fprintf(out, as, (int)n, text);
            text += n;
            continue;
        }
        do
            plain++;
        while (text[plain] && token_bytes(text + plain) == 0);
        calls_put_quoted(out, text, plain);
        text += plain;
    }
}

/* Steals the value. */
static void put_spelled(FILE *out, const char *spelling, json_t *schema)
{
    fprintf(out, " %s ", spelling);
    if (schema)
        json_dumpf(schema, out, JSON_COMPACT);
    json_decref(schema);
}

void calls_put_schema(FILE *out, json_t *schema)
{
    put_spelled(out, "%json", schema);
}

/* Each argument has the definitions of its tool again, so that the text may be far larger than the
 * request: it ends before it takes more memory. */
int calls_check_size(const struct writing *w, struct error *error)
{
    return ftello(w->out) + ftello(w->rules) <= GRAMMAR_TEXT_BYTES_MAX
               ? 0
               : error_set(error, ERR_BAD_INPUT,
                           "the schemas of the tools take more than %u bytes; leave tools or "
                           "definitions out",
                           GRAMMAR_TEXT_BYTES_MAX);
}

int calls_no_memory(struct error *error)
{
    return error_set(error, ERR_NO_MEMORY, "out of memory (grammar)");
}

/* ---- a call ---------------------------------------------------------------------------------- */

static const json_t *function_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return function ? function : tool;
}
static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(function_of(tool), "name"));
}

/* An object without a schema of its own may be any; where a form needs names, it is empty. */
static json_t *parameters_of(const json_t *tool)
{
    json_t *parameters = json_object_get(function_of(tool), "parameters");
    return json_object_size(parameters) > 0
               ? json_incref(parameters)
               : json_pack("{s:s, s:{}}", "type", "object", "properties");
}

/* A member of JSON before its value. */
static void put_member(const char *before, const char *key, FILE *out)
{
    fputs(" \"", out);
    put_inside(out, before, strlen(before));
    put_inside(out, "\"", 1);
    put_inside(out, key, strlen(key));
    put_inside(out, "\": ", 3);
    fputc('"', out);
}

/* {"name": NAME, "arguments": {...}}, with an id before or behind them where the form has one. */
static void put_named(const struct answer_call *f, const char *name, json_t *parameters, FILE *out)
{
    json_t *value = json_string(name);
    char *quoted = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    bool first = f->id_key && f->numbered, last = f->id_key && !first;
    if (first) {
        put_member("{", f->id_key, out);
        fputs(" \"\\\"\" [0-9]{1,4} \"\\\"\"", out);
    }
    put_member(first ? ", " : "{", f->name_key ? f->name_key : "name", out);
    if (quoted)
        calls_put_quoted(out, quoted, strlen(quoted));
    put_member(", ", f->arguments_key ? f->arguments_key : "arguments", out);
    calls_put_schema(out, json_incref(parameters));
    if (last) {
        put_member(", ", f->id_key, out);
        fputs(" \"\\\"\" [0-9A-Za-z]{9} \"\\\"\"", out);
    }
    calls_put_quoted(out, "}", 1);
    free(quoted);
    json_decref(value);
}

/* The recipient is in the channel's part of the header, or before it, as templates write it. */
static void put_channel_call(const char *name, json_t *parameters, FILE *out)
{
    fputs(" (<|channel|> \"commentary to=functions.", out);
    put_inside(out, name, strlen(name));
    fputs("\" | \" to=functions.", out);
    put_inside(out, name, strlen(name));
    fputs("\" <|channel|> \"commentary\") (\" \"? <|constrain|> \"json\" | \" json\")? <|message|>",
          out);
    calls_put_schema(out, json_incref(parameters));
}

static int put_body(struct writing *w, const char *name, json_t *parameters, struct error *error)
{
    const struct answer_form *form = w->c->form;
    const struct answer_call *f = &form->call;
    FILE *out = w->out;
    if (form->channels) {
        put_channel_call(name, parameters, out);
        return 0;
    }
    if (f->kind == ANSWER_NAMED || f->kind == ANSWER_LIST) {
        put_named(f, name, parameters, out);
        return 0;
    }
    if (f->kind == ANSWER_PYTHON) {
        if (!answer_call_can_name(f, name))
            return error_set(error, ERR_BAD_INPUT,
                             "tool '%.60s': this model's calls have no such name; use letters, "
                             "digits, '_', '-' and '.'",
                             name);
        calls_put_quoted(out, name, strlen(name));
        calls_put_quoted(out, "(", 1);
        put_spelled(out, "%python", json_incref(parameters));
        calls_put_quoted(out, ")", 1);
        return 0;
    }
    calls_put(out, f->call_open);
    calls_put(out, f->prefix);
    calls_put_quoted(out, name, strlen(name));
    fputs(*f->prefix ? " \":\" [0-9]{1,4}" : "", out);
    if (f->id_open && *f->id_open) {
        calls_put(out, f->id_open);
        fputs(" [0-9A-Za-z]{9}", out);
    }
    if (f->kind == ANSWER_GEMMA) { /* name_end is the object's first character */
        put_spelled(out, "%gemma", json_incref(parameters));
        return 0;
    }
    fputs(f->attributes ? " \"\\\" index=\\\"\" [0-9]{1,4} \"\\\"\"" : "", out);
    calls_put(out, f->name_end);
    if (f->kind == ANSWER_OBJECT) {
        calls_put_schema(out, json_incref(parameters));
    } else {
        fputs(" nl", out);
        if (calls_put_arguments(w, name, parameters, error) != 0)
            return -1;
    }
    calls_put(out, f->call_close);
    return 0;
}

static int put_without_schema(struct writing *w, const char *name, struct error *error)
{
    json_t *any = json_pack("{s:s}", "type", "object");
    int rc = any ? put_body(w, name, any, error) : calls_no_memory(error);
    json_decref(any);
    if (rc == 0)
        w->c->left_out(w->c->left_out_arg, name);
    return rc;
}

/* One tool must not cost the others their schemas: of a body that cannot be written nothing stays,
 * and the tool's calls have any arguments where that is allowed. */
static int put_chosen(struct writing *w, const char *name, json_t *parameters, struct error *error)
{
    struct writing before = *w;
    off_t out = ftello(w->out), rules = ftello(w->rules);
    size_t lines = json_array_size(w->lines);
    int rc = put_body(w, name, parameters, error);
    rc = rc == 0 ? calls_check_size(w, error) : rc;
    if (rc == 0 || !w->c->left_out || error->code != ERR_BAD_INPUT)
        return rc;
    *w = before;
    while (json_array_size(w->lines) > lines)
        json_array_remove(w->lines, json_array_size(w->lines) - 1);
    return fseeko(w->out, out, SEEK_SET) == 0 && fseeko(w->rules, rules, SEEK_SET) == 0
               ? put_without_schema(w, name, error)
               : calls_no_memory(error);
}

static bool is_chosen(const struct calls *c, const json_t *tool)
{
    return name_of(tool) && (!c->name || strcmp(c->name, name_of(tool)) == 0);
}

static int put_tools(struct writing *w, struct error *error)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(w->c->tools, i, tool)
    {
        const char *name = name_of(tool);
        bool chosen = is_chosen(w->c, tool);
        json_t *parameters = parameters_of(tool);
        fprintf(w->out, "tool%zu ::=", i);
        w->tool = i;
        int rc = json_array_insert_new(w->lines, i, json_string(name ? name : ""));
        if (rc != 0)
            calls_no_memory(error);
        if (rc == 0 && chosen)
            rc = put_chosen(w, name, parameters, error);
        json_decref(parameters);
        if (rc != 0 || calls_check_size(w, error) != 0)
            return -1;
        fputs(chosen ? "\n" : " \"\"\n", w->out);
    }
    return 0;
}

static bool put_choice(const struct calls *c, FILE *out)
{
    const json_t *tool;
    size_t i;
    bool any = false;
    fputs("any ::=", out);
    json_array_foreach(c->tools, i, tool)
    {
        if (!is_chosen(c, tool))
            continue;
        fprintf(out, "%s tool%zu", any ? " |" : "", i);
        any = true;
    }
    fputs("\n", out);
    return any;
}

static void put_channel_rules(FILE *out)
{
    fputs("nl ::= \"\"\ncall ::= any\ncalls ::= any\nmore ::= any\n", out);
}

static bool in_list(const struct answer_call *f)
{
    return f->kind == ANSWER_LIST || f->kind == ANSWER_PYTHON;
}

/* What stands between the marks. */
static void put_calls(const struct calls *c, FILE *out)
{
    const struct answer_call *f = &c->form->call;
    if (in_list(f))
        fprintf(out, "gap ::= [ \\n]{0,8}\nrest ::= gap \"[\" gap any%s gap \"]\" nl",
                c->one ? "" : " (gap \",\" gap any)*");
    else
        fprintf(out, "rest ::= nl any%s nl", !c->one && f->block ? " (nl any)*" : "");
}

static void put_rules(const struct calls *c, FILE *out)
{
    const struct answer_call *f = &c->form->call;
    bool together = f->block || in_list(f);
    const char *blocks = !c->one && !together ? " (nl call)*" : "";
    fputs("nl ::= \"\\n\"?\n", out);
    if (f->kind == ANSWER_PAIRS || f->kind == ANSWER_NESTED)
        calls_put_texts(out, f);
    put_calls(c, out);
    calls_put(out, f->close);
    fputs("\ncall ::=", out);
    calls_put(out, f->open);
    fprintf(out, " rest\ncalls ::= call%s tail\nmore ::=", blocks);
    calls_put(out, strstr(f->open, calls_trigger(f)) + strlen(calls_trigger(f)));
    fprintf(out, " rest%s tail\ntail ::= (", blocks);
    calls_put(out, c->form->tail ? c->form->tail : "");
    fputs(c->form->tail ? ")?\n" : "\"\")\n", out);
}

const char *calls_trigger(const struct answer_call *f)
{
    return f->kind == ANSWER_NESTED ? CALLS_NAMESPACE : f->typed ? "<" CALLS_DSML : f->open;
}

bool calls_have_grammar(const struct answer_form *form)
{
    return form->channels || form->call.open;
}

/* The tools, then the arguments. */
static int put_both(struct writing *w, struct error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!w->lines || !(w->rules = open_memstream(&text, &bytes)))
        return calls_no_memory(error);
    int rc = put_tools(w, error);
    if (fclose(w->rules) != 0 && rc == 0)
        rc = calls_no_memory(error);
    if (rc == 0)
        fwrite(text, 1, bytes, w->out);
    free(text);
    return rc;
}

int calls_write(const struct calls *c, FILE *out, json_t *lines, struct error *error)
{
    struct writing w = {.c = c, .out = out, .lines = lines};
    if (put_both(&w, error) != 0)
        return -1;
    if (!put_choice(c, out))
        return c->name ? error_set(error, ERR_BAD_INPUT, "'tools' has no function '%.60s'", c->name)
                       : error_set(error, ERR_BAD_INPUT, "'tools' has no function");
    if (c->form->channels)
        put_channel_rules(out);
    else
        put_rules(c, out);
    return 0;
}
