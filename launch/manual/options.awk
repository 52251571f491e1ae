# SPDX-License-Identifier: Apache-2.0
# The options of a --help text, one a line: names, what stands for the value, what it is for,
# separated by tabs; names by blanks. Options that only the usage line names come first.
#   usage: sluice COMMAND [--name NAME] ...         names and values
#     -m, --model FILE      what it is for      one or more names, a value each at most,
#                           and further text    then the text
# A value follows its name after one blank or "="; the text begins after two, or after the value.

function take_name() {
    if (!match(rest, /^--?[A-Za-z0-9][A-Za-z0-9-]*/)) return 0
    word = substr(rest, 1, RLENGTH)
    rest = substr(rest, RLENGTH + 1)
    names = names (names == "" ? "" : " ") word
    return 1
}

function take_value() {
    if (!match(rest, /^[ =][^ ()]+/) || substr(rest, 2, 1) ~ /[-\[]/) return
    value = substr(rest, 2, RLENGTH - 1)
    rest = substr(rest, RLENGTH + 1)
    if (value ~ /,$/) { # of the next name: "-c N, -t N"
        value = substr(value, 1, length(value) - 1)
        rest = "," rest
    }
}

function finish() {
    gsub(/^ +| +$/, "", text)
    if (names != "") print names "\t" value "\t" text
    count_names = split(names, word_of, " ")
    for (n = 1; n <= count_names; n++) seen[word_of[n]] = 1
    names = value = text = ""
}

function option_line(line) {
    finish()
    rest = line
    sub(/^ +/, "", rest)
    while (take_name()) {
        take_value()
        if (rest !~ /^, +-/) break
        sub(/^, +/, "", rest)
        if (value != "" && rest ~ /^--/ && names ~ /^--/) { # "--budget LIST, --resident-experts LIST"
            line = rest
            text = ""
            finish()
            rest = line
        }
    }
    text = rest
}

# What brackets and bars are not part of: [--name NAME], (-p TEXT | --ids 1,2,3).
function usage_line(line) {
    gsub(/[][()]/, " ", line)
    while (match(line, / --?[A-Za-z0-9][A-Za-z0-9-]*/)) {
        rest = substr(line, RSTART + 1)
        names = value = ""
        take_name()
        if (rest !~ /^ +\|/) take_value()
        line = " " rest
        if (!(names in from_usage)) order[++count] = names
        from_usage[names] = value
    }
    names = value = ""
}

/^usage:/ { in_usage = 1 }
in_usage && /^$/ { in_usage = 0 }
in_usage { usage_line($0); next }
match($0, /^ +-/) && RLENGTH <= 8 { option_line($0); next }
/^          / && names != "" { text = text " " $0; gsub(/  +/, " ", text); next }
{ finish() }

END {
    finish()
    for (i = 1; i <= count; i++)
        if (!(order[i] in seen)) print order[i] "\t" from_usage[order[i]] "\t"
    if (!("--help" in seen)) print ("-h" in seen ? "" : "-h ") "--help\t\tthese options"
}
