#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every file of launch/examples starts an engine, on the demo model.
# shellcheck source-path=SCRIPTDIR source=verdicts.sh
. "$(dirname "${BASH_SOURCE[0]}")/verdicts.sh"
shopt -s lastpipe # verdict notes its failure in this shell

# The places that an example names are replaced: its devices by two copies of the demo model, its port by a free one.
demo=$root/launch/demo/tiny-books-moe-q8_0.gguf
mkdir -p "$scratch/fast1" "$scratch/fast2"
cp "$demo" "$scratch/fast1/model.gguf"
cp "$demo" "$scratch/fast2/model.gguf"
export SLUICE_RUN_DIR=$scratch/run
engine=

stop_engine() {
    [ -z "$engine" ] || kill "$engine" 2>/dev/null
    [ -z "$engine" ] || wait "$engine"
    engine=
}
trap 'stop_engine; rm -rf "$scratch"' EXIT

# Waits until the engine answers, or has ended.
answers() {
    local until=$((SECONDS + 120))
    while [ "$SECONDS" -lt "$until" ] && kill -0 "$engine" 2>/dev/null; do
        "$build/libexec/sluice-ctl" --name "$1" status >/dev/null 2>&1 && return 0
        read -r -t 0.2 <> <(:)
    done
    return 1
}

check() { # FILE NAME
    head -n 1 "$1" | grep -qE "^# sluice run -m [^ ]+ --config $2\.conf\$" || echo "its first line is: $(head -n 1 "$1")"
    sed -e "s#/fast#$scratch/fast#g" -e 's#^\(http *= *\)127.0.0.1:8080#\1127.0.0.1:0#' "$1" >"$scratch/$2.conf"
    "$build/libexec/sluice-run" -m "$scratch/fast1/model.gguf" --config "$scratch/$2.conf" --name "$2" >"$scratch/log" 2>&1 &
    engine=$!
    answers "$2" || { echo "the engine does not start:"; tail -5 "$scratch/log"; }
    stop_engine
    status=$?
    [ "$status" -eq 0 ] || echo "ended with $status"
}

for file in "$root"/launch/examples/*.conf; do
    name=$(basename "$file" .conf)
    check "$file" "$name" >"$scratch/found"
    verdict "examples_$name" "it is no configuration that starts" <"$scratch/found"
done

exit "$failed"
