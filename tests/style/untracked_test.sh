#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# New sources are formatted at once: in a tree with a source that did not change lately, and one that is not tracked yet,
# neither as clang-format has it, the style test rejects the new one in every turn, and the old one in its turn alone.
set -eu
command -v clang-format >/dev/null || {
    echo "SKIP: clang-format is not installed"
    exit 77
}
root=$(cd "$(dirname "$0")/../.." && pwd)
tree=$(mktemp -d "${TMPDIR:-/tmp}/sluice-style-XXXXXX")
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tests/style" "$tree/lib"
cp "$root/.clang-format" "$tree"
cp "$root/tests/style/check.sh" "$tree/tests/style"
printf 'int  old;\n' >"$tree/lib/old.c"
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
git -C "$tree" init -q -b main
git -C "$tree" add -A
git -C "$tree" commit -q -m 0
for i in $(seq 60); do # what changed in the last 60 commits is formatted, too
    printf 'commit refs/heads/main\ncommitter t <t@t> %d +0000\ndata 1\n.\n' "$i"
    [ "$i" != 1 ] || echo 'from refs/heads/main^0'
done | git -C "$tree" fast-import --quiet
printf 'int  new;\n' >"$tree/lib/new.c"

old=0
for turn in 0 1 2 3; do
    said=$(STYLE_SHARE=4 SLUICE_TURN=$turn SLUICE_LONG='' "$tree/tests/style/check.sh" format) && {
        echo "not ok: accepted in turn $turn"
        exit 1
    }
    grep -q 'lib/new.c: 1' <<<"$said" || {
        echo "not ok: in turn $turn the new source was not looked at: $said"
        exit 1
    }
    ! grep -q 'lib/old.c: 1' <<<"$said" || old=$((old + 1))
done
[ "$old" = 1 ] || {
    echo "not ok: the old source was looked at in $old of 4 turns"
    exit 1
}
echo "ok"
