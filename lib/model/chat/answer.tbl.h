/* SPDX-License-Identifier: Apache-2.0 */
/* Marks that models write around parts of an answer. A row is used if the chat template has its last
 * mark; the first such row of each kind counts.
 *
 * REASONING(open, close)  thoughts in front of the answer
 * CALL(open, close)       a call of a tool: a JSON object with `name` and `arguments`
 *
 * No include guard. */
#ifndef REASONING
#define REASONING(...)
#endif
#ifndef CALL
#define CALL(...)
#endif
REASONING("<think>", "</think>")
REASONING("<seed:think>", "</seed:think>")
CALL("<tool_call>", "</tool_call>")
#undef REASONING
#undef CALL
