#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest peers_turns: conversations with calls of tools, with templates of real models (turns.py).
# usage: turns.sh ROOT BUILD     SLUICE_LONG=1: every template, not four
set -euo pipefail
root=$1
build=$2
more=()
[ "${SLUICE_LONG:-}" != 1 ] || more=(--all)
work=$(mktemp -d "${TMPDIR:-/tmp}/turns.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -B "$root/tests/peers/turns.py" --models "$build/tests/family_models" --libexec "$build/libexec" \
    --templates "$build/peers/templates" -o "$work" "${more[@]}"
