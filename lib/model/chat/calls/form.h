/* SPDX-License-Identifier: Apache-2.0 */
/* The form in which a model writes calls of tools. */
#ifndef SLUICE_MODEL_CHAT_CALLS_FORM_H
#define SLUICE_MODEL_CHAT_CALLS_FORM_H

#include <stdbool.h>

/* A row of CALL in answer.tbl.h. */
struct answer_call {
    const char *sign, *open, *close; /* open NULL: there are no calls; "": they have no marks */
    enum answer_kind {
        ANSWER_NAMED,
        ANSWER_PAIRS,
        ANSWER_NESTED,
        ANSWER_OBJECT,
        ANSWER_GEMMA,
        ANSWER_LIST,
        ANSWER_PYTHON
    } kind;
    const char *call_open, *name_end, *call_close, *prefix, *key_open, *key_end, *value_open,
        *value_close, *id_open;
    const char *name_key, *arguments_key, *id_key;
    bool block, lines, python, numbered, typed, attributes;
};

#endif
