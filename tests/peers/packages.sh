#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tokenizers and chat templates against data of other packages, fetched from the package index into BUILD/peers
# (README.md): the vocabularies of real models that llama-cpp-python's source distribution carries, with texts and their
# ids; its chat templates of real models, compared with the package jinja2, and the ids of conversations with the package
# tokenizers; real vocabularies in the form of tiktoken, with the ids of that package; and regex on random text.
# usage: packages.sh ROOT BUILD     SLUICE_LONG=1: every conversation with every template, not a sixth of them, in turn
set -euo pipefail

llama_version="llama-cpp-python==0.3.36"
root=$1
build=$2
dir=$build/peers
program=$build/tests/peer_tokens
every=6
[ "${SLUICE_LONG:-}" != 1 ] || every=1
failed=0
. "$root/tests/peers/environment.sh"

# ok NAME, or not ok with the output of the test.
verdict() { # NAME STATUS
    if [ "$2" -eq 0 ]; then echo "ok $1"; else
        echo "not ok $1"
        failed=1
    fi
}

fetch_data() {
    [ -f "$dir/vocabularies/done" ] && [ -d "$dir/templates" ] && return 0
    rm -rf "$dir/vocabularies" "$dir/templates" && mkdir "$dir/vocabularies" "$dir/templates" &&
        timeout 400 python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python -d "$dir" "$llama_version" >"$dir/log" 2>&1 &&
        tar -xzf "$dir"/llama_cpp_python-*.tar.gz -C "$dir/vocabularies" --wildcards --strip-components 4 '*/models/ggml-vocab-*' '*/models/templates/*.jinja' &&
        mv "$dir"/vocabularies/templates/*.jinja "$dir/templates" && rmdir "$dir/vocabularies/templates" &&
        rm "$dir"/llama_cpp_python-*.tar.gz && touch "$dir/vocabularies/done"
}

if fetch_data; then
    status=0
    count=0
    for inp in "$dir"/vocabularies/*.inp; do
        file=${inp%.inp}
        this=0
        found=$("$program" vocabulary "$file" 2>&1) || this=$?
        echo "$(basename "$file"): $found"
        case $this in
            0) count=$((count + 1)) ;;
            3) ;; # not a tokenizer of sluice
            *) status=1 ;;
        esac
    done
    [ "$count" -ge 13 ] || status=1
    verdict vocabularies_of_real_models "$status"
else
    echo "SKIP vocabularies_of_real_models: $llama_version cannot be fetched"
fi

if install_packages "${template_packages[@]}"; then
    status=0
    "$python" "$root/tests/golden/expression_vectors.py" --compare "$program" 400 || status=$?
    verdict words_on_random_text "$status"
    if ! [ -f "$dir/vocabularies/done" ]; then :; elif ! has_its_turn 4 1 real_vocabularies_as_tiktoken; then :; elif install_packages "${tokenizer_packages[@]}"; then
        status=0
        for file in qwen2 llama-bpe gpt-2 deepseek-llm; do
            "$python" "$root/tests/golden/tiktoken_vectors.py" --of "$dir/vocabularies/ggml-vocab-$file.gguf" "$dir" &&
                "$build/tests/unit_hf_tiktoken" "$dir/ranks.tiktoken" "$dir/tiktoken.json" || status=$?
        done
        verdict real_vocabularies_as_tiktoken "$status"
    else
        echo "SKIP real_vocabularies_as_tiktoken: gguf and tiktoken cannot be installed"
    fi
    if [ -f "$dir/vocabularies/done" ]; then
        status=0
        "$python" "$root/tests/golden/chat_templates.py" "$build/tests/golden_jinja" "$dir/templates" "$every" || status=$?
        verdict templates_of_real_models "$status"
        if has_its_turn 3 0 histories_of_clients; then
            status=0
            "$python" "$root/tests/peers/chat_history.py" "$build/tests/peer_history" "$dir/templates" || status=$?
            verdict histories_of_clients "$status"
        fi
        if ! has_its_turn 3 1 ids_of_conversations; then :; elif install_packages "${tokenizer_packages[@]}"; then
            status=0
            "$python" "$root/tests/golden/chat_ids.py" real "$root/tests/golden/data/tokenizers" "$dir/templates" "$dir/chat_ids.json" &&
                "$build/tests/unit_chat_ids" "$dir/chat_ids.json" || status=$?
            verdict ids_of_conversations "$status"
        else
            echo "SKIP ids_of_conversations: ${tokenizer_packages[*]} cannot be installed"
        fi
    else
        echo "SKIP templates_of_real_models: $llama_version cannot be fetched"
    fi
else
    echo "SKIP words_on_random_text, templates_of_real_models: ${template_packages[*]} cannot be installed"
fi
exit "$failed"
