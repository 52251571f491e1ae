#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest peers_replays: the requests of programs with the gateway (replays.py).
# usage: replays.sh ROOT BUILD
set -euo pipefail
work=$(mktemp -d "${TMPDIR:-/tmp}/replays.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -B "$1/tests/peers/replays.py" --models "$2/tests/family_models" --libexec "$2/libexec" -o "$work"
