# SPDX-License-Identifier: Apache-2.0
# The tables of the bash completion: commands, then options.tsv.
function quoted(s) {
    gsub(/'/, "'\\''", s)
    return "'" s "'"
}

BEGIN { print "# bash completion of sluice, made from the programs' tables of options." }
FNR == NR { commands = commands (commands == "" ? "" : " ") $1; next }
substr($1, 1, 1) == "=" {
    command = substr($1, 2)
    if ($3 != "") operands = operands "    " command ") echo " quoted($3) " ;;\n"
    next
}
{
    options[$1] = options[$1] (options[$1] == "" ? "" : " ") $2
    if ($3 != "") values = values "    " $1 ":" $2 ") echo " quoted($3) " ;;\n"
}

END {
    print "_sluice_commands() { echo " quoted(commands " help") "; }"
    print "_sluice_options() {\n    case $1 in"
    count = split(commands, name, " ")
    for (i = 1; i <= count; i++) print "    " name[i] ") echo " quoted(options[name[i]]) " ;;"
    print "    esac\n}"
    print "_sluice_operands() {\n    case $1 in\n" operands "    esac\n}"
    print "# Values of an option: names, +file, +none when it takes no value, nothing when any value is valid."
    print "_sluice_values() {\n    case $1:$2 in"
    printf "%s", values
    print "    esac\n}"
}
