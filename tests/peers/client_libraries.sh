#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest peers_libraries: sessions of Python packages with the gateway (client_libraries.py), and with SLUICE_LONG=1 of
# the program aider (client_aider.py). The packages are pinned; aider requires other versions of what they share, so that
# it has an environment of its own. Without the package index a session is a SKIP.
# usage: client_libraries.sh ROOT BUILD
set -euo pipefail
root=$1
build=$2
. "$root/tests/peers/environment.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/libraries.XXXXXX")
trap 'rm -rf "$work"' EXIT

session() { # INTERPRETER SCRIPT
    "$1" "$root/tests/peers/$2" --models "$build/tests/family_models" --libexec "$build/libexec" -o "$work"
}

status=0
if ! has_its_turn 4 0 libraries; then
    : # peers_clients has a session in each API; peers_replays, requests of programs
elif install_packages "${library_packages[@]}"; then
    session "$python" client_libraries.py || status=1
else
    echo "SKIP libraries: ${library_packages[*]} cannot be installed"
fi
if [ "${SLUICE_LONG:-}" = 1 ]; then # its environment has 700 MB
    venv=$(dirname "$venv")/aider
    python=$venv/bin/python
    together=()
    if install_packages aider-chat==0.86.2; then
        session "$python" client_aider.py || status=1
    else
        echo "SKIP aider: aider-chat==0.86.2 cannot be installed"
    fi
fi
exit "$status"
