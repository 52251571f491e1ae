/* Commands of repl. COMMAND(word, arguments, completion, help): the handler is cmd_<word>;
 * completion of the argument: NONE, SETTING, PRESET. ALIAS(word, of): another name. Order is that
 * of /help. */
COMMAND(help, "", NONE, "this list")
COMMAND(set, "NAME VALUE", SETTING, "change a setting; /set stop TEXT... ends at a text")
COMMAND(show, "", NONE, "all settings, the model, the engine")
COMMAND(stats, "", NONE, "figures of the last answer, and of the engine")
COMMAND(experts, "", NONE, "which experts are resident, layer by layer")
COMMAND(loaders, "", NONE, "what each storage device does")
COMMAND(budget, "[BYTES]", NONE, "show the memory budget, or change it: /budget 3GiB")
COMMAND(preset, "[NAME]", PRESET, "list the systems, or use one from the next answer on")
COMMAND(regen, "", NONE, "answer the last prompt again")
COMMAND(save, "FILE", NONE, "write conversation and settings to a file")
COMMAND(load, "FILE", NONE, "take conversation and settings from such a file")
COMMAND(clear, "", NONE, "forget the conversation")
COMMAND(bye, "", NONE, "leave (also Ctrl-D)")
ALIAS("?", help)
ALIAS("exit", bye)
ALIAS("quit", bye)
#undef COMMAND
#undef ALIAS
