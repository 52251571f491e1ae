#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# minimise.sh [GROWN]: removes from the committed corpora what adds no coverage (libFuzzer's -merge=1), after
# run_fuzz.sh has built the targets. GROWN: a directory with a corpus per target, such as build-fuzz/corpus after
# fuzzing; what adds coverage is taken from it. Seeds of published vulnerabilities (cve_*) stay. Those that a build
# makes count as there.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${SLUICE_FUZZ_BUILD:-$(cd "$here/../.." && pwd)/build-fuzz}
grown=${1:-}
chosen=$(mktemp -d) || exit 2
trap 'rm -rf "$chosen"' EXIT
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$chosen" "$tmp"' EXIT
export TMPDIR="$tmp" # for the files that targets make

for file in "$here"/*_fuzz.c; do
    name=$(basename "$file" _fuzz.c)
    corpus=$here/corpus/$name
    mkdir -p "$corpus"
    before=$(find "$corpus" -type f | wc -l)
    rm -rf "${chosen:?}"/*
    mkdir "$chosen/new"
    more=
    made=$build/tests/fuzz/seeds/$name
    [ -d "$made" ] && more=$made
    [ -n "$grown" ] && [ -d "$grown/$name" ] && more="$more $grown/$name"
    # shellcheck disable=SC2086  # no word without a grown corpus
    if ! "$build/tests/${name}_fuzz" -merge=1 -max_len=25000 -rss_limit_mb=2048 "$chosen/new" "$corpus" $more \
        >"$chosen/log" 2>&1; then
        tail -n 20 "$chosen/log" >&2
        echo "$name: cannot be merged" >&2
        exit 1
    fi
    # libFuzzer names files by their SHA-1; those of the corpus keep their names.
    for seed in "$corpus"/*; do
        [ -f "$seed" ] || continue
        sum=$(sha1sum "$seed" | cut -d' ' -f1)
        case $(basename "$seed") in
        cve_*) rm -f "$chosen/new/$sum" ;;
        *) rm "$chosen/new/$sum" 2>/dev/null || rm "$seed" ;;
        esac
    done
    for seed in "$made"/*; do
        [ -f "$seed" ] && rm -f "$chosen/new/$(sha1sum "$seed" | cut -d' ' -f1)"
    done
    find "$chosen/new" -type f -exec mv {} "$corpus/" \;
    rmdir "$corpus" 2>/dev/null
    echo "$name: $before to $(find "$corpus" -type f | wc -l) files"
done
