#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# sample_test.sh LIST: of the rows that take turns (sample.tbl.h; LIST prints them), each runs at one of as many changes as
# it says, and at any other one it is left.
set -u
[ $# -eq 1 ] || { echo "usage: $0 LIST"; exit 2; }
turn=$(dirname "$0")/turn.sh
if [ "$(SLUICE_TURN=7 "$turn")" != 7 ] || ! [[ $(env -u SLUICE_TURN "$turn") =~ ^[0-9]+$ ]]; then
    echo "not ok sample_turn: turn.sh prints no number, or not that of SLUICE_TURN"
    exit 1
fi
# 4200 and what follows: a multiple of every number of changes up to 8. Lines: turn, "case", program, state, name, number,
# why; or turn, "every", program, number.
for turn in {4200..4208}; do
    SLUICE_TURN=$turn "$1" | sed -n "s/^# \([a-z0-9_]*\): now \([a-z0-9_]*\), one in \([0-9]*\): \(.*\)/$turn case \1 now \2 \3 \4/p
        s/^# \([a-z0-9_]*\): left to another change: \([a-z0-9_]*\), one in \([0-9]*\): \(.*\)/$turn case \1 left \2 \3 \4/p
        s/^# \([a-z0-9_]*\): one in \([0-9]*\), in turn: .*/$turn every \1 \2/p"
done | awk '
    function wrong(why) { print "not ok sample_turns: " why; failed = 1; exit 1 }
    function divisor(a, b) { return b ? divisor(b, a % b) : a }
    $2 == "every" { every[$3] = every[$3] " " $4; next }
    {
        n = $6; name = $3 " " $5; why = ""
        for (i = 7; i <= NF; i++) why = why " " $i
        group = $3 " " n why
        numbers[$3, n] = $3
        if ($1 < 4200 + n) { all[name] = n; runs[name] += $4 == "now"; groups[group] = n; some[group, $1] += $4 == "now" }
        if ($1 == 4200 + n) again[name] = $4 == "now"
        if ($1 == 4200) first[name] = $4 == "now"
    }
    END {
        if (failed) exit 1
        for (name in all) {
            rows++
            if (runs[name] != 1 || again[name] != first[name] || all[name] < 2 || all[name] > 8)
                wrong(name " runs " runs[name] " times in " all[name] " changes")
        }
        if (!rows) wrong("no rows")
        for (group in groups) # each change has a row of it
            for (turn = 4200; turn < 4200 + groups[group]; turn++)
                if (!some[group, turn]) wrong("a change has none of: " group)
        for (key in numbers) { # else a row within a case would never meet it
            split(key, part, SUBSEP)
            count = split(every[part[1]], other, " ")
            for (i = 1; i <= count; i++)
                if (divisor(part[2] + 0, other[i] + 0) > 1) wrong(part[1] ": " part[2] " and " other[i] " have a common divisor")
        }
        print "ok sample_turns"
    }'
