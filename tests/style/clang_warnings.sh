#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang_warnings.sh [BUILD [PATTERN]]: clang's warnings, which are errors, of every source of the tree whose path has the
# PATTERN; each is compiled once, without output. BUILD (build-warnings) is configured, not built. CLANG_BUILT: a build with
# clang that is up to date; what it has compiled, with the same warnings as errors, is not compiled again. Exit status: 0
# none, 1 some, 2 it cannot be configured.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build-warnings}
pattern=${2:-.}
commands=$(mktemp) || exit 2
built=$(mktemp) || exit 2
changed=$(mktemp) || exit 2
trap 'rm -f "$commands" "$built" "$changed"' EXIT
cmake -G Ninja -S "$root" -B "$build" -DCMAKE_C_COMPILER=clang -DSLUICE_CUDA=OFF >"$commands" 2>&1 || {
    cat "$commands" >&2
    exit 2
}
if [ -d "${CLANG_BUILT:-}" ]; then # the first source of an object's dependencies; not those that differ with sanitizers
    (cd "$CLANG_BUILT" && ninja -t deps | awk '/\(VALID\)$/ { wanted = 1 } wanted && /\.c$/ { print $1; wanted = 0 }' | xargs -r realpath | sort -u |
        grep -v /lib/kernels/ | xargs -r grep -LE '__has_feature|__SANITIZE') >"$built"
fi
share=${CLANG_SHARE:-1}
[ "$share" = 1 ] || git -c safe.directory='*' -C "$root" log -60 --name-only --format= 2>/dev/null | sort -u >"$changed"
# A source that is part of several programs is compiled once: flags of libraries and tests differ in nothing else.
ninja -C "$build" -t compdb | sed -n 's/^ *"command": "\(.*\)",$/\1/p' | grep -E 'clang(-[0-9]+)? .* -c [^ ]*\.c$' |
    sed -e 's/\\"/"/g' -e 's/\\\\/\\/g' -e 's/ -o [^ ]*//' -e 's/ -M[DTF] [^ ]*\.[od]*//g' -e 's/ -MD / /' |
    awk -v pattern="$pattern" -v built="$built" -v changed="$changed" -v root="$root/" -v share="$share" -v turn="${SLUICE_TURN:-0}" '
        BEGIN {
            while ((getline path <built) > 0) seen[path] = 1
            while ((getline path <changed) > 0) now[root path] = 1
        }
        $NF !~ pattern || seen[$NF]++ { next }
        { mine = n++ % share == turn % share }
        mine || ($NF in now) { print $0 " -fsyntax-only" }' >"$commands"
[ -s "$commands" ] || {
    echo "$build: no commands of clang" >&2
    exit 2
}
cd "$build" && tr '\n' '\0' <"$commands" | xargs -0 -P "$(nproc)" -I COMMAND sh -c COMMAND || exit 1
echo "$(wc -l <"$commands") sources without warnings$([ ! -s "$built" ] || echo ", $(wc -l <"$built") others have been built")"
