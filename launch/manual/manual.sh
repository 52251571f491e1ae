#!/usr/bin/env bash
# Manual pages and completions from the help texts: manual.sh LAUNCHER OUT VERSION DATE.
# LAUNCHER is a launcher whose programs are built; OUT gets man/*.1, completion/sluice (bash) and
# completion/_sluice (zsh). The help texts are the only source: what they do not say is nowhere.
set -eu -o pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
launcher=$1 out=$2 version=$3 date=$4
mkdir -p "$out/man" "$out/completion" "$out/help"

# "VERB<tab>what it is for", from the launcher's own help.
"$launcher" --help | awk '/^  [a-z]+  / { v = $1; $1 = ""; sub(/^ +/, ""); if (v != "sluice") print v "\t" $0 }' \
    >"$out/verbs"
mapfile -t verbs < <(cut -f1 "$out/verbs")
for verb in "${verbs[@]}"; do
    "$launcher" help "$verb" >"$out/help/$verb"
    awk -f "$here/options.awk" "$out/help/$verb" >"$out/help/$verb.options"
done
cat "$out/help/generate.options" >>"$out/help/demo.options" # demo hands them on

# ---- manual pages ----

see=$(printf 'sluice-%s ' "${verbs[@]}")
while IFS=$'\t' read -r verb summary; do
    awk -v verb="$verb" -v summary="$summary" -v version="$version" -v date="$date" -v see=sluice \
        -f "$here/man.awk" "$out/help/$verb" >"$out/man/sluice-$verb.1"
done <"$out/verbs"
awk -F'\t' -v version="$version" -v date="$date" -v see="$see" -f "$here/overview.awk" \
    "$out/verbs" >"$out/man/sluice.1"

# ---- completions ----

# Names that other texts list: systems, and what a knob may be.
names_of_systems() {
    awk '/^Systems:/ { on = 1; next } /^[A-Z]/ { on = 0 } on && /^  [a-z]/ { print $1 }' "$out/help/sim"
}

choices_of_knob() {
    awk -v knob="$1" '/^Policy knobs:/ { on = 1 } on && $1 == knob { found = 1; next }
        found { print $1; exit }' "$out/help/sim" | tr '|' '\n'
}

# Words that a verb takes in place of a file: commands of ctl, shapes of synth.
operands_of() {
    case $1 in
    ctl) awk '/^  [a-z]/ { print $1 }' "$out/help/ctl" ;;
    synth) awk '/^Shapes:/ { on = 1; next } /^[A-Z]/ { on = 0 } on && /^  [a-z]/ { print $1 }' "$out/help/synth" ;;
    esac
}

# "verb<tab>name<tab>values<tab>text" of every option; "=verb" lines hold its operands, "=verb:word" those after that word.
table() {
    local verb systems eviction prediction
    systems=$(names_of_systems | paste -sd ' ')
    eviction=$(choices_of_knob eviction | paste -sd ' ')
    prediction=$(choices_of_knob prediction | paste -sd ' ')
    printf '=ctl:system\t\t%s\t\n' "$systems"
    for verb in "${verbs[@]}"; do
        printf '=%s\t\t%s\t\n' "$verb" "$(operands_of "$verb" | paste -sd ' ')"
        awk -F'\t' -v OFS='\t' -v verb="$verb" -v systems="$systems" -v eviction="$eviction" \
            -v prediction="$prediction" -f "$here/values.awk" "$out/help/$verb.options"
    done
}

table >"$out/options.tsv"
awk -F'\t' -f "$here/bash.awk" "$out/verbs" "$out/options.tsv" >"$out/completion/sluice"
cat "$here/completion.bash" >>"$out/completion/sluice"
awk -F'\t' -f "$here/zsh.awk" "$out/verbs" "$out/options.tsv" >"$out/completion/_sluice"
cat "$here/completion.zsh" >>"$out/completion/_sluice"
