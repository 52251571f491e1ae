#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest peers_replays, peers_proxies, peers_schemas: sessions with the gateway for which no packages are fetched
# (replays.py, proxies.py, schemas.py).
# usage: session.sh ROOT BUILD SCRIPT
set -euo pipefail
work=$(mktemp -d "${TMPDIR:-/tmp}/session.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -B "$1/tests/peers/$3" --models "$2/tests/family_models" --libexec "$2/libexec" -o "$work"
