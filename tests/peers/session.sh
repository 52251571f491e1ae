#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest peers_replays, peers_proxies: sessions with the gateway that need no packages (replays.py, proxies.py).
# usage: session.sh ROOT BUILD SCRIPT
set -euo pipefail
work=$(mktemp -d "${TMPDIR:-/tmp}/session.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -B "$1/tests/peers/$3" --models "$2/tests/family_models" --libexec "$2/libexec" -o "$work"
