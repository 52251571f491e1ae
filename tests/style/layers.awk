# SPDX-License-Identifier: Apache-2.0
# Checks #include lines against layers.txt: awk -f layers.awk layers.txt includes, where each line of
# `includes` is FILE:LINE:#include "PATH". Prints every violation and every cycle of directories.
function dir(path) { sub(/\/[^\/]*$/, "", path); return path }
# The row that counts for a directory: itself or its nearest parent with a row.
function row(d) {
    while (d != "" && !(d in may)) { if (!sub(/\/[^\/]*$/, "", d)) d = "" }
    return d
}
function program(d,   p) { # procs/KIND/PROGRAM of a directory of procs/
    split(d, p, "/")
    return p[1] "/" p[2] "/" p[3]
}
# A directory inside a program with a row of its own: the row counts for the program's other directories, too.
function divided(d) { return index(row(d) "/", program(d) "/") == 1 && row(d) != program(d) }
function allowed(from, to,   n, i, list, prefix) {
    if (from == to || to == "lib/base") return 1
    if (from ~ /^procs\// && to ~ /^procs\// && program(from) == program(to) && !divided(from)) return 1
    n = split(may[row(from)], list, " ")
    for (i = 1; i <= n; i++) {
        if (list[i] == to) return 1
        if (list[i] ~ /\/\*$/) {
            prefix = substr(list[i], 1, length(list[i]) - 1)
            if (index(to "/", prefix) == 1 && to "/" != prefix) return 1
        }
    }
    return 0
}
function visit(d, trail,   to) {
    state[d] = 1
    for (to in edge) {
        split(to, ends, SUBSEP)
        if (ends[1] == d) todo[d] = todo[d] " " ends[2]
    }
    walk(d, trail)
    state[d] = 2
}
function walk(d, trail,   n, i, list) {
    n = split(todo[d], list, " ")
    for (i = 1; i <= n; i++) {
        if (state[list[i]] == 1) print "cycle: " trail " " list[i]
        else if (!state[list[i]]) visit(list[i], trail " " list[i])
    }
}
FNR == NR {
    if ($0 ~ /^#/ || NF == 0) next
    d = $1; $1 = ""; may[d] = $0
    next
}
{
    split($0, at, ":")
    match($0, /"[^"]*"/)
    target = substr($0, RSTART + 1, RLENGTH - 2)
    from = dir(at[1])
    to = target ~ /\// ? dir(target) : from
    if (row(from) == "") print at[1] ": " from " has no row in layers.txt"
    else if (!allowed(from, to)) print at[1] ":" at[2] ": " from " may not include " target
    if (from != to && !(from ~ /^procs\// && to ~ /^procs\//)) edge[from, to] = 1
    seen[from] = 1
}
END { for (d in seen) if (!state[d]) visit(d, d) }
