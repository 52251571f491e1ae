#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of packages, with $build: one virtual environment for all of them in BUILD/peers, made by the first one,
# because installing what they share would take most of their time. What the interpreter compiles is kept in
# BUILD/peers/compiled, and not in the source tree.
client_packages=(anthropic==2.14.0 ollama==0.6.3 openai==3.57.0)
library_packages=(litellm==1.110.2 langchain-openai==1.7.4 llm==0.36)
template_packages=(regex==2025.9.18 unicodedata2==16.0.0 jinja2==3.1.6)
tokenizer_packages=(gguf==0.19.0 tiktoken==0.14.0 tokenizers==0.23.3)
together=("${client_packages[@]}" "${library_packages[@]}" "${template_packages[@]}" "${tokenizer_packages[@]}")

mkdir -p "${build:?}/peers"
venv=$(realpath "$build")/peers/venv
python=$venv/bin/python
PYTHONPYCACHEPREFIX=$(realpath "$build")/peers/compiled
export PYTHONPYCACHEPREFIX
unset PYTHONDONTWRITEBYTECODE

# has_its_turn N OFFSET NAME: a session that runs at every N-th change; at the others it is counted (tests/harness/count.awk).
has_its_turn() {
    [ "${SLUICE_LONG:-}" != 1 ] && [ $(((${SLUICE_TURN:-0} + $2) % $1)) -ne 0 ] || return 0
    echo "LEFT 1 case: $3"
    return 1
}

# Whether the environment has these, NAME==VERSION each: without an import, which takes seconds.
has_packages() {
    "$python" -c '
import importlib.metadata, sys
for package in sys.argv[1:]:
    name, version = package.split("==")
    if importlib.metadata.version(name) != version:
        sys.exit(1)' "$@" 2>/dev/null
}

with_uv() {
    timeout 400 "$venv/bin/uv" pip install --quiet --python "$python" "$@"
}

with_pip() {
    timeout 400 python3 -m pip --python "$python" install --quiet --no-compile "$@"
}

# With uv, which takes a tenth of pip's time, and the index of pip. All packages, so that no later test changes what an
# earlier one uses; if one of them cannot be installed, those that are asked for.
install_now() {
    [ -x "$python" ] || python3 -m venv --without-pip "$venv" || return
    [ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX=$PIP_INDEX_URL
    [ -z "${PIP_FIND_LINKS:-}" ] || export UV_FIND_LINKS=${PIP_FIND_LINKS// /,}
    has_packages uv==0.13.9 || with_pip uv==0.13.9 || return
    { [ ${#together[@]} -gt 0 ] && with_uv "${together[@]}"; } || with_uv "$@" || with_pip "$@"
}

# install_packages NAME==VERSION...: unless they are there. Why it fails is in BUILD/peers/install.log.
install_packages() {
    (
        flock -w 500 8 || exit 1
        has_packages "$@" && exit 0
        failed=$build/peers/install.failed # the tests after it do not wait for the index, too
        [ -z "$(find "$failed" -mmin -10 2>/dev/null)" ] || exit 1
        { install_now "$@" 8>&- >"$build/peers/install.log" 2>&1 </dev/null && rm -f "$failed"; } || { touch "$failed" && exit 1; }
    ) 8>"$build/peers/install.lock"
}
