#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# devices.sh [-m MODEL] [-r ROUNDS] [-b MB] [-e PERCENT] [-d DIR]: compares one storage device with two, at equal total
# bandwidth and at double; with two, experts striped over both, or each on one (spread). Devices are loaders with
# throttles, so the layout is measured, not a device: the physical device must be faster than 2 * MB per second.
# Stores are made in a directory that is removed, as is the model if none is given (0.9 GiB, and 2.7 GiB of
# stores). Every round runs every variant once, starting with another one each time; the table has medians over
# rounds, and paired ratios (minimum to maximum) to one device of the same total and to one of MB per second.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
libexec=${SLUICE_LIBEXEC:-$here/../../build/libexec}
model='' rounds=5 mb=200 experts=50 base=${TMPDIR:-/tmp}
while getopts m:r:b:e:d: option; do
    case $option in
        m) model=$OPTARG ;;
        r) rounds=$OPTARG ;;
        b) mb=$OPTARG ;;
        e) experts=$OPTARG ;;
        d) base=$OPTARG ;;
        *) exit 2 ;;
    esac
done
dir=$(mktemp -d "$base/sluice-devices-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM

if [ -z "$model" ]; then
    model=$dir/model.gguf
    "$libexec/sluice-synth" -q -o "$model" olmoe-1b-7b layers=4 vocab=8192 --type Q4_0 --pure >&2
fi
"$libexec/sluice-pack" -m "$model" -o "$dir/one" --quiet >&2
for layout in striped spread; do
    "$libexec/sluice-pack" -m "$model" -o "$dir/$layout" --layout $layout \
        --stripes "$dir/$layout.0,$dir/$layout.1" --quiet >&2
done

# total, devices, layout, store, throttle of each device
cat > "$dir/variants" <<VARIANTS
$mb 1 - one $mb
$mb 2 striped striped $((mb / 2))
$mb 2 spread spread $((mb / 2))
$((2 * mb)) 1 - one $((2 * mb))
$((2 * mb)) 2 striped striped $mb
$((2 * mb)) 2 spread spread $mb
VARIANTS

# One line per test: round, variant, total, devices, layout, test, tokens/s, stall per token, MiB per token.
variants=$(wc -l < "$dir/variants")
round=0
while [ "$round" -lt "$rounds" ]; do
    turn=0
    while [ "$turn" -lt "$variants" ]; do
        variant=$(((round + turn) % variants + 1))
        read -r total devices layout store throttle << LINE
$(sed -n "${variant}p" "$dir/variants")
LINE
        "$libexec/sluice-bench" -m "$dir/$store" -p 128 -n 64 -r 1 --warmup-tokens 32 --seed $((round + 1)) \
            --resident-experts "$experts" --throttle "${throttle}MB" -o csv 2> /dev/null |
            awk -F, -v head="$round $variant $total $devices $layout" \
                'NR > 1 { print head, $3, $5, $10, $11 }' >> "$dir/samples"
        echo "round $((round + 1)) of $rounds, variant $variant: $(tail -1 "$dir/samples")" >&2
        turn=$((turn + 1))
    done
    round=$((round + 1))
done

echo "| test | total | devices | layout | tokens/s | ratio to one of the same total | ratio to one of $mb MB/s | stall per token | MiB read per token |"
echo "|---|---:|---:|---|---:|---|---|---:|---:|"
awk -v mb="$mb" '
# The paired ratio of a variant to one device with that total.
function against(key, test, whole,    r, list, lo, hi) {
    lo = 1e9; hi = 0
    for (r = 0; r < rounds; r++) {
        list[r + 1] = tps[key, r] / one[test, whole, r]
        lo = list[r + 1] < lo ? list[r + 1] : lo
        hi = list[r + 1] > hi ? list[r + 1] : hi
    }
    return sprintf("%.3f (%.3f to %.3f)", median(list, rounds), lo, hi)
}
function median(list, n,    i, j, x) {
    for (i = 2; i <= n; i++) {
        x = list[i]
        for (j = i - 1; j >= 1 && list[j] > x; j--)
            list[j + 1] = list[j]
        list[j + 1] = x
    }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
{
    key = $6 " " $2
    rounds = $1 + 1 > rounds ? $1 + 1 : rounds
    total[key] = $3; devices[key] = $4; layout[key] = $5
    tps[key, $1] = $7; stall[key, $1] = $8; mib[key, $1] = $9
    if (!(key in seen)) { seen[key] = 1; tests[++count] = key }
    if ($4 == 1) one[$6, $3, $1] = $7
}
END {
    for (which = 1; which <= 2; which++)
        for (variant = 1; variant <= 6; variant++) {
            key = (which == 1 ? "tg64" : "pp128") " " variant
            if (!(key in seen)) continue
            split(key, part, " ")
            for (r = 0; r < rounds; r++) {
                a[r + 1] = tps[key, r]; b[r + 1] = stall[key, r]; c[r + 1] = mib[key, r]
            }
            printf "| %s | %d MB/s | %d | %s | %.2f | %s | %s | %.1f ms | %.1f MiB |\n", part[1], total[key],
                   devices[key], layout[key] == "-" ? "" : layout[key], median(a, rounds),
                   devices[key] == 1 ? "" : against(key, part[1], total[key]),
                   total[key] == mb ? "" : against(key, part[1], mb),
                   median(b, rounds), median(c, rounds)
        }
}' "$dir/samples"
