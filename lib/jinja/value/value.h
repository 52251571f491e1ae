/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the template language, with the semantics of Python's. All are in a heap and immutable,
 * except namespaces, and lists and dicts while their maker fills them. */
#ifndef SLUICE_JINJA_VALUE_VALUE_H
#define SLUICE_JINJA_VALUE_VALUE_H

#include <jansson.h>

#include "lib/jinja/value/heap.h"

/* The origin of a byte: who wrote it. */
enum jorigin { JORIGIN_TEMPLATE, JORIGIN_MESSAGE };

/* UTF-8. `origins` has the origin of each byte; NULL: all are `origin`. */
struct jstring {
    const char *text; /* not NUL-terminated; may hold NULs */
    size_t bytes;
    const uint8_t *origins;
    uint8_t origin;
    bool markup; /* Markup of Python, of the filters safe and escape: what is joined to it is
                 * escaped */
};

enum jkind {
    JUNDEFINED,
    JNONE,
    JBOOL,
    JINT,
    JFLOAT,
    JSTRING,
    JLIST, /* list, tuple, range, view of a dict, generator */
    JDICT,
    JNAMESPACE,
    JMACRO,  /* struct jmacro of lib/jinja/run */
    JGLOBAL, /* a function of the environment, by its number */
    JMETHOD, /* a method bound to a value */
    JLOOP,   /* `loop` */
};

struct jlist;
struct jdict;
struct jmethod;

struct jvalue {
    uint8_t kind;   /* enum jkind */
    uint8_t origin; /* of a JINT, JFLOAT, JBOOL, JNONE: of the characters that it prints */
    union {
        bool truth;
        int64_t integer;
        double real;
        const struct jstring *string;
        const char *missing; /* JUNDEFINED: what is undefined, for errors; NUL-terminated */
        struct jlist *list;
        struct jdict *dict; /* JDICT, JNAMESPACE */
        void *object;       /* JMACRO, JLOOP */
        const struct jmethod *method;
        unsigned number; /* JGLOBAL */
    };
};

enum jlist_form {
    JFORM_LIST,
    JFORM_TUPLE,
    JFORM_RANGE,
    JFORM_KEYS,
    JFORM_VALUES,
    JFORM_ITEMS,
    JFORM_GENERATOR
};

struct jlist {
    struct jvalue *at;
    size_t count, capacity;
    size_t taken; /* JFORM_GENERATOR: elements that an iteration consumed */
    /* JFORM_GENERATOR: adds the elements when they are iterated for the first time; NULL: they are
     * there. What no one iterates has no errors. */
    void (*fill)(void *arg, struct jlist *l);
    void *fill_arg;
    const int64_t *bounds; /* JFORM_RANGE: start, stop, step, as they were given */
    uint8_t form;          /* enum jlist_form */
    uint8_t origin;        /* of the characters between the elements where it is printed */
};

struct jpair {
    struct jvalue key, value;
};

struct jdict { /* in the order of insertion */
    struct jpair *at;
    size_t count, capacity;
    uint8_t origin;
};

struct jmethod {
    struct jvalue self;
    unsigned number; /* of its row */
};

/* ---- makers (value.c) ---- */

struct jvalue jnone(void);
struct jvalue jbool(bool truth);
struct jvalue jint(int64_t integer);
struct jvalue jfloat(double real);
struct jvalue jundefined(struct jheap *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
struct jvalue jstring_value(const struct jstring *s);
struct jvalue jlist_new(struct jheap *h, enum jlist_form form, size_t capacity);
void jlist_add(struct jheap *h, struct jlist *l, struct jvalue v);
struct jvalue jdict_new(struct jheap *h, size_t capacity);
/* Replaces the value of an equal key. Keys are strings, numbers, bool, None or tuples. */
void jdict_set(struct jheap *h, struct jdict *d, struct jvalue key, struct jvalue value);
/* Whether v may be a key of a dict: neither a list nor a dict is in it. jcheck_key fails if not. */
bool jis_key(struct jheap *h, const struct jvalue *v);
void jcheck_key(struct jheap *h, const struct jvalue *v);
/* NULL: no such key. */
struct jvalue *jdict_find(struct jheap *h, const struct jdict *d, struct jvalue key);
struct jvalue *jdict_find_text(struct jheap *h, const struct jdict *d, const char *text,
                               size_t bytes);

/* ---- properties (value.c) ---- */

const char *jtype_name(const struct jvalue *v); /* as Python has it: "str", "list" */
bool jtruth(const struct jvalue *v);
bool jequal(struct jheap *h, const struct jvalue *a, const struct jvalue *b);
/* -1, 0, 1. Fails on types that have no order. */
int jcompare(struct jheap *h, const struct jvalue *a, const struct jvalue *b);
bool jis_number(const struct jvalue *v); /* with bool */
double jreal(const struct jvalue *v);    /* of a number */
/* Elements of a list, characters of a string, keys of a dict, none of undefined. Fails on
 * others. */
struct jlist *jiterate(struct jheap *h, const struct jvalue *v);
bool jcontains(struct jheap *h, const struct jvalue *container, const struct jvalue *v);
size_t jlength(struct jheap *h, const struct jvalue *v);

/* ---- strings (string.c) ---- */

const struct jstring *jstring_of(struct jheap *h, const char *text, size_t bytes, enum jorigin o);
const struct jstring *jstring_copy(struct jheap *h, const char *text, size_t bytes, enum jorigin o);
const struct jstring *jstring_part(struct jheap *h, const struct jstring *s, size_t from,
                                   size_t to);
/* The origin of a text that is made from this one: a message if any byte is from a message. */
enum jorigin jstring_origin(const struct jstring *s);
bool jstring_is(const struct jstring *s, const char *text); /* a short one of ours */
bool jstring_same(struct jheap *h, const struct jstring *a, const struct jstring *b);
/* Offset of the first occurrence in [from, to) of s, or of the last; SIZE_MAX: none. */
size_t jstring_find(struct jheap *h, const struct jstring *s, const struct jstring *part,
                    size_t from, size_t to);
size_t jstring_find_last(struct jheap *h, const struct jstring *s, const struct jstring *part,
                         size_t from, size_t to);
/* Python's length and index: in characters. */
size_t jstring_length(struct jheap *h, const struct jstring *s);
size_t jstring_offset(struct jheap *h, const struct jstring *s,
                      size_t character); /* in bytes, at most s->bytes */
/* Character at `at`; *at moves after it. A byte that is no UTF-8 counts as a character. */
uint32_t jchar_next(const char *text, size_t bytes, size_t *at);
bool jchar_blank(uint32_t c); /* str.isspace */
enum jstrip { JSTRIP_LEFT = 1, JSTRIP_RIGHT = 2, JSTRIP_BOTH = 3 };
/* chars NULL: blanks. */
const struct jstring *jstring_strip(struct jheap *h, const struct jstring *s,
                                    const struct jstring *chars, enum jstrip sides);
/* TITLE: of jinja2's filter, words are between blanks; WORDS: str.title, words are of letters. */
enum jcase { JCASE_UPPER, JCASE_LOWER, JCASE_CAPITAL, JCASE_TITLE, JCASE_WORDS };
const struct jstring *jstring_case(struct jheap *h, const struct jstring *s, enum jcase to);

const struct jstring *jstring_marked(struct jheap *h, const struct jstring *s, bool markup);
/* & < > ' " as entities; Markup as it is. The result is Markup. */
const struct jstring *jstring_escape(struct jheap *h, const struct jstring *s);

/* A string that grows. */
struct jbuffer {
    char *text;
    uint8_t *origins;
    size_t bytes, capacity;
    size_t template_bytes; /* of them written by the template */
};
void jbuffer_add(struct jheap *h, struct jbuffer *b, const char *text, size_t bytes,
                 enum jorigin o);
void jbuffer_text(struct jheap *h, struct jbuffer *b, const char *text, enum jorigin o);
void jbuffer_char(struct jheap *h, struct jbuffer *b, uint32_t c, enum jorigin o);
void jbuffer_string(struct jheap *h, struct jbuffer *b, const struct jstring *s);
const struct jstring *jbuffer_take(struct jheap *h, struct jbuffer *b);
/* a + b, of Markup if one is; in place if a is what was joined last. */
const struct jstring *jstring_join(struct jheap *h, const struct jstring *a,
                                   const struct jstring *b);

/* ---- texts of values (print.c) ---- */

void jprint(struct jheap *h, struct jbuffer *b, const struct jvalue *v); /* str() */
void jprint_repr(struct jheap *h, struct jbuffer *b, const struct jvalue *v);
const struct jstring *jtext(struct jheap *h, const struct jvalue *v); /* str() */
#define JFLOAT_BYTES 40
void jfloat_text(struct jheap *h, double real, char text[JFLOAT_BYTES]); /* repr() */

struct jjson_form {
    bool ascii, sorted;
    const struct jstring *indent;       /* of one level; NULL: one line */
    const struct jstring *item, *colon; /* separators; NULL: ", " (with indent ","), ": " */
};
/* json.dumps */
void jprint_json(struct jheap *h, struct jbuffer *b, const struct jvalue *v,
                 const struct jjson_form *form);

/* ---- border (json.c) ---- */

/* Strings, and everything in them, have origin `o`. */
struct jvalue jvalue_of_json(struct jheap *h, const json_t *json, enum jorigin o);

#endif
