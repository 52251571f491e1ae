#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest peers_libraries: sessions of Python packages with the gateway (client_libraries.py), and with SLUICE_LONG=1 of
# the program aider (client_aider.py). The packages are pinned; aider requires other versions of what they share, so that
# it has an environment of its own. Without the package index a session is a SKIP.
# usage: client_libraries.sh ROOT BUILD
set -euo pipefail
root=$1
build=$2
dir=$build/peers
mkdir -p "$dir"
work=$(mktemp -d "${TMPDIR:-/tmp}/libraries.XXXXXX")
trap 'rm -rf "$work"' EXIT

# environment NAME MODULES PACKAGES...: the interpreter is $dir/NAME/bin/python.
environment() {
    local name=$1 modules=$2
    shift 2
    "$dir/$name/bin/python" -c "import $modules" 2>/dev/null && return
    { python3 -m venv --without-pip "$dir/$name" &&
        timeout 400 python3 -m pip --python "$dir/$name/bin/python" install --quiet "$@"; } \
        >"$dir/$name.log" 2>&1 || { echo "SKIP $name: $* cannot be installed" && return 1; }
}

session() { # ENVIRONMENT SCRIPT
    "$dir/$1/bin/python" -B "$root/tests/peers/$2" --models "$build/tests/family_models" --libexec "$build/libexec" \
        -o "$work"
}

status=0
if environment libraries litellm,langchain_openai,llm litellm==1.110.2 langchain-openai==1.7.4 llm==0.36; then
    session libraries client_libraries.py || status=1
fi
if [ "${SLUICE_LONG:-}" != 1 ]; then
    : # its environment has 700 MB
elif environment aider aider aider-chat==0.86.2; then
    session aider client_aider.py || status=1
fi
exit "$status"
