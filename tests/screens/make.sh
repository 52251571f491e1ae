#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the screenshots of docs/screens: tests/screens/make.sh DIR [terminals]
# An engine with the demo model and a gateway under load, in DIR: top at 80x24 and at 160x45, repl at 80x24 (SVG, from
# tmux), the gateway's page at the sizes of a phone and of a desktop (PNG, from Chromium). A missing tool
# is reported and its screenshot skipped; "terminals" leaves the page out. Needs a build, python3 and curl; SLUICE_LIBEXEC as in the other scripts.
set -u -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
libexec=${SLUICE_LIBEXEC:-$root/build/libexec}
model=$root/launch/demo/tiny-books-moe-q8_0.gguf
run=tiny-books
out=${1:?usage: tests/screens/make.sh DIR [terminals]}
parts=${2:-all}
prompt='It was a dark and stormy night, and'

die() {
    echo "make.sh: $*" >&2
    exit 1
}

for needed in python3 curl; do
    command -v "$needed" >/dev/null || {
        echo "SKIP screens: $needed is not installed"
        exit 0
    }
done
[ -x "$libexec/sluice-run" ] || die "no build in $libexec (run launch/sluice build)"
mkdir -p "$out" || exit 1

SLUICE_RUN_DIR=$(mktemp -d /tmp/sluice-screens.XXXXXX)
export SLUICE_RUN_DIR XDG_STATE_HOME=$SLUICE_RUN_DIR LC_ALL=C.UTF-8
unset NO_COLOR
engine='' load='' shown=0
finish() {
    [ -n "$load" ] && kill "$load" 2>/dev/null && wait "$load" 2>/dev/null
    [ "$shown" -gt 0 ] && screen kill-server 2>/dev/null
    [ -n "$engine" ] && kill "$engine" 2>/dev/null && wait "$engine" 2>/dev/null
    rm -rf "$SLUICE_RUN_DIR"
}
trap finish EXIT

# until_true WHAT COMMAND...: waits at most a minute until the command succeeds.
until_true() {
    local what=$1 end=$((SECONDS + 60))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || die "timed out after a minute: $what"
        sleep 0.2 # between two checks
    done
}

counter() {
    "$libexec/sluice-stats" --name "$run" --counters 2>/dev/null | awk -v key="$1" '$1 == key { print $2 }'
}

gateway_serves() {
    port=$(counter gateway.0.port)
    [ -n "$port" ] && [ "$port" != 0 ] && curl -sf "http://127.0.0.1:$port/health" >/dev/null
}

# repeat COMMAND...: again and again, until TERM ends it and its command.
repeat() {
    trap 'kill $(jobs -p) 2>/dev/null; exit' TERM
    while :; do
        "$@" >/dev/null 2>&1 &
        wait $!
    done
}

# Responses, and at the same time a conversation over HTTP.
keep_busy() {
    local body
    body=$(printf '{"messages": [{"role": "user", "content": "%s"}], "max_tokens": 400, "ignore_eos": true}' "$prompt")
    trap 'kill $(jobs -p) 2>/dev/null; exit' TERM
    repeat curl -s -d "$body" "http://127.0.0.1:$port/v1/chat/completions" &
    repeat "$libexec/sluice-generate" --name "$run" -p "$prompt" -n 400 --ignore-eos -q &
    wait
}

busy() {
    load=''
    if [ "$1" = on ]; then
        keep_busy &
        load=$!
    fi
}

idle() {
    kill "$load" && wait "$load" 2>/dev/null
    load=''
    until_true "the end of the load" nothing_runs
}

nothing_runs() {
    [ "$(counter compute.0.sequences_running)" = 0 ]
}

# ---- terminals ----

# A tmux server per terminal: a server that is exiting would take a new session with it.
screen() {
    tmux -L "sluice-$$-$shown" "$@"
}

# terminal COLUMNS ROWS COMMAND...
terminal() {
    local columns=$1 rows=$2
    shift 2
    shown=$((shown + 1))
    screen -f /dev/null new-session -d -s s -x "$columns" -y "$rows" "$@" &&
        screen set-option -g status off >/dev/null
}

shows() {
    screen capture-pane -p -t s | grep -Eq "$1"
}

# picture NAME COLUMNS ROWS
picture() {
    screen capture-pane -e -p -N -t s | python3 -B "$here/svg.py" "$2" "$3" >"$out/$1.svg" || exit 1
    screen kill-server
    echo "ok $1.svg"
}

top_picture() {
    terminal "$2" "$3" env TERM=tmux-256color "$libexec/sluice-top" --name "$run" --interval 0.5 || exit 1
    until_true "$1" shows 'decode [1-9]'
    until_true "$1" shows 'up 00:00:[0-5][5-9]'
    until_true "$1" shows 'chat/completions *answer'
    until_true "$1" shows "$4"
    picture "$1" "$2" "$3"
}

repl_says() {
    local answers=$1
    shift
    screen send-keys -t s -l "$*"
    screen send-keys -t s Enter
    until_true "repl's answer" shows_times "$answers" "$answered"
}

shows_times() {
    [ "$(screen capture-pane -p -t s | grep -Ec "$2")" -ge "$1" ]
}

repl_picture() {
    answered='tokens/s, first after|^budget [0-9]'
    terminal 80 24 env TERM=tmux-256color "$libexec/sluice-repl" --name "$run" --temp 0.6 --seed 3 -n 60 || exit 1
    until_true "repl" shows '^>>>'
    repl_says 1 "$prompt"
    repl_says 2 "The next morning, the captain"
    repl_says 3 /budget
    picture repl 80 24
}

terminals() {
    command -v tmux >/dev/null || {
        echo "SKIP top.svg, top-wide.svg, repl.svg: tmux is not installed"
        return
    }
    busy on
    top_picture top 80 24 'hit [0-9]'
    top_picture top-wide 160 45 '#{24}'
    idle
    repl_picture
}

# ---- the page ----

pages() {
    local chromium
    chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
        echo "SKIP page-phone.png, page-chat.png, page-desktop.png, page-phone-engine.png: Chromium is not installed"
        return
    }
    busy on
    python3 -B "$here/page.py" "$chromium" "http://127.0.0.1:$port/" 60 "$out" || exit 1
    idle
    for name in page-phone page-chat page-desktop page-phone-engine; do
        echo "ok $name.png"
    done
}

"$libexec/sluice-run" -m "$model" --name "$run" --budget 72MiB --resident-experts 45 --http 0 --http-connections 64 --http-body 64KiB \
    --http-buffer 256KiB --log-level error 2>"$SLUICE_RUN_DIR/log" &
engine=$!
until_true "the gateway" gateway_serves
terminals
[ "$parts" = terminals ] || pages
