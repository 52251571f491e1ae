#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages and completions from the tables of options: manual.sh LAUNCHER OUT VERSION DATE.
# LAUNCHER is a launcher whose programs are built; each prints its table with --help=manual (config/option_table.h). OUT
# gets man/*.1, completion/sluice (bash) and completion/_sluice (zsh).
set -eu -o pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
launcher=$1 out=$2 version=$3 date=$4
mkdir -p "$out/man" "$out/completion" "$out/table"

# "COMMAND<tab>what it is for", from the launcher's own help, without those that work in the source tree only.
"$launcher" help --all | awk '
    /^  [a-z]+  / { v = $1; $1 = ""; sub(/^ +/, ""); if (v !~ /^(sluice|test|build)$/) print v "\t" $0 }' >"$out/commands"
mapfile -t commands < <(cut -f1 "$out/commands")

# demo is not a program, and passes its options on to generate.
for command in "${commands[@]}"; do
    if [ "$command" = demo ]; then
        "$launcher" help demo | sed 's/^/text\t/' >"$out/table/demo"
    else
        "$launcher" "$command" --help=manual >"$out/table/$command"
    fi
done
options_of() { grep "^option"$'\t' "$out/table/${1/#demo/generate}"; }
text_of() { sed -n 's/^text\t//p' "$out/table/$1"; }

# ---- manual pages ----

see=$(printf 'sluice-%s ' "${commands[@]}")
while IFS=$'\t' read -r command summary; do
    awk -F'\t' -v command="$command" -v summary="$summary" -v version="$version" -v date="$date" -v see=sluice \
        -f "$here/man.awk" "$out/table/$command" >"$out/man/sluice-$command.1"
done <"$out/commands"
awk -F'\t' -v version="$version" -v date="$date" -v see="$see" -f "$here/overview.awk" \
    "$out/commands" >"$out/man/sluice.1"

# ---- completions ----

# Names listed in help texts: presets, and the values of policy parameters.
names_of_presets() {
    text_of sim | awk '/^Presets:/ { on = 1; next } /^[A-Z]/ { on = 0 } on && /^  [a-z]/ { print $1 }'
}

choices_of_parameter() {
    text_of sim | awk -v parameter="$1" '/^Policy parameters:/ { on = 1 } on && $1 == parameter { found = 1; next }
        found { print $1; found = on = 0 }' | tr '|' '\n'
}

# Operands that are not files: commands of ctl, shapes of synth.
operands_of() {
    case $1 in
    ctl) text_of ctl | awk '/^  [a-z]/ { print $1 }' ;;
    synth) text_of synth | awk '/^Shapes:/ { on = 1; next } /^[A-Z]/ { on = 0 } on && /^  [a-z]/ { print $1 }' ;;
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
        options_of "$command" | awk -F'\t' -v OFS='\t' -v command="$command" -v presets="$presets" \
            -v eviction="$eviction" -v prediction="$prediction" -f "$here/values.awk"
    done
}

table >"$out/options.tsv"
awk -F'\t' -f "$here/bash.awk" "$out/commands" "$out/options.tsv" >"$out/completion/sluice"
cat "$here/completion.bash" >>"$out/completion/sluice"
awk -F'\t' -f "$here/zsh.awk" "$out/commands" "$out/options.tsv" >"$out/completion/_sluice"
cat "$here/completion.zsh" >>"$out/completion/_sluice"
