/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of an answer: reasoning, content, calls of tools, split while the text arrives. What is no
 * well-formed call stays content, with its marks, so that no text is lost. Bounded: what is held
 * back until it is decided has at most ANSWER_BYTES_MAX bytes. */
#ifndef SLUICE_MODEL_CHAT_ANSWER_H
#define SLUICE_MODEL_CHAT_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/model/chat/calls/form.h"
#include "lib/model/chat/calls/types.h"

#define ANSWER_CALL_BYTES_MAX ((size_t)48 << 10) /* with its marks; a longer call is content */
#define ANSWER_BYTES_MAX      ((size_t)64 << 10)

struct answer_marks {
    const char *open, *close; /* NULL: there is none */
};

/* Whether calls have no marks: then nothing but their text tells them from other answers. */
static inline bool answer_is_unmarked(const struct answer_call *call)
{
    return call->open && !*call->open;
}

/* Whether a call can have this name: as in Python it has none of the characters that end it
 * there. */
bool answer_call_can_name(const struct answer_call *call, const char *name);

/* Headers of answers in channels as rules of GBNF, whose <name> is a control token: a message of
 * thoughts, one to the user before a call, and the header of the answer. */
#define ANSWER_CHANNEL_RULES                                                                       \
    "answer-think ::= <|channel|> \"analysis\" <|message|> .* <|end|> <|start|> \"assistant\"\n"   \
    "answer-note ::= <|channel|> \"commentary\" <|message|> .* <|end|> <|start|> \"assistant\"\n"  \
    "answer-final ::= <|channel|> \"final\" (\" \"? <|constrain|> \"json\")? <|message|>\n"

/* The marks in a chat template. */
struct answer_form {
    struct answer_marks reasoning;
    struct answer_marks content; /* left out where they first occur in it */
    bool content_optional;       /* texts may lack these marks */
    const char *tail;            /* left out likewise; NULL: none */
    struct answer_call call;
    bool channels;                  /* messages with headers; calls only if call.open */
    const struct chat_types *types; /* of arguments; borrowed, may be NULL */
};

/* Finds the marks that a chat template writes or names. They are static, as answer.tbl.h has
 * them. */
struct answer_form answer_form_of(const char *chat_template, size_t bytes);
/* The number of bytes at the end of a prompt that are the opening mark of reasoning and the blanks
 * after it, so that the answer begins with reasoning. 0: it does not. */
size_t answer_front(const struct answer_form *f, const char *prompt, size_t bytes);
/* Whether a text ends inside of reasoning. */
bool answer_left_open(const struct answer_form *f, const char *text, size_t bytes);

/* Whether an id of a call has nine letters and digits, as Mistral's templates demand. */
#define ANSWER_SHORT_ID_BYTES 9
bool answer_id_is_short(const char *id, size_t bytes);

/* Fills marks[] with the marks of a form, which must outlive the list, and returns their number: at
 * most ANSWER_MARKS_MAX, of at most ANSWER_MARK_BYTES_MAX bytes each. Where a vocabulary has (parts
 * of) them as control tokens, their names must be in the text that is split. */
#define ANSWER_MARKS_MAX      16
#define ANSWER_MARK_BYTES_MAX 64
uint32_t answer_marks(const struct answer_form *f, const char *marks[ANSWER_MARKS_MAX]);

enum answer_part { ANSWER_REASONING, ANSWER_CONTENT, ANSWER_CALL };

/* A piece of the text of a part. For a call, text is NULL, and the piece has `name`, `arguments` (a
 * JSON text) and `id`, which is NULL if the model wrote none. All texts are borrowed. */
struct answer_piece {
    enum answer_part part;
    const char *text;
    size_t bytes;
    uint64_t from; /* bytes of the answer before this text, or before this call with its marks */
    const char *name, *arguments, *id;
};
typedef void answer_sink(void *arg, const struct answer_piece *piece);

enum answer_state {
    ANSWER_START,
    ANSWER_IN_REASONING,
    ANSWER_IN_CONTENT,
    ANSWER_IN_CALL,
    ANSWER_IN_HEADER, /* channels.c */
    ANSWER_IN_MESSAGE
};

struct answer {
    struct answer_form form;
    enum answer_state state;
    bool skip_blanks;          /* before the next part */
    bool begun, ended, tailed; /* the marks of the content have occurred */
    bool front;       /* a call without marks may begin here: no content was given before */
    bool bare;        /* the call has no opening mark */
    bool closed;      /* such a call has ended; another one may follow */
    bool thinking;    /* the call is in reasoning that was not closed yet */
    size_t lead;      /* blanks before the call that are held, too */
    char *held;       /* malloc'ed; not decided yet */
    uint64_t decided; /* bytes of the answer before those that are held */
    size_t bytes, capacity, searched;
    /* channels.c: of the message; bytes of the header before a call; the mark at the start is
     * text */
    enum answer_part part;
    size_t header;
    bool whole_start;
    answer_sink *sink;
    void *arg;
};

/* Starts to split an answer, whose pieces go to `sink`. inside: the answer begins with reasoning.
 * What the form points to must outlive the answer. The caller calls answer_close. */
void answer_open(struct answer *a, const struct answer_form *form, bool inside, answer_sink *sink,
                 void *arg);
/* Takes the next bytes of an answer, which are whole characters of UTF-8; end: there are no more.
 * 0, or -1 when memory is short, and then the bytes are lost. */
int answer_take(struct answer *a, const char *text, size_t bytes, bool end);
void answer_close(struct answer *a);

#endif
