#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every option of a program's table is in its help, its manual page and the completions; and the help names no other.
# shellcheck source-path=SCRIPTDIR source=verdicts.sh
. "$(dirname "${BASH_SOURCE[0]}")/verdicts.sh"
shopt -s lastpipe # verdict notes its failure in this shell

manual=$build/manual
[ -f "$manual/stamp" ] || { echo "not ok package_manual: $manual was not built"; exit 1; }
mapfile -t commands < <(cut -f1 "$manual/commands")

# "command option", of the tables. demo passes its options on to generate, and its help names some of them.
for command in "${commands[@]}"; do
    [ "$command" = demo ] || awk -F'\t' -v command="$command" '
        $1 == "option" { n = split($2, name, " "); for (i = 1; i <= n; i++) print command, name[i] }' "$manual/table/$command"
done >"$scratch/options"
{
    [ "${#commands[@]}" -ge 15 ] || echo "only ${#commands[@]} commands were found"
    [ "$(wc -l <"$scratch/options")" -ge 500 ] || echo "only $(wc -l <"$scratch/options") options were found"
    for option in "generate --budget" "run -m" "sim --synthetic" "generate --temperature" "stats --version" "ctl -h"; do
        grep -qx -- "$option" "$scratch/options" || echo "$option is missing"
    done
} | verdict manual_sources "commands or options are missing from the tables"

# Options of a help text, found independently of the tables: words that start with a dash, in the usage and on lines
# that start with one (up to the description).
options_of() {
    awk '/^usage:/ { u = 1 } u && /^$/ { u = 0 }
         u { print; next }
         match($0, /^ +-/) && RLENGTH <= 8 { sub(/^ +/, ""); n = match($0, /[^ ]  +[^ ]/); print n ? substr($0, 1, n) : $0 }' |
        grep -oE '(^|[][ (|])--?[A-Za-z][A-Za-z0-9-]*' | tr -d '][ (|' | sort -u
}

for command in "${commands[@]}"; do
    [ "$command" = demo ] || diff <(sed -n "s/^$command //p" "$scratch/options" | sort -u) \
        <("$root/launch/sluice" help "$command" | options_of) | sed -n "s/^</$command: only in the table:/p; s/^>/$command: only in the help:/p"
done | verdict manual_help_is_of_the_table "a help text and its table have different options"

# Help fits a terminal of 80 columns, apart from the tables of presets, policy parameters and shapes.
for command in "${commands[@]}"; do
    case $command in sim | synth) continue ;; esac
    "$root/launch/sluice" help "$command" | awk -v command="$command" 'length > 80 { print command ": " $0 }'
done | verdict manual_help_fits_a_terminal "lines of a help text have more than 80 columns"

# Options without a place in the help are those that the supervisor passes to inspect, and pack to itself.
for command in "${commands[@]}"; do
    sed -n "s/^internal\t/$command /p" "$manual/table/$command"
done | sort | diff - <(printf 'inspect --%s\n' log-format model-fd plan segment-fd skeleton; echo 'pack --staged') |
    verdict manual_internal_options "other options are missing from the help"

# Roff without escapes and fonts.
plain() { sed 's/\\f[BIR]//g; s/\\-/-/g; s/\\&//g' "$1"; }

for command in "${commands[@]}"; do
    plain "$manual/man/sluice-$command.1" >"$scratch/$command.text"
done
while read -r command option; do
    grep -qE -- "(^|[^A-Za-z0-9-])$option([^A-Za-z0-9-]|\$)" "$scratch/$command.text" ||
        echo "sluice-$command.1 lacks $option"
done <"$scratch/options" | verdict manual_pages_have_every_option "a manual page lacks an option of --help"

# The overview has the words of the launcher's help, and no command that works in the source tree only.
{
    plain "$manual/man/sluice.1" >"$scratch/overview"
    grep -n 'VER[B]' "$scratch/overview"
    grep -qF 'sluice COMMAND [OPTIONS]' "$scratch/overview" || echo "no synopsis: $(sed -n 6p "$scratch/overview")"
    grep -qF 'serve is short for run --http 8080, chat for repl.' "$scratch/overview" || echo "serve and chat are missing"
    for command in test build; do
        [ ! -e "$manual/man/sluice-$command.1" ] || echo "sluice-$command.1 is installed"
    done
} | verdict manual_overview_is_of_the_launcher "sluice.1 differs from the launcher's help"

# The completions offered for "sluice COMMAND -".
offered() {
    bash -c '. "$1"; COMP_WORDS=(sluice "${@:2}"); COMP_CWORD=$(($# - 1)); _sluice; printf "%s\n" "${COMPREPLY[@]}"' \
        - "$manual/completion/sluice" "$@"
}

for command in "${commands[@]}"; do
    offered "$command" - | sort -u | comm -23 <(sed -n "s/^$command //p" "$scratch/options" | sort -u) - |
        sed "s/^/bash: $command lacks /"
done | verdict manual_bash_has_every_option "the bash completion lacks an option of --help"

{
    [ "$(offered gen)" = generate ] || echo "commands: gen -> $(offered gen)"
    [ "$(offered run --backend '' | paste -sd ' ')" = "auto io_uring pread" ] || echo "run --backend"
    [ "$(offered run --backend = p)" = pread ] || echo "run --backend=p -> $(offered run --backend = p)"
    [ "$(offered run --eviction ar)" = arc ] || echo "run --eviction ar"
    [ "$(offered run --deterministic '' | paste -sd ' ')" = "on off" ] || echo "run --deterministic"
    offered run --preset '' | grep -x swapmoe >/dev/null || echo "run --preset lacks swapmoe"
    offered ctl preset '' | grep -x hobbit >/dev/null || echo "ctl preset lacks hobbit"
    [ "$(offered ctl thr)" = throttle ] || echo "ctl thr"
    [ "$(offered synth olm)" = olmoe-1b-7b ] || echo "synth olm"
    [ -z "$(offered run --budget 1)" ] || echo "run --budget offers $(offered run --budget 1)"
} | verdict manual_bash_offers_values "the bash completion offers wrong values"

if have zsh manual_zsh_has_every_option; then
    {
        zsh -n "$manual/completion/_sluice" 2>&1
        # Without the last line, which runs the completion. The variables are zsh's:
        # shellcheck disable=SC2016
        sed '/^_sluice "\$@"$/d' "$manual/completion/_sluice" >"$scratch/tables.zsh"
        for command in "${commands[@]}"; do
            # shellcheck disable=SC2016
            zsh -fc '. $1; _sluice_options $2; print -l -- ${reply%%:*}' - "$scratch/tables.zsh" "$command" | sort -u |
                comm -23 <(sed -n "s/^$command //p" "$scratch/options" | sort -u) - | sed "s/^/zsh: $command lacks /"
        done
    } | verdict manual_zsh_has_every_option "the zsh completion lacks an option of --help"
fi

"$root/launch/manual/config_doc.sh" "$build/libexec" --check |
    verdict manual_config_doc_is_current "docs/config.md is out of date"

# A file of all defaults, uncommented, can be loaded: the only error is the missing model.
"$build/libexec/sluice-run" --print-config | sed -n 's/^#\([a-z_]* =\)/\1/p' >"$scratch/all.conf"
{
    grep -q '^budget = 0$' "$scratch/all.conf" || echo "no budget in --print-config"
    "$build/libexec/sluice-run" --config "$scratch/all.conf" 2>&1 | grep -v '^error: no model given; use -m MODEL'
} | verdict manual_printed_config_loads "--config rejects the output of --print-config"

if have mandoc manual_pages_are_sound; then
    mandoc -T lint "$manual"/man/*.1 | grep -v ' STYLE: ' |
        verdict manual_pages_are_sound "mandoc warns"
elif have groff manual_pages_are_sound_to_groff; then
    for page in "$manual"/man/*.1; do
        groff -man -Tutf8 -ww -z "$page" 2>&1
    done | verdict manual_pages_are_sound_to_groff "groff warns"
fi

exit "$failed"
