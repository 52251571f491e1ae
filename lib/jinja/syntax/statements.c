/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the statements of a template into a tree. */
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/jinja/syntax/parser.h"

/* Statements up to a block that begins with one of these words (NULL ends the list); the word is
 * taken. No words: up to the end of the template. */
static const char *parse_body(struct jparser *p, struct jnodes *body, const char *const *ends);

static void end_block(struct jparser *p)
{
    if (p->at->kind != JTOKEN_BLOCK_END)
        junexpected(p);
    p->at++;
}

static void parse_until(struct jparser *p, struct jnodes *body, const char *end)
{
    const char *const ends[] = {end, NULL};
    end_block(p);
    parse_body(p, body, ends);
}

static struct jnode *parse_for(struct jparser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct jnode *n = jnode_new(p, JNODE_FOR);
    n->a = jparse_target(p, false);
    jexpect_word(p, "in");
    n->b = jparse_tuple(p, false);
    if (jaccept_word(p, "if"))
        n->c = jparse_expression(p, true);
    if (jtoken_is(p->at, "recursive"))
        jheap_fail(p->h, "recursive loops are not supported");
    end_block(p);
    p->loops++;
    bool otherwise = strcmp(parse_body(p, &n->list, ends), "else") == 0;
    p->loops--;
    if (otherwise)
        parse_until(p, &n->other, "endfor");
    return n;
}

static struct jnode *parse_if(struct jparser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jnode *first = jnode_new(p, JNODE_IF), *n = first;
    for (;;) {
        n->a = jparse_tuple(p, false);
        end_block(p);
        const char *end = parse_body(p, &n->list, ends);
        if (strcmp(end, "else") == 0)
            parse_until(p, &n->other, "endif");
        if (strcmp(end, "elif") != 0)
            return first;
        struct jnode *next = jnode_new(p, JNODE_IF);
        jnodes_add(p, &n->other, next);
        n = next;
    }
}

static struct jnode *parse_set(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_SET);
    n->a = jparse_target(p, true);
    if (jaccept_op(p, JOP_ASSIGN)) {
        n->b = jparse_tuple(p, true);
        return n;
    }
    n->kind = JNODE_SET_BLOCK;
    n->b = jparse_filters(p, NULL, false);
    parse_until(p, &n->list, "endset");
    return n;
}

/* After "(". */
static void parse_parameters(struct jparser *p, struct jnode *n)
{
    for (bool first = true; !jaccept_op(p, JOP_RPAREN); first = false) {
        if (!first) {
            jexpect_op(p, JOP_COMMA);
            if (jaccept_op(p, JOP_RPAREN))
                return;
        }
        struct jnode *parameter = jnode_new(p, JNODE_NAME);
        parameter->name = jexpect_name(p);
        jnodes_add(p, &n->parameters, parameter);
        if (jaccept_op(p, JOP_ASSIGN))
            jnodes_add(p, &n->defaults, jparse_expression(p, true));
        else if (n->defaults.count > 0)
            junexpected(p);
    }
}

/* Which of the names that a macro does not declare occur between two tokens. */
static uint8_t names_used(const struct jtoken *from, const struct jtoken *to)
{
    unsigned used = 0;
    for (; from < to; from++)
        used |= (jtoken_is(from, "varargs") ? JMACRO_VARARGS : 0u) |
                (jtoken_is(from, "kwargs") ? JMACRO_KWARGS : 0u) |
                (jtoken_is(from, "caller") ? JMACRO_CALLER : 0u);
    return (uint8_t)used;
}

static struct jnode *parse_macro(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_MACRO);
    unsigned loops = p->loops;
    n->name = jexpect_name(p);
    jexpect_op(p, JOP_LPAREN);
    parse_parameters(p, n);
    const struct jtoken *from = p->at;
    p->loops = 0;
    parse_until(p, &n->list, "endmacro");
    p->loops = loops;
    n->op = names_used(from, p->at);
    return n;
}

static struct jnode *parse_call_block(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_CALL_BLOCK);
    unsigned loops = p->loops;
    if (jaccept_op(p, JOP_LPAREN))
        parse_parameters(p, n);
    n->a = jparse_expression(p, true);
    if (n->a->kind != JNODE_CALL)
        junexpected(p);
    const struct jtoken *from = p->at;
    p->loops = 0;
    parse_until(p, &n->list, "endcall");
    p->loops = loops;
    n->op = names_used(from, p->at);
    return n;
}

static struct jnode *parse_filter_block(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_FILTER_BLOCK);
    n->a = jparse_filters(p, NULL, true);
    parse_until(p, &n->list, "endfilter");
    return n;
}

static struct jnode *parse_with(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_WITH);
    while (p->at->kind != JTOKEN_BLOCK_END) {
        if (n->parameters.count > 0)
            jexpect_op(p, JOP_COMMA);
        jnodes_add(p, &n->parameters, jparse_target(p, false));
        jexpect_op(p, JOP_ASSIGN);
        jnodes_add(p, &n->defaults, jparse_expression(p, true));
    }
    parse_until(p, &n->list, "endwith");
    return n;
}

/* Marks an answer for training; where text is rendered for a model, it is only a scope. */
static struct jnode *parse_generation(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_WITH);
    parse_until(p, &n->list, "endgeneration");
    return n;
}

static struct jnode *parse_jump(struct jparser *p, enum jnode_kind kind)
{
    if (p->loops == 0)
        jheap_fail(p->h, "break or continue outside of a loop");
    return jnode_new(p, kind);
}

static struct jnode *parse_break(struct jparser *p)
{
    return parse_jump(p, JNODE_BREAK);
}

static struct jnode *parse_continue(struct jparser *p)
{
    return parse_jump(p, JNODE_CONTINUE);
}

static struct jnode *parse_print(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_OUTPUT);
    n->a = jparse_expression(p, true);
    return n;
}

/* After the begin of a block. */
static struct jnode *parse_statement(struct jparser *p)
{
    static const struct {
        const char *word;
        struct jnode *(*parse)(struct jparser *);
    } statements[] = {{"for", parse_for},          {"if", parse_if},
                      {"set", parse_set},          {"macro", parse_macro},
                      {"call", parse_call_block},  {"filter", parse_filter_block},
                      {"with", parse_with},        {"generation", parse_generation},
                      {"print", parse_print},      {"break", parse_break},
                      {"continue", parse_continue}};
    for (size_t i = 0; i < ARRAY_LEN(statements); i++)
        if (jaccept_word(p, statements[i].word))
            return statements[i].parse(p);
    junexpected(p);
}

static struct jnode *parse_output(struct jparser *p)
{
    struct jnode *n = jnode_new(p, JNODE_OUTPUT);
    n->a = jparse_tuple(p, true);
    if (p->at->kind != JTOKEN_VARIABLE_END)
        junexpected(p);
    p->at++;
    return n;
}

static const char *taken_end(struct jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (jaccept_word(p, *ends))
            return *ends;
    return NULL;
}

static const char *parse_body(struct jparser *p, struct jnodes *body, const char *const *ends)
{
    const char *end = NULL;
    jheap_enter(p->h);
    while (!end && (ends || p->at->kind != JTOKEN_END)) {
        p->h->line = p->at->line;
        if (p->at->kind == JTOKEN_DATA) {
            struct jnode *n = jnode_new(p, JNODE_DATA);
            n->value = p->at++->value;
            jnodes_add(p, body, n);
        } else if (p->at->kind == JTOKEN_VARIABLE) {
            p->at++;
            jnodes_add(p, body, parse_output(p));
        } else if (p->at->kind == JTOKEN_BLOCK) {
            p->at++;
            end = taken_end(p, ends);
            if (!end) {
                jnodes_add(p, body, parse_statement(p));
                end_block(p);
            }
        } else {
            junexpected(p);
        }
    }
    jheap_leave(p->h);
    return end;
}

struct jnodes jparse(struct jheap *h, struct jtokens *tokens)
{
    struct jparser p = {.h = h, .at = tokens->at};
    struct jnodes body = {0};
    parse_body(&p, &body, NULL);
    return body;
}
