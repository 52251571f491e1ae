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
# 4200 and what follows: a multiple of every number of changes up to 8.
for turn in {4200..4208}; do
    SLUICE_TURN=$turn "$1" | sed -n 's/^# \([a-z0-9_]*: \(now\|left to another change:\) [a-z0-9_]*, one in [0-9]*\):.*/\1/p' | sed "s/^/$turn /"
done | awk '
    { n = $NF; name = $2 " " $(NF - 3) }
    $1 < 4200 + n { all[name] = n; runs[name] += $3 == "now" }
    $1 == 4200 + n { again[name] = $3 == "now" }
    $1 == 4200 { first[name] = $3 == "now" }
    END {
        for (name in all) {
            rows++
            if (runs[name] != 1 || again[name] != first[name] || all[name] < 2 || all[name] > 8) {
                printf "not ok sample_turns: %s runs %d times in %d changes\n", name, runs[name], all[name]
                exit 1
            }
        }
        if (!rows) { print "not ok sample_turns: no rows"; exit 1 }
        print "ok sample_turns"
    }'
