#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh [PERCENT]: line coverage that the committed corpora of gguf and store reach in the code that reads
# model files and store manifests, measured with clang. Prints it per file; fails if the total of either corpus
# is below PERCENT (default 80).
set -u
minimum=${1:-80}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${SLUICE_COVERAGE_BUILD:-$root/build-coverage}

find_tool() { # llvm-cov and llvm-profdata have the version in their names on some systems
    for tool in "$1" "$1-14" "$1-15" "$1-16" "$1-17" "$1-18" "$1-19"; do
        command -v "$tool" && return
    done
}
cov=$(find_tool llvm-cov)
profdata=$(find_tool llvm-profdata)
if ! command -v clang >/dev/null || [ -z "$cov" ] || [ -z "$profdata" ]; then
    echo "SKIP coverage: clang, llvm-cov or llvm-profdata is missing"
    exit 0
fi

mkdir -p "$build"
objects=
for file in "$root"/lib/model/*/*.c "$root"/lib/base/*.c "$root"/lib/tensor/*.c "$root"/lib/text/*.c \
    "$root"/lib/json/*.c "$root"/lib/io/bulk.c; do
    objects="$objects $file"
done

# measure TARGET SOURCE...: coverage of these files of lib/ by the corpus.
measure() {
    target=$1
    shift
    files=
    for name in "$@"; do
        files="$files $root/lib/$name.c"
    done
    # shellcheck disable=SC2046,SC2086  # lists of words
    clang -std=gnu11 -D_GNU_SOURCE -I"$root" -O0 -g -fprofile-instr-generate -fcoverage-mapping \
        "$here/${target}_fuzz.c" "$here/corpus_main.c" $objects \
        $(pkg-config --cflags --libs libpcre2-8 libxxhash jansson) \
        -lm -lpthread -o "$build/${target}_corpus" || exit 2
    LLVM_PROFILE_FILE=$build/raw "$build/${target}_corpus" "$here/corpus/$target" || exit 1
    "$profdata" merge "$build/raw" -o "$build/profile" || exit 2
    # shellcheck disable=SC2086
    "$cov" report "$build/${target}_corpus" -instr-profile="$build/profile" $files \
        >"$build/report" || exit 2
    awk -v minimum="$minimum" '
        $1 ~ /\.c$/ { printf "%-20s %6.1f %% of %d lines\n", $1, 100 * ($8 - $9) / $8, $8 }
        $1 == "TOTAL" { total = 100 * ($8 - $9) / $8
                        printf "%-20s %6.1f %% of %d lines (at least %s %%)\n", $1, total, $8, minimum }
        END { exit !(total >= minimum) }' "$build/report"
}

failed=0
measure gguf model/arch/arch model/gguf/gguf model/index/check model/index/derive model/index/model_index \
    text/strtab model/tokenizer/blob model/tokenizer/build || failed=1
measure store model/store/manifest model/store/table model/index/experts || failed=1
exit $failed
