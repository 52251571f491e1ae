# SPDX-License-Identifier: Apache-2.0
# The tables of the zsh completion: commands with their texts, then options.tsv.
function quoted(s) {
    gsub(/'/, "'\\''", s)
    return "'" s "'"
}

# "name:text" for _describe: a colon in the name would end it, none has one.
function entry(name, text) { return quoted(name ":" text) }

BEGIN { print "#compdef sluice\n# zsh completion of sluice, made from the programs' tables of options.\n" }
FNR == NR {
    command_entries = command_entries "    " entry($1, $2) "\n"
    order[++count] = $1
    next
}
substr($1, 1, 1) == "=" {
    if ($3 != "") operands = operands "    " substr($1, 2) ") reply=(" $3 ") ;;\n"
    next
}
{
    options[$1] = options[$1] "        " entry($2, $4) "\n"
    if ($3 != "") values = values "    " $1 ":" $2 ") reply=(" $3 ") ;;\n"
}

END {
    printf "_sluice_commands() {\n    reply=(\n%s    'help:the options of a command'\n    )\n}\n\n", command_entries
    print "_sluice_options() {\n    reply=()\n    case $1 in"
    for (i = 1; i <= count; i++) printf "    %s)\n        reply=(\n%s        )\n        ;;\n", order[i], options[order[i]]
    print "    esac\n}\n"
    print "_sluice_operands() {\n    reply=()\n    case $1 in\n" operands "    esac\n}\n"
    print "# Values of an option: names, +file, +none when it takes no value, nothing when any value is valid."
    print "_sluice_values() {\n    reply=()\n    case $1:$2 in"
    printf "%s", values
    print "    esac\n}"
}
