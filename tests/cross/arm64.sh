#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds sluice for 64-bit ARM and runs tests of its kernels and models by qemu-user; with a system that starts ARM
# programs (binfmt_misc), the engine, too: its greedy text must be that of this machine's programs.
# usage: arm64.sh DIR [BUILD]     DIR: the build directory, used again; BUILD: of this machine's programs, default build
# Debian packages: README.md of this directory. Exit status 77 without them.
set -euo pipefail

case $# in
    1 | 2) ;;
    *)
        echo "usage: arm64.sh DIR [BUILD]" >&2
        exit 2
        ;;
esac
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$1
here=$(realpath -m "${2:-$root/build}")
for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ qemu-aarch64; do
    command -v "$tool" >/dev/null || {
        echo "SKIP cross_arm64: no $tool; packages: tests/cross/README.md"
        exit 77
    }
done
libraries=/usr/lib/aarch64-linux-gnu
[ -e "$libraries/libnng.so" ] || {
    echo "SKIP cross_arm64: no libraries for ARM; packages: tests/cross/README.md"
    exit 77
}

PKG_CONFIG_LIBDIR=$libraries/pkgconfig:/usr/share/pkgconfig cmake -S "$root" -B "$dir" -G Ninja -DSLUICE_CUDA=OFF \
    -DCMAKE_TOOLCHAIN_FILE="$root/tests/cross/arm64.cmake" >"$dir.log" || {
    cat "$dir.log"
    exit 1
}
ninja -C "$dir" >"$dir.log" || {
    tail -50 "$dir.log"
    exit 1
}
echo "built: $dir"
runs=yes
"$dir/libexec/sluice-inspect" --help >/dev/null 2>&1 || runs=no
except='^golden_perplexity' # whole texts take an hour
[ $runs = yes ] || except="$except|^golden_hash\$" # starts programs
(cd "$dir" && ctest -j "$(nproc)" --output-on-failure --no-tests=error --timeout 1500 -R '^(test_kernels_|golden_)' -E "$except")

if [ $runs = no ]; then
    echo "SKIP cross_arm64.engine, golden_hash: this system does not start ARM programs (binfmt_misc)"
    exit 0
fi
run_dir=$(mktemp -d)
trap 'rm -rf "$run_dir"' EXIT
text() {
    SLUICE_RUN_DIR=$run_dir "$1/libexec/sluice-generate" -m "$root/launch/demo/tiny-books-moe-q8_0.gguf" \
        -p "It was a bright morning when" -n 200 --temp 0 -q
}
arm=$(text "$dir")
other=$(text "$here")
if [ -z "$arm" ] || [ "$arm" != "$other" ]; then
    echo "the engine's text is not that of $here"
    exit 1
fi
echo "the engine's text is that of $here"
