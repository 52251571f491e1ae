/* SPDX-License-Identifier: Apache-2.0 */
/* One model for each form of calls (lib/model/chat/answer.tbl.h): it answers FAMILY_ASK with
 * thoughts, where its family has them, a text and a call of FAMILY_TOOLS's tool. Used by the
 * scenarios and by tests/peers. */
#ifndef SLUICE_TESTS_SCENARIO_FAMILIES_H
#define SLUICE_TESTS_SCENARIO_FAMILIES_H

#include "tests/scenario/scripted.h"

#define FAMILY_ASK "Look, please: A"
/* The family coder answers a text that ends with "B" with this one. */
#define FAMILY_DONE "It is done."
/* The same family writes this between a text and another one. */
#define FAMILY_MIDDLE "x = 1"

/* A parameter of each type; models that write arguments one by one write none of the types. */
#define FAMILY_PROPERTIES                                                                          \
    "\"depth\":{\"type\":\"integer\"},\"deep\":{\"type\":\"boolean\"},\"name\":{\"type\":"         \
    "\"string\"},"                                                                                 \
    "\"ratio\":{\"type\":\"number\"},\"list\":{\"type\":\"array\"},\"where\":{\"anyOf\":[{"        \
    "\"type\":"                                                                                    \
    "\"object\"},{\"type\":\"null\"}]},\"none\":{\"type\":[\"integer\",\"null\"]},\"size\":{"      \
    "\"type\":\"string\",\"enum\":[\"small\",\"big\"]}"
#define FAMILY_TOOLS                                                                               \
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"Looks.\","          \
    "\"parameters\":{\"type\":\"object\",\"properties\":{" FAMILY_PROPERTIES "}}}}]"
#define FAMILY_ARGUMENTS                                                                           \
    "{\"depth\":3,\"deep\":true,\"name\":\"007\",\"ratio\":0.5,\"list\":[1,\"b\"],\"where\":"      \
    "{\"a\":1},\"none\":null,\"size\":\"big\"}"

struct family {
    const char *name;
    struct script script;
    const char *reasoning, *content; /* "": none */
    const char *id;                  /* of the call; NULL: the gateway makes it */
    const char *arguments;           /* of the call; NULL: FAMILY_ARGUMENTS */
};

/* Up to one without a name. */
extern const struct family families[];

#endif
