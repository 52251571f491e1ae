# The tables of the bash completion: verbs, then options.tsv.
function quoted(s) {
    gsub(/'/, "'\\''", s)
    return "'" s "'"
}

BEGIN { print "# bash completion of sluice, made from the programs' help texts." }
FNR == NR { verbs = verbs (verbs == "" ? "" : " ") $1; next }
substr($1, 1, 1) == "=" {
    verb = substr($1, 2)
    if ($3 != "") operands = operands "    " verb ") echo " quoted($3) " ;;\n"
    next
}
{
    options[$1] = options[$1] (options[$1] == "" ? "" : " ") $2
    if ($3 != "") values = values "    " $1 ":" $2 ") echo " quoted($3) " ;;\n"
}

END {
    print "_sluice_verbs() { echo " quoted(verbs " help") "; }"
    print "_sluice_options() {\n    case $1 in"
    count = split(verbs, name, " ")
    for (i = 1; i <= count; i++) print "    " name[i] ") echo " quoted(options[name[i]]) " ;;"
    print "    esac\n}"
    print "_sluice_operands() {\n    case $1 in\n" operands "    esac\n}"
    print "# Of an option: words, +file, +none when it takes no value, nothing when anything will do."
    print "_sluice_values() {\n    case $1:$2 in"
    printf "%s", values
    print "    esac\n}"
}
