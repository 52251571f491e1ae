#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh [PERCENT [TARGET...]]: line coverage that the committed corpus of each fuzz target reaches in its
# parser (coverage.txt), measured with clang. Prints it per file; fails if the total of a target is below PERCENT
# (default 80), or a target has no line in coverage.txt. COVERAGE_VERBOSE=1 names the functions with missed lines;
# COVERAGE_FUZZ=1 builds nothing and measures the programs of FUZZ_COVERAGE=1 run_fuzz.sh. Exit status: 0 done (or SKIP: clang
# or llvm is not available), 1 too little coverage, 2 a failed build.
set -u
minimum=${1:-80}
[ $# -gt 0 ] && shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${SLUICE_COVERAGE_BUILD:-$root/build-coverage}
program=corpus
[ "${COVERAGE_FUZZ:-}" = 1 ] && build=${SLUICE_FUZZ_BUILD:-$root/build-fuzz} program=fuzz

find_tool() { # llvm-cov and llvm-profdata have the version in their names on some systems
    for tool in "$1" "$1-14" "$1-15" "$1-16" "$1-17" "$1-18" "$1-19"; do
        command -v "$tool" && return
    done
}
cov=$(find_tool llvm-cov)
profdata=$(find_tool llvm-profdata)
if ! command -v clang >/dev/null || [ -z "$cov" ] || [ -z "$profdata" ]; then
    [ "${COVERAGE_FUZZ:-}" = 1 ] && { # CI: it must not pass without measuring
        echo "clang, llvm-cov or llvm-profdata is missing" >&2
        exit 2
    }
    echo "SKIP coverage: clang, llvm-cov or llvm-profdata is missing"
    exit 0
fi

targets=$*
if [ -z "$targets" ]; then
    for file in "$here"/*_fuzz.c; do
        targets="$targets $(basename "$file" _fuzz.c)"
    done
fi
programs=
for target in $targets; do
    programs="$programs ${target}_$program"
done
# shellcheck disable=SC2086  # a list of words
if [ $program = corpus ]; then
    cmake -G Ninja -S "$root" -B "$build" -DCMAKE_C_COMPILER=clang -DSLUICE_COVERAGE=ON >"$build.log" 2>&1 &&
        ninja -C "$build" $programs >>"$build.log" 2>&1 || {
        tail -n 40 "$build.log" >&2
        echo "the build with clang fails" >&2
        exit 2
    }
fi
rm -f "$build.log"

# measure TARGET: coverage of its parser by its corpus.
measure() {
    binary=$build/tests/$1_$program
    if ! grep -q "^$1 " "$here/coverage.txt"; then
        echo "$1: no line in coverage.txt" >&2
        return 1
    fi
    target=$1
    set --
    for directory in "$here/corpus/$target" "$build/tests/fuzz/seeds/$target"; do
        [ ! -d "$directory" ] || set -- "$@" "$directory"/*
    done
    LLVM_PROFILE_FILE=$build/raw "$binary" "$@" >"$build/measured.log" 2>&1 || {
        tail -n 20 "$build/measured.log" >&2
        return 1
    }
    "$profdata" merge "$build/raw" -o "$build/profile" || exit 2
    "$cov" export -format=lcov "$binary" -instr-profile="$build/profile" >"$build/lcov" || exit 2
    awk -F '[:,]' -v minimum="$minimum" -v target="$target" -v verbose="${COVERAGE_VERBOSE:-}" '
        NR == FNR { # coverage.txt
            n = split($0, word, " ")
            if (word[1] != target) next
            for (i = 2; i <= n; i++)
                if (word[i] ~ /^-/) skip[file, substr(word[i], 2)] = 1
                else { file = word[i]; if (!(file in at)) { at[file] = ++files; name[files] = file } }
            next
        }
        $1 == "SF" { now = 0
                     for (i = 1; i <= files; i++)
                         if (substr($0, length($0) - length(name[i])) == "/" name[i]) now = i
                     delete start; functions = 0 }
        now && $1 == "FN" { functions++; start[functions] = $2; called[functions] = $NF }
        now && $1 == "DA" { # the function of a line is the last one that starts at or before it
            best = 0
            for (i = 1; i <= functions; i++)
                if (start[i] <= $2 && (!best || start[i] > start[best])) best = i
            f = best ? called[best] : ""
            if ((name[now], f) in skip) { skipped[name[now], f] = 1; next }
            lines[now]++; missed[now] += $3 == 0
            if ($3 == 0) missing[name[now] " " f]++
        }
        END {
            for (i = 1; i <= files; i++) {
                if (!lines[i]) { printf "%s: %s is not in the program\n", target, name[i]; bad = 1; continue }
                printf "%-13s %-40s %6.1f %% of %d lines\n", target, name[i], 100 * (1 - missed[i] / lines[i]), lines[i]
                all += lines[i]; lost += missed[i]
            }
            for (k in skip) if (!(k in skipped)) { split(k, part, SUBSEP)
                printf "%s: %s has no function %s\n", target, part[1], part[2]; bad = 1 }
            if (verbose) for (k in missing) printf "    %d lines missed: %s\n", missing[k], k
            total = all ? 100 * (1 - lost / all) : 0
            if (files > 1) printf "%-13s %-40s %6.1f %%\n", target, "total", total
            if (total < minimum) { printf "%s: below %s %%\n", target, minimum; bad = 1 }
            exit bad
        }' "$here/coverage.txt" "$build/lcov"
}

failed=0
for target in $targets; do
    measure "$target" || failed=1
done
exit $failed
