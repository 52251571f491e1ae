#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# spdx.sh [--add] ROOT: every source file has an SPDX line among its first five. Prints those without one, status 1;
# --add inserts it (after a #! line) and keeps the mode of the file.
set -u -o pipefail
add=
[ "${1:-}" = --add ] && { add=1; shift; }
cd "${1:?usage: spdx.sh [--add] ROOT}" || exit 2
tag='SPDX-License-Identifier'
licence='Apache-2.0'

add_line() {
    local file=$1 line text
    case $file in
    *.c | *.h | *.cu | *.cuh | *.css | *.js) line="/* $tag: $licence */" ;;
    *) line="# $tag: $licence" ;;
    esac
    text=$(awk -v line="$line" 'NR == 1 && !/^#!/ { print line } { print } NR == 1 && /^#!/ { print line }' "$file"; echo x)
    printf '%s' "${text%x}" >"$file"
}

# The files of standard input, one per line, that have no such line.
without_line() {
    xargs perl -e '
        my $line = shift;
        FILE: for my $file (@ARGV) {
            open(my $text, "<", $file) or do { print "$file\n"; next };
            for (1 .. 5) { next FILE if index(<$text> // "", $line) >= 0 }
            print "$file\n";
        }' "$tag: $licence"
}

missing=0
while IFS= read -r file; do
    if [ -n "$add" ]; then add_line "$file"; else echo "$file: no line '$tag: $licence'"; missing=1; fi
done < <(git ls-files -- '*.c' '*.h' '*.sh' '*.py' '*.awk' '*.cmake' '*CMakeLists.txt' '*.css' '*.js' '*.cu' '*.cuh' launch/sluice |
    grep -v -e '^tests/fuzz/corpus/' -e '^tests/golden/data/' | without_line)
exit "$missing"
