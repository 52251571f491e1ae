/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of repl, in the order of /help.
 *
 *   COMMAND(name, arguments, completion, help)  handler: cmd_<name>; completion of the argument:
 *                                               NONE, SETTING, PRESET
 *   ALIAS(name, of)                             another name of a command */
COMMAND(help, "", NONE, "list the commands")
COMMAND(set, "NAME [VALUE]", SETTING, "change a setting, or show it")
COMMAND(system, "[TEXT]", NONE, "show the system message, or change it; \"\": none")
COMMAND(tokens, "[TEXT]", NONE, "tokens of the conversation, and those a prompt adds")
COMMAND(show, "", NONE, "show settings, model and engine")
COMMAND(stats, "", NONE, "statistics of the last response and of the engine")
COMMAND(experts, "", NONE, "show the resident experts per layer")
COMMAND(loaders, "", NONE, "show the state of each storage device")
COMMAND(budget, "[SIZE]", NONE, "show the memory budget, or change it: /budget 3GiB")
COMMAND(preset, "[NAME]", PRESET, "list the presets, or use one from the next answer on")
COMMAND(regen, "", NONE, "answer the last prompt again")
COMMAND(save, "[--force] FILE", NONE, "write conversation and settings; --force: overwrite")
COMMAND(load, "FILE", NONE, "read conversation and settings from a saved file")
COMMAND(clear, "", NONE, "discard the conversation")
COMMAND(bye, "", NONE, "quit (also Ctrl-D)")
ALIAS("?", help)
ALIAS("exit", bye)
ALIAS("quit", bye)
#undef COMMAND
#undef ALIAS
