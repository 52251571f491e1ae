#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# stall.sh [-m MODEL] [-k BACKEND]: a real block device stalls during a generation. A copy of the model is on a loop
# device; while two loaders read, blkio (version 1) limits the reads of one to a byte per second. Reports whether
# the device was quarantined, whether the text equals that of a resident engine, and how long it took.
# Needs root, a loop device and a writable blkio hierarchy; prints SKIP without them. Cleans up at exit.
# With `-k pread` the loader blocks in the kernel until the read completes: the generation fails, see docs/devices.md.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
libexec=${SLUICE_LIBEXEC:-$here/../../build/libexec}
model=$here/../../launch/demo/tiny-books-moe-q8_0.gguf backend=io_uring
blkio=/sys/fs/cgroup/blkio
prompt='The old ship sailed north and the' run=stall-$$
while getopts m:k: option; do
    case $option in
        m) model=$OPTARG ;;
        k) backend=$OPTARG ;;
        *) exit 2 ;;
    esac
done
model=$(realpath "$model")
if [ "$(id -u)" != 0 ] || [ ! -w "$blkio/blkio.throttle.read_bps_device" ] || ! command -v losetup > /dev/null; then
    echo "SKIP stall: needs root, losetup and a writable $blkio"
    exit 0
fi

dir=$(mktemp -d) group=$blkio/sluice-stall-$$ loop='' engine=''
clean() {
    [ -z "$loop" ] || echo "$number 0" > "$group/blkio.throttle.read_bps_device" || true
    [ -z "$engine" ] || { kill "$engine" && wait "$engine"; } 2> /dev/null || true
    umount "$dir/mount" 2> /dev/null || true
    [ -z "$loop" ] || losetup -d "$loop"
    rmdir "$group" 2> /dev/null || true
    rm -rf "$dir"
}
trap clean EXIT
trap 'exit 1' INT TERM

truncate -s $((($(stat -c %s "$model") * 5 / 4 + 33554432) / 4096 * 4096)) "$dir/image"
loop=$(losetup -f --show "$dir/image")
number=$(printf '%d:%d' "0x$(stat -c %t "$loop")" "0x$(stat -c %T "$loop")")
mkdir "$dir/mount" "$group"
mkfs.ext4 -q "$loop"
mount "$loop" "$dir/mount"
cp "$model" "$dir/mount/copy.gguf"
sync -f "$dir/mount"

generate() { # number of tokens, engine or options
    "$libexec/sluice-generate" -p "$prompt" --temp 0 -n "$@" 2> "$dir/err"
}
generate 60 -m "$model" --resident-experts 100 --threads 1 > "$dir/right"
: > "$dir/log"
"$libexec/sluice-run" -m "$model" --name "$run" --resident-experts 25 --threads 1 --backend "$backend" \
    --devices "$model,$dir/mount/copy.gguf" --device-timeout 1500 > "$dir/log" 2>&1 &
engine=$!
until grep -q '^ready' "$dir/log"; do
    kill -0 "$engine" || { cat "$dir/log"; exit 1; }
    sleep 0.1
done
loader=$(pgrep -P "$engine" -f 'sluice-loader --number 1 ')
echo "$number 1" > "$group/blkio.throttle.read_bps_device"
for task in "/proc/$loader/task"/*; do
    echo "${task##*/}" > "$group/tasks"
done
begun=$(date +%s%N)
status=0
generate 60 --name "$run" > "$dir/text" || status=$?
ms=$((($(date +%s%N) - begun) / 1000000))
"$libexec/sluice-ctl" --name "$run" status | grep quarantined || status=1
if [ "$status" = 0 ] && cmp -s "$dir/text" "$dir/right"; then
    echo "same text, $ms ms for 60 tokens with $backend"
else
    echo "the generation failed or its text differs, after $ms ms with $backend: $(tail -1 "$dir/err")"
    exit 1
fi
