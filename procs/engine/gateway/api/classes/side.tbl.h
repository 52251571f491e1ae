/* SPDX-License-Identifier: Apache-2.0 */
/* BEGINS(text): how the instruction of a side request begins, in lower case, as public clients send
 * it: in the system prompt, or in the last message. */

/* Open WebUI: titles, tags, follow-up questions, queries of a search, completions of an input */
BEGINS("### task:")
BEGINS("your task is to reflect the speaker's likely facial expression through a fitting emoji")
/* Claude Code: topics, titles, names of sessions */
BEGINS("analyze if this message indicates a new conversation topic")
BEGINS("summarize this coding conversation in under")
BEGINS("please write a 5-10 word title")
BEGINS("generate a concise, sentence-case title")
/* OpenCode */
BEGINS("you are a title generator")
/* LibreChat */
BEGINS("provide a concise, 5-word-or-less title")
BEGINS("detect user language and write in the same language an extremely concise title")
/* Zed */
BEGINS("generate a concise 3-7 word title")
/* others */
BEGINS("generate a short title")
BEGINS("generate a title for")
BEGINS("create a concise title")
#undef BEGINS
