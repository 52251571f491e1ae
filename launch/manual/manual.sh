#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages and completions from the help texts: manual.sh LAUNCHER OUT VERSION DATE.
# LAUNCHER is a launcher whose programs are built; OUT gets man/*.1, completion/sluice (bash) and
# completion/_sluice (zsh). The help texts are the only source.
set -eu -o pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
launcher=$1 out=$2 version=$3 date=$4
mkdir -p "$out/man" "$out/completion" "$out/help"

# "COMMAND<tab>what it is for", from the launcher's own help, without those that work in the source tree only.
"$launcher" help --all | awk '
    /^  [a-z]+  / { v = $1; $1 = ""; sub(/^ +/, ""); if (v !~ /^(sluice|test|build)$/) print v "\t" $0 }' >"$out/commands"
mapfile -t commands < <(cut -f1 "$out/commands")
for command in "${commands[@]}"; do
    "$launcher" help "$command" >"$out/help/$command"
    awk -f "$here/options.awk" "$out/help/$command" >"$out/help/$command.options"
done
cat "$out/help/generate.options" >>"$out/help/demo.options" # demo passes them on

# ---- manual pages ----

see=$(printf 'sluice-%s ' "${commands[@]}")
while IFS=$'\t' read -r command summary; do
    awk -v command="$command" -v summary="$summary" -v version="$version" -v date="$date" -v see=sluice \
        -f "$here/man.awk" "$out/help/$command" >"$out/man/sluice-$command.1"
done <"$out/commands"
awk -F'\t' -v version="$version" -v date="$date" -v see="$see" -f "$here/overview.awk" \
    "$out/commands" >"$out/man/sluice.1"

# ---- completions ----

# Names listed in other help texts: presets, and the values of policy parameters.
names_of_presets() {
    awk '/^Presets:/ { on = 1; next } /^[A-Z]/ { on = 0 } on && /^  [a-z]/ { print $1 }' "$out/help/sim"
}

choices_of_parameter() {
    awk -v parameter="$1" '/^Policy parameters:/ { on = 1 } on && $1 == parameter { found = 1; next }
        found { print $1; exit }' "$out/help/sim" | tr '|' '\n'
}

# Operands that are not files: commands of ctl, shapes of synth.
operands_of() {
    case $1 in
    ctl) awk '/^  [a-z]/ { print $1 }' "$out/help/ctl" ;;
    synth) awk '/^Shapes:/ { on = 1; next } /^[A-Z]/ { on = 0 } on && /^  [a-z]/ { print $1 }' "$out/help/synth" ;;
    esac
}

# "command<tab>name<tab>values<tab>text" of every option; "=command" lines hold its operands, "=command:word" those after that word.
table() {
    local command presets eviction prediction
    presets=$(names_of_presets | paste -sd ' ')
    eviction=$(choices_of_parameter eviction | paste -sd ' ')
    prediction=$(choices_of_parameter prediction | paste -sd ' ')
    printf '=ctl:preset\t\t%s\t\n' "$presets"
    for command in "${commands[@]}"; do
        printf '=%s\t\t%s\t\n' "$command" "$(operands_of "$command" | paste -sd ' ')"
        awk -F'\t' -v OFS='\t' -v command="$command" -v presets="$presets" -v eviction="$eviction" \
            -v prediction="$prediction" -f "$here/values.awk" "$out/help/$command.options"
    done
}

table >"$out/options.tsv"
awk -F'\t' -f "$here/bash.awk" "$out/commands" "$out/options.tsv" >"$out/completion/sluice"
cat "$here/completion.bash" >>"$out/completion/sluice"
awk -F'\t' -f "$here/zsh.awk" "$out/commands" "$out/options.tsv" >"$out/completion/_sluice"
cat "$here/completion.zsh" >>"$out/completion/_sluice"
