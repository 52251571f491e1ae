# SPDX-License-Identifier: Apache-2.0
# Makes a manual page of what a program prints for --help=manual. Variables: command, summary, version, date, see (names
# for SEE ALSO). Lines: "option", names, value, what it is for; "text" and a line of the help that is not an option:
#   usage: ...                the synopsis, to the first empty line
#   text at the margin        a paragraph; "Word:" before an indented block a heading
#     word  what it is        a row of a table

function escape(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    return s
}

# Text, in lines of less than 80: what begins with a dot or a quote would be a request.
function put(s,    word, n, i, line) {
    n = split(escape(s), word, / +/)
    line = ""
    for (i = 1; i <= n; i++) {
        if (line != "" && length(line) + 1 + length(word[i]) > 76) {
            print line
            line = ""
        }
        if (line == "" && word[i] ~ /^[.']/) word[i] = "\\&" word[i]
        line = line (line == "" ? "" : " ") word[i]
    }
    if (line != "") print line
}

function heading(name) {
    if (name != section) print ".SH " name
    section = name
}

# "-m, --model FILE" with names bold and the value slanted.
function option_tag(names, value,    out, word, n, i) {
    out = ""
    n = split(names, word, " ")
    for (i = 1; i <= n; i++) out = out (i > 1 ? ", " : "") "\\fB" escape(word[i]) "\\fR"
    return out (value ~ /^(\[|$)/ ? "" : " ") slanted(value)
}

function slanted(s,    out) {
    out = ""
    while (match(s, /[^ ,=]+/)) {
        out = out substr(s, 1, RSTART - 1) "\\fI" escape(substr(s, RSTART, RLENGTH)) "\\fR"
        s = substr(s, RSTART + RLENGTH)
    }
    return out s
}

# Where the text of a row begins: after two blanks; 0 when there is none on this line.
function text_at(s) {
    return match(s, /[^ ]  +[^ ]/) ? RSTART + RLENGTH - 1 : 0
}

function option_line(names, value, text) {
    if (section != "OPTIONS" && !under) heading("OPTIONS")
    print ".TP"
    print option_tag(names, value)
    put(text)
    in_item = 1
}

function row_line(s,    at, tag, rest) {
    sub(/^ +/, "", s)
    rest = s
    tag = ""
    while ((at = text_at(rest)) > 0 && at < 32) {
        tag = tag substr(rest, 1, at - 1)
        rest = substr(rest, at)
    }
    if (tag == "") {
        at = index(rest " ", " ")
        tag = substr(rest, 1, at - 1)
        rest = substr(rest, at + 1)
    }
    gsub(/  +/, " ", tag)
    sub(/ $/, "", tag)
    if (section == "") heading("DESCRIPTION")
    print ".TP"
    print "\\fB" escape(tag) "\\fR"
    put(rest == "" ? "(see above)" : rest)
    in_item = 1
}

function margin_line(s) {
    if (s ~ /^Exit status: /) {
        heading("EXIT STATUS")
        sub(/^Exit status: /, "", s)
    } else if (s ~ /^[A-Z][A-Za-z ]*:$/ && s != "Example:") {
        if (section == "") heading("DESCRIPTION")
        sub(/:$/, "", s)
        print ".SS " escape(s)
        under = 1
        in_item = empty = 0
        return
    } else if (section == "") {
        heading("DESCRIPTION")
    } else if (in_item || (empty && section != "EXIT STATUS")) {
        if (section == "OPTIONS" && !under) {
            heading("NOTES")
        } else {
            print ".PP"
        }
    }
    in_item = empty = 0
    put(s)
}

function synopsis(s) {
    sub(/^usage: /, "", s)
    sub(/^ +/, "", s)
    if (s ~ /^sluice /) {
        if (NR > 1) print ".PP"
        match(s, /^sluice [a-z]*/)
        print "\\fB" substr(s, 1, RLENGTH) "\\fR" escape(substr(s, RLENGTH + 1))
    } else {
        put(s)
    }
}

NR == 1 {
    print ".\\\" Made from the options and the help text of the program."
    printf ".TH SLUICE\\-%s 1 \"%s\" \"sluice %s\" \"sluice\"\n", toupper(command), date, version
    print ".SH NAME"
    print "sluice\\-" command " \\- " escape(summary)
    print ".SH SYNOPSIS"
    in_usage = 1
}
$1 == "internal" { next }
$1 == "option" { option_line($2, $3, $4); next }
{ sub(/^text\t/, "") }
in_usage && /^$/ { in_usage = 0; next }
in_usage { synopsis($0); next }
/^$/ { empty = 1; next }
/^          / && in_item { sub(/^ +/, ""); put($0); next }
/^  sluice / { sub(/^ +/, ""); print ".PP\n\\fB" escape($0) "\\fR"; next } # an example
/^ / { row_line($0); next }
{ margin_line($0) }

END {
    print ".SH SEE ALSO"
    count = split(see, name, " ")
    for (i = 1; i <= count; i++) print ".BR " escape(name[i]) " (1)" (i < count ? "," : "")
}
