/* SPDX-License-Identifier: Apache-2.0 */
/* A completion: the answer to a request, from the text of compute to the bytes that its client
 * gets.
 *
 * Text arrives token by token. It is split into parts where the request's form has marks of them
 * (lib/model/chat/answer.h). A completion that is streamed passes each part to its dialect,
 * which writes events into `out`; else the text is kept, and the dialect writes all of it at the
 * end. Pure: no connection, no calls. */
#ifndef SLUICE_ENGINE_GATEWAY_API_COMPLETION_H
#define SLUICE_ENGINE_GATEWAY_API_COMPLETION_H

#include "procs/engine/gateway/api/request.h"
#include "procs/engine/gateway/http/buffer.h"

#define COMPLETION_MAGIC       0x434f4d50u
#define COMPLETION_ID_BYTES    25
#define COMPLETION_STATE_BYTES 64

/* Why an answer ended: at max_tokens or the end of the context; at a token that ends answers; at
 * a stop text; at such a token, with calls of tools before it. */
enum finish { FINISH_LENGTH, FINISH_END, FINISH_STOP_TEXT, FINISH_CALLS };

struct completion {
    uint32_t magic; /* once it is open */
    const struct dialect *dialect;
    struct api_request request;         /* owned */
    char id[COMPLETION_ID_BYTES];       /* hexadecimal digits */
    int64_t created;                    /* wall clock, seconds */
    const char *model;                  /* its name; borrowed */
    uint64_t new_tokens, prompt_tokens; /* new: those of the text, none of a stop or the prompt */
    const json_t *stats; /* of the engine, at the end: times, kept tokens; borrowed; NULL: none */
    enum finish finish;
    uint32_t stop;  /* with FINISH_STOP_TEXT: which of the request's stop texts */
    unsigned calls; /* of tools, so far */
    size_t tokens_taken, characters, text_bytes; /* of the tokens so far */
    double logprob_sum; /* of the tokens so far, where they are requested or rank the answer */
    /* Of a request with several answers: the number of this one; the first, whose `out` has the
     * events of all; the next of a response that is not streamed. NULL: none. Borrowed. */
    unsigned number;
    struct completion *first, *next;
    bool others;           /* of them are not complete */
    uint64_t other_tokens; /* of the other answers */
    struct quota *quota;   /* that counts the buffers; borrowed */
    struct stored
        *stored;       /* where the response goes if the request says so; borrowed; NULL: nowhere */
    struct buffer out; /* streamed: events to be sent; else the text so far */
    /* with log-probabilities (tokens.c). Streamed: those that were not sent; else all of them */
    struct buffer tokens;
    /* for dialects that repeat texts that they have sent, counted, too: of the open part; of those
     * that ended */
    struct buffer kept, done;
    struct answer answer; /* splits the text of a completion that is streamed */
    /* of the dialect, all zeros at the start */
    _Alignas(8) unsigned char state[COMPLETION_STATE_BYTES];
    bool written;         /* since the caller set it to false */
    bool failed;          /* something did not fit: the output is incomplete */
    size_t missing_bytes; /* did not fit, the last time */
    bool too_long;        /* completion_whole: longer than all buffers together */
    bool broken;          /* and no space for an error: the connection is to be closed */
};

/* The parts of a whole answer; a part that it has not is empty. */
struct completion_parts {
    const struct completion *of;
    const char *text[2]; /* ANSWER_REASONING, ANSWER_CONTENT */
    size_t bytes[2];
    /* An array of {"name", "arguments"} and, if the model wrote one, "id"; NULL: none. */
    const json_t *calls;
    const struct completion_parts *next; /* of the request's next answer; NULL: none */
};

/* The request has been parsed. It is freed by completion_free in any state. */
void completion_open(struct completion *c);
void completion_free(struct completion *c);
/* Makes c another answer to the request of `first`, which stays the request's owner. */
void completion_open_other(struct completion *c, struct completion *first, unsigned number);
/* Whether the answer is split into parts. */
bool completion_splits(const struct completion *c);

/* Whether all that may be in the answer is there, although the model writes more. */
bool completion_is_over(const struct completion *c);

/* compute has taken the request: the answer begins, with what the template wrote of it. */
void completion_begin(struct completion *c);
/* More text of the answer, whole characters. with_tokens: those that tokens_take took belong to
 * it. */
void completion_text(struct completion *c, const char *text, size_t bytes, bool with_tokens);
/* Events that are harmless if they do not fit. */
void completion_progress(struct completion *c, const struct engine_progress *p);
void completion_keep_alive(struct completion *c);
/* The text is complete. Streamed: the last events of this answer, and, unless there are `others`,
 * of the response. stats: of the engine, until the caller has the whole response, or NULL. */
void completion_end(struct completion *c, enum finish finish, const json_t *stats);
/* Streamed: the last event is an error. Without space it replaces events that were not sent yet;
 * if that is not enough, the completion is `broken`, so that an incomplete stream never looks
 * complete. */
void completion_fail(struct completion *c, unsigned status, const struct error *error);
/* Not streamed: the body of the response, malloc'ed, with all answers from c on. NULL without
 * memory, or if it is longer than all buffers together. Sets c->finish. */
char *completion_whole(struct completion *c, size_t *bytes);

/* The arguments of a call as an object, for dialects that have no text of them. A new reference;
 * NULL without memory. What the model wrote instead of an object is its member "arguments". */
json_t *completion_arguments(const char *arguments);

/* So many more bytes of the completion do not fit. */
void completion_does_not_fit(struct completion *c, size_t bytes);
/* Of its answer, with those that did not fit. */
size_t completion_bytes(const struct completion *c);

/* For dialects. An event, whole or not at all; steals the object; NULL: no memory. name: NULL,
 * or where the framing has names. */
void completion_event(struct completion *c, const char *name, json_t *object);
/* Bytes of the framing that are no event. */
void completion_put(struct completion *c, const char *text);

/* tokens.c: tokens with their log-probabilities, in a counted buffer. */
struct token {
    const char *text; /* its bytes: not always whole characters */
    size_t bytes;
    double logprob; /* NaN: the first token of a prompt has none */
    size_t offset;  /* in characters of the answer */
    size_t tops;    /* how many alternatives follow, for token_top */
    bool content;   /* it has bytes of the content (tokens_mark) */
    const char *at;
};
/* Takes the first `count` tokens of a reply, if the request wants log-probabilities. */
void tokens_take(struct completion *c, const struct engine_next *next, size_t count);
/* Where an answer is split: the tokens that have bytes of a piece are those of the content, each
 * once; those before it that no piece had are not. Pieces come in their order; *at begins at 0, and
 * is behind the last token that begins before the end of the piece. Returns the first token of the
 * piece, as a place like *at. */
size_t tokens_mark(struct buffer *tokens, size_t *at, const struct answer_piece *p);
/* The next token of a list; *at begins at 0. False: there are no more. */
bool tokens_next(const struct buffer *tokens, size_t *at, struct token *out);
/* The next alternative of a token that tokens_next gave; offset and tops are 0. */
bool token_top(struct token *t, struct token *out);

#endif
