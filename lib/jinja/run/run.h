/* SPDX-License-Identifier: Apache-2.0 */
/* One rendering: scopes, calls, and the parts of the interpreter. Private to lib/jinja. */
#ifndef SLUICE_JINJA_RUN_RUN_H
#define SLUICE_JINJA_RUN_RUN_H

#include <time.h>

#include "lib/jinja/syntax/node.h"

struct jvariable {
    const struct jstring *name; /* compared as a pointer: names of a template are unique */
    struct jvalue value;
};

struct jscope {
    struct jscope *outer;
    struct jvariable *at;
    size_t count, capacity;
    bool kept; /* something that may outlive its statements refers to it */
};

struct jrun {
    struct jheap *h;
    struct jnames *names;
    struct jscope *scope;
    struct jdict *context; /* variables of the caller */
    struct jbuffer *out;
    const struct tm *now;
};

/* ---- statements.c ---- */

enum jflow { JFLOW_NEXT, JFLOW_BREAK, JFLOW_CONTINUE };
enum jflow jexecute(struct jrun *r, const struct jnodes *body);
void jassign(struct jrun *r, const struct jnode *target, struct jvalue v);
void jdefine(struct jrun *r, const struct jstring *name, struct jvalue v); /* in this scope */
void jscope_push(struct jrun *r, struct jscope *outer);

/* ---- loop.c ---- */

struct jrange {
    int64_t first, step;
    size_t count;
};

struct jloop {
    struct jlist *items; /* NULL: those of range */
    struct jrange range;
    size_t next; /* element that is taken next */
    const struct jnode *node;
    struct jscope *outer;
    bool peeked, has_previous, has_changed;
    struct jvalue following, current, previous, changed;
    size_t index0;
};
/* The next element whose condition holds. False: none. */
bool jloop_next(struct jrun *r, struct jloop *loop, struct jvalue *v);
struct jvalue jloop_attribute(struct jrun *r, struct jloop *loop, const struct jstring *name);
/* How many conditions at the start of a loop's body, of an `if` alone and its `elif`s, have the
 * same value in every turn as long as no turn does anything. */
unsigned jloop_constant_conditions(struct jrun *r, const struct jnode *loop);
/* Whether no turn from this one on does anything: those conditions lead to an empty branch. The
 * scope is that of the turn. */
bool jloop_idle(struct jrun *r, const struct jnode *loop, unsigned constant_conditions);

/* ---- evaluate.c ---- */

struct jvalue jevaluate(struct jrun *r, const struct jnode *n);
struct jvalue jbinary(struct jrun *r, enum jop op, const struct jvalue *a, const struct jvalue *b);
struct jvalue jattribute(struct jrun *r, const struct jvalue *of, const struct jstring *name);
struct jvalue jitem(struct jrun *r, const struct jvalue *of, const struct jvalue *key);

/* ---- call.c ---- */

struct jkeyword {
    const struct jstring *name; /* compared as a pointer */
    const struct jstring *key; /* its text, whose bytes remember who wrote them: of ** a client's */
    struct jvalue value;
};

struct jcall {
    struct jvalue *list;
    size_t count;
    struct jkeyword *named;
    size_t named_count;
};

/* Arguments by the position of their parameter; NULL: not given. */
#define JBOUND_MAX 5
struct jbound {
    const struct jvalue *at[JBOUND_MAX];
    const struct jcall *call;
};

typedef struct jvalue jfunction(struct jrun *r, const struct jvalue *in, const struct jbound *a);

struct jrow {
    const char *name;
    jfunction *function;
    /* Names, separated by spaces; "!" after one: it must be given. "*": it takes any. */
    const char *parameters;
};

struct jmacro {
    const struct jnode *node; /* JNODE_MACRO, JNODE_CALL_BLOCK */
    struct jscope *scope;     /* of the definition */
};

/* The row of this name; SIZE_MAX: none. */
size_t jrow_find(const struct jrow *rows, size_t count, const struct jstring *name);
struct jvalue jrow_call(struct jrun *r, const struct jrow *row, const struct jvalue *in,
                        const struct jcall *call);
struct jcall jarguments_of(struct jrun *r, const struct jarguments *args);
struct jvalue jcall_value(struct jrun *r, const struct jvalue *callee, const struct jcall *call);
struct jvalue jfilter(struct jrun *r, const struct jstring *name, const struct jvalue *in,
                      const struct jcall *call);
bool jtest(struct jrun *r, const struct jstring *name, const struct jvalue *in,
           const struct jcall *call);

/* Arguments of a type; `otherwise` if not given. */
int64_t jint_argument(struct jrun *r, const struct jvalue *a, int64_t otherwise);
bool jtruth_argument(const struct jvalue *a, bool otherwise);
const struct jstring *jstring_argument(struct jrun *r, const struct jvalue *a); /* NULL: none */

/* ---- tables of functions ---- */

struct jrows {
    const struct jrow *at;
    size_t count;
};
extern const struct jrows jtext_filters, jlist_filters, jtests, jglobals, jmethods_string;
/* Filters that are generators: they are called when their result is iterated. */
extern const struct jrows jlazy_filters;

/* The method of a value; undefined: it has none of this name. Methods that change a list or dict
 * are rejected, as by jinja2's immutable sandbox. */
struct jvalue jmethod_of(struct jrun *r, const struct jvalue *of, const struct jstring *name);
struct jvalue jmethod_call(struct jrun *r, const struct jmethod *m, const struct jcall *call);

/* ---- globals.c ---- */

/* Element i, which exists. In unsigned arithmetic: only the sum must be a number of 64 bits. */
static inline struct jvalue jrange_at(const struct jrange *range, size_t i)
{
    return jint((int64_t)((uint64_t)range->first + (uint64_t)i * (uint64_t)range->step));
}

/* A list of it; `end` is that of its text. */
struct jvalue jrange_list(struct jrun *r, const struct jrange *range, int64_t end);

/* The range that an expression is, if it is a call of it: for a loop, which needs no list. */
bool jrange_of(struct jrun *r, const struct jnode *n, struct jrange *range);

/* ---- format.c ---- */

struct jvalue jformat_percent(struct jrun *r, const struct jstring *form, const struct jvalue *v);
struct jvalue jformat_braces(struct jrun *r, const struct jstring *form, const struct jcall *call);

#endif
