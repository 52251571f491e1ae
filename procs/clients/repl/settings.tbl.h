/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of repl in addition to the sampling parameters (ipc/engine/engine_client.h).
 *
 *   SETTING(name, kind, field, min, max, help)  kind: NUMBER, SWITCH, TERNARY (auto, on, off) or
 *                                               TEXT (at most max bytes); field of struct repl */
SETTING(num_predict, NUMBER, submit.max_tokens, 0, ENGINE_TOKENS_MAX,
        "maximum new tokens of a response; 0: to its end")
SETTING(context, NUMBER, context, 0, MODEL_CONTEXT_MAX,
        "maximum tokens in all; 0: the engine's --ctx-size")
SETTING(chat, SWITCH, chat, 0, 1, "use the model's chat template, if it has one")
SETTING(system, TEXT, system, 0, CONVERSATION_PROMPT_MAX,
        "what the model keeps to; without a text: none")
SETTING(thinking, TERNARY, thinking, 0, 0, "whether the model thinks, if it has the choice")
SETTING(ignore_eos, SWITCH, submit.ignore_eos, 0, 1, "continue after the end-of-text token")
SETTING(special, SWITCH, special, 0, 1, "parse control tokens written in the prompt")
#undef SETTING
