/* Settings of repl beside the sampling parameters (ipc/engine/engine_client.h). SETTING(name, kind, field,
 * least, most, help): kind NUMBER or SWITCH; field of struct repl. */
SETTING(num_predict, NUMBER, submit.max_tokens, 1, ENGINE_TOKENS_MAX, "new tokens at most")
SETTING(context, NUMBER, context, 0, TALK_CONTEXT_MAX,
        "bytes of the conversation sent along; 0 = none")
SETTING(chat, SWITCH, chat, 0, 1, "conversation in the form of the model's template, if it has one")
SETTING(ignore_eos, SWITCH, submit.ignore_eos, 0, 1, "go on after the end-of-text token")
SETTING(special, SWITCH, submit.parse_special, 0, 1,
        "control tokens written in the prompt count as such")
#undef SETTING
