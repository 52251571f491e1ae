#!/bin/sh
# coverage.sh [PERCENT]: line coverage that the committed gguf corpus alone reaches in the code that reads
# model files, measured with clang. Prints it per file and fails below PERCENT (default 80).
set -u
least=${1:-80}
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
sources="arch gguf index_check index_derive model_index strtab tokenizer_blob tokenizer_build"
files=
for name in $sources; do
    files="$files $root/lib/model/$name.c"
done
# shellcheck disable=SC2046,SC2086  # lists of words
clang -std=gnu11 -D_GNU_SOURCE -I"$root" -O0 -g -fprofile-instr-generate -fcoverage-mapping \
    "$here/gguf_fuzz.c" "$here/corpus_main.c" $files "$root/lib/model/tokenizer.c" \
    "$root/lib/model/utf8.c" "$root"/lib/base/*.c $(pkg-config --cflags --libs libpcre2-8 libxxhash) \
    -lm -lpthread -o "$build/gguf_corpus" || exit 2
LLVM_PROFILE_FILE=$build/raw "$build/gguf_corpus" "$here/corpus/gguf" || exit 1
"$profdata" merge "$build/raw" -o "$build/profile" || exit 2
"$cov" report "$build/gguf_corpus" -instr-profile="$build/profile" $files >"$build/report" || exit 2
awk -v least="$least" '
    $1 ~ /\.c$/ { printf "%-20s %6.1f %% of %d lines\n", $1, 100 * ($8 - $9) / $8, $8 }
    $1 == "TOTAL" { total = 100 * ($8 - $9) / $8
                    printf "%-20s %6.1f %% of %d lines (at least %s %%)\n", $1, total, $8, least }
    END { exit !(total >= least) }' "$build/report"
