#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Style of the whole tree: one "ok NAME" or "not ok NAME: reason" per rule, the offending places
# before it. Exit status 1 when a rule is broken. Arguments choose rules by name.
# The rules are called by name, which shellcheck does not follow:
# shellcheck disable=SC2317
set -u -o pipefail
shopt -s lastpipe # verdict notes its failure in this shell

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root" || exit 1
export LC_ALL=C

lines_max=600
directory_max=15
words_max=4500
failed=0

# Sources of the project; what git would not keep (build trees) is not looked at.
files() {
    git -C "$root" ls-files -co --exclude-standard -- "$@" 2>/dev/null | while read -r f; do
        [ -f "$f" ] && echo "$f"
    done
}

# No list of files would make every rule hold.
if [ ! -e "$root/.git" ]; then
    echo "SKIP style: not a git checkout, so there is no list of its sources"
    exit 0
elif [ -z "$(files '*.c')" ]; then
    echo "not ok style: git lists no sources here ($(git -C "$root" ls-files 2>&1 | head -1))"
    exit 1
fi

# verdict NAME REASON < offending places
verdict() {
    local name=$1 reason=$2 places
    places=$(cat)
    if [ -z "$places" ]; then
        echo "ok style_$name"
    else
        echo "$places" | head -"${STYLE_LINES:-40}" | sed 's/^/    /'
        echo "not ok style_$name: $reason ($(echo "$places" | wc -l) places)"
        failed=1
    fi
}

# ---- dependencies point one way ----

check_includes() {
    files 'lib/*.[ch]' 'lib/*.cu' 'lib/*.cuh' 'shm/*.[ch]' 'ipc/*.[ch]' 'config/*.[ch]' 'procs/*.[ch]' |
        xargs grep -Hn '^#include "' | awk -f tests/style/layers.awk tests/style/layers.txt - |
        verdict includes "an include that tests/style/layers.txt does not allow"
}

check_directories() {
    files 'lib/*.[ch]' 'lib/*.cu' 'lib/*.cuh' 'procs/*.[ch]' | sed 's|/[^/]*$||' | sort | uniq -c |
        awk -v max="$directory_max" '$1 > max { print $2 ": " $1 " source files" }' |
        verdict directories "a directory holds more than $directory_max source files"
}

# tests/unit mirrors the source tree: a directory of tests has a directory of sources.
check_mirror() {
    files 'tests/unit/*_test.c' | sed 's|^tests/unit/||; s|/[^/]*$||' | sort -u | while read -r d; do
        [ -d "$d" ] || echo "tests/unit/$d: there is no $d"
    done | verdict mirror "a unit test whose directory does not mirror the source tree"
}

# ---- objects and limits ----

check_magics() {
    files '*.c' '*.h' | xargs grep -Hno '#define [A-Z_]*_MAGIC *0x[0-9a-fA-F]*' |
        awk -F'0x' '{ v = tolower($2); if (v in seen) print seen[v] " and " $0; seen[v] = $0 }' |
        verdict magics "two objects share a magic"
}

check_lengths() {
    files '*.c' '*.h' '*.cu' '*.cuh' | xargs wc -l |
        awk -v max="$lines_max" '$2 != "total" && $1 > max { print $2 ": " $1 " lines" }' |
        verdict lengths "a file is longer than $lines_max lines"
}

# Columns are characters. clang-format breaks code, but no comments; texts and macros are left to it.
check_columns() {
    files '*.c' '*.h' '*.cu' '*.cuh' |
        xargs perl -CSD -nle '
            my $left = /^#|\\$/ || (/"/ && !m{^\s*(?:/\*|\*)});
            print "$ARGV:$.: " . length if length > 100 && !$left;
            close ARGV if eof' |
        verdict columns "a line has more than 100 columns"
}

# A function runs from the brace in column 0 to the one that closes it.
check_functions() {
    files 'procs/*.c' 'lib/*.c' 'lib/*.cu' 'lib/*.cuh' 'shm/*.c' 'ipc/*.c' 'config/*.c' 'tests/harness/*.c' \
        'tests/scenario/*.c' |
        xargs awk '
        FNR == 1 { start = 0 }
        /^\{/ { start = FNR }
        /^\}/ { if (start && FNR - start > 72) print FILENAME ":" start ": " FNR - start " lines"; start = 0 }' |
        verdict functions "a function is longer than 70 lines"
}

# What is not called, and what is called instead.
check_banned() {
    local call='(^|[^_[:alnum:]])'
    {
        files 'lib/*.[ch]' 'shm/*.[ch]' 'ipc/*.[ch]' 'config/*.[ch]' 'procs/*.[ch]' |
            xargs grep -HnE "$call(gets|sprintf|vsprintf|strcat|strtok|system|popen|fork|vfork|alloca|tmpnam|mktemp|atoi|atol|atof|sleep|usleep)[[:space:]]*\\(" |
            grep -vE ':[0-9]+: *(/?\*|//)' |
            sed 's/$/   (snprintf, strtok_r, posix_spawn, mkstemp, strtol, poll)/'
        files 'tests/*.[ch]' |
            xargs grep -HnE "$call(gets|system|popen|tmpnam|mktemp|sleep|usleep|nanosleep)[[:space:]]*\\(" |
            grep -vE ':[0-9]+: *(/?\*|//)' |
            sed 's/$/   (wait for a condition, with a deadline; posix_spawn; mkstemp)/'
    } | verdict banned "a call that is not made here"
}

# Text is plain technical English: phrases.txt lists what is not written, with what is written instead.
check_phrases() {
    files '*.c' '*.h' '*.cu' '*.cuh' '*.md' '*.sh' '*.py' '*.cmake' '*.awk' '*.js' '*.html' '*.txt' 'launch/sluice' '.ci/run' |
        grep -v -e '^tests/style/' -e '^tests/golden/data/' -e '^tests/fuzz/corpus/' -e '^launch/demo/' |
        xargs perl -e '
            open(my $list, "<", "tests/style/phrases.txt") or die;
            my @rows = map { chomp; [split /\t+/] } grep { !/^#/ && /\S/ } <$list>;
            my $any = join "|", map { "(?:$_->[0])" } @rows;
            for my $file (@ARGV) {
                open(my $text, "<", $file) or next;
                while (my $line = <$text>) {
                    $line =~ s/`[^`]*`//g if $file =~ /\.md$/;
                    next unless $line =~ /(?<![\w-])(?:$any)(?![\w-])/i;
                    for my $row (@rows) {
                        print "$file:$.: \x27$&\x27: $row->[1]\n" if $line =~ /(?<![\w-])(?:$row->[0])(?![\w-])/i;
                    }
                }
            }' | verdict phrases "a phrase that tests/style/phrases.txt replaces"
}

# Documents are read: their lines, paragraphs, cells of tables and length have limits, in characters and words, because a
# limit of lines is met by longer lines. README.md is for somebody who has one minute.
check_documents() {
    {
        files '*.md' | xargs perl tests/style/documents.pl
        files '*.md' | xargs wc -lw | awk -v words_max="$words_max" '
            BEGIN { lines_max["README.md"] = 120; lines_max["CHANGELOG.md"] = 100 }
            $3 == "total" { next }
            $2 > words_max { print $3 ": " $2 " words, at most " words_max }
            $3 in lines_max && $1 > lines_max[$3] { print $3 ": " $1 " lines, at most " lines_max[$3] }'
        # Columns are characters, not bytes.
        perl -CSD -nle 'print "README.md:$.: " . length . " columns, at most 100" if length > 100' README.md
    } | verdict documents "a document is too long or too wide"
}

check_names() {
    files '*.md' | grep -v -e '^tests/golden/data/' | xargs perl tests/style/names.pl |
        verdict names "a document names what the tree does not have"
}

# The first comment of a source says in a sentence what the file is for.
check_comments() {
    files '*.c' '*.h' '*.cu' '*.cuh' '*.sh' '*.py' '*.pl' '*.awk' '*.js' 'launch/sluice' '.ci/run' |
        grep -v -e '^tests/golden/data/' | xargs perl tests/style/first_comment.pl |
        verdict comments "a source does not begin with a sentence that says what it is for"
}

check_marks() {
    files '*.c' '*.h' '*.cu' '*.cuh' '*.sh' '*.md' '*.txt' 'launch/sluice' '.ci/run' |
        grep -v -e '^tests/style/' -e '^tests/golden/data/' | xargs grep -HnE '\b(TODO|FIXME|XXX|HACK)\b' |
        verdict marks "an unfinished mark"
}

# ---- tables ----

# A *.tbl.h has no include guard, begins with a legend, undefines its macros.
check_tables() {
    # No row twice: its first two words name it.
    files '*.tbl.h' | xargs awk '
        function end() { if (file != "" && !undefines) print file ": does not undefine its macro" }
        FNR == 1 { end(); file = FILENAME; undefines = 0 }
        FNR == 1 && !/^\/\*/ { print FILENAME ": does not begin with its legend" }
        /^#undef/ { undefines = 1 }
        /^#ifndef .*_TBL_H/ { print FILENAME ": has an include guard" }
        match($0, /^[A-Z][A-Z0-9_]*\([^,]+,[^,)]+/) {
            row = substr($0, RSTART, RLENGTH)
            if (seen[FILENAME, row]++ == 1) print FILENAME ": twice: " row
        }
        END { end() }' | verdict tables "a table is not well-formed"
}

check_headers() {
    # A template is included more than once, and says so in its first lines.
    files '*.h' '*.cuh' | grep -v '\.tbl\.h$' | xargs perl -e '
        for my $file (@ARGV) {
            open(my $text, "<", $file) or next;
            my @lines = <$text>;
            my @first = grep { defined } @lines[0 .. 11];
            next if grep { /include guard|template|included (?:by|once per)/i } @first;
            print "$file\n" unless grep { /^#ifndef SLUICE_/ } @lines;
        }' | verdict headers "a header without a SLUICE_ guard"
}

# What an editor, a patch or an interrupted script left; links that lead out of the tree or into themselves.
check_leftovers() {
    {
        files '*.new' '*.orig' '*.rej' '*.bak' '*.swp' '*.tmp' '*~' | grep -v '^tests/fuzz/corpus/'
        git -C "$root" ls-files -s | awk -F'\t' '/^120000/ { print $2 }' | while read -r f; do
            target=$(readlink -f "$f" 2>/dev/null)
            case $target in
            "$root"/*) [ -e "$target" ] || echo "$f: a link to nothing" ;;
            *) echo "$f: a link out of the tree: $(readlink "$f")" ;;
            esac
        done
    } | verdict leftovers "a file that a program left, or a link that leads nowhere"
}

# ---- tools ----

# Formatting a source takes longer than all other rules: with STYLE_SHARE=N, of the paths of standard input those that
# differ from what was 60 commits before, and every N-th of the others, in turn; with SLUICE_LONG=1 all.
share_of() {
    local changed share=${STYLE_SHARE:-1}
    [ "${SLUICE_LONG:-}" != 1 ] || share=1
    changed=$(git -C "$root" -c safe.directory='*' diff --name-only HEAD~60 2>/dev/null &&
        git -C "$root" -c safe.directory='*' ls-files -o --exclude-standard) || changed=all
    # By the path, not by the place in the list, which new files move.
    awk -v changed="$changed" -v share="$share" -v turn="${SLUICE_TURN:-0}" '
        BEGIN {
            count = split(changed, path, "\n")
            for (i = 1; i <= count; i++) now[path[i]] = 1
            for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i
        }
        function turn_of(text, i, sum) {
            for (i = 1; i <= length(text); i++) sum = (sum * 31 + code[substr(text, i, 1)]) % 65521
            return sum % share
        }
        share == 1 || changed == "all" || ($0 in now) || turn_of($0) == turn % share'
}

check_format() {
    command -v clang-format >/dev/null || {
        echo "SKIP style_format: clang-format is not installed"
        return
    }
    files '*.c' '*.h' '*.cu' '*.cuh' | share_of | xargs clang-format --dry-run --Werror 2>&1 |
        grep -oE '^[^ ]+:[0-9]+:[0-9]+' | awk -F: '{ n[$1]++ } END { for (f in n) print f ": " n[f] }' |
        sort | verdict format "not as clang-format has it"
}

check_shell() {
    command -v shellcheck >/dev/null || {
        echo "SKIP style_shell: shellcheck is not installed"
        return
    }
    {
        files '*.sh' 'launch/sluice' '.ci/run' | xargs shellcheck -S warning -f gcc
    } | verdict shell "shellcheck found something"
}

# The text of what engine and module of a GPU exchange, without comments.
gpu_interface() {
    gcc -fpreprocessed -dD -E -P lib/cuda/cuda.h
    gcc -fpreprocessed -dD -E -P lib/model/router.h
    gcc -fpreprocessed -dD -E -P lib/kernels/kernels.h |
        awk '/^struct kernel_(matrix|attention|chosen) \{/ { inside = 1 } inside; /^\};/ { inside = 0 }'
}

# A module of another interface would read arguments that are not there.
interface_changes() {
    local number sum
    number=$(sed -n 's/^#define GPU_INTERFACE \([0-9]*\)$/\1/p' lib/cuda/cuda.h)
    sum=$(gpu_interface | grep -v '^#define GPU_INTERFACE' | sha256sum | cut -c1-16)
    [ "$number $sum" = "$(cat lib/cuda/interface.txt)" ] ||
        echo "lib/cuda/interface.txt: not '$number $sum'"
}

check_interface() {
    interface_changes 2>&1 |
        verdict interface "arguments of the GPU's module changed: count GPU_INTERFACE up, then write this line"
}

rules="includes directories mirror magics lengths columns documents comments names functions banned phrases marks tables headers leftovers interface format shell"
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2086  # a list of words
    set -- $rules
fi
for rule in "$@"; do
    "check_$rule"
done
exit $failed
