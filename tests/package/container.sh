#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The image of Containerfile has programs that run. The long form builds the package in the image, too; the short form
# takes one of this build tree. SLUICE_CONTAINER_BASE: an archive of an image instead of Debian's from its registry, for
# example of `mmdebstrap --variant=minbase --include=ca-certificates bookworm base.tar`.
# shellcheck source-path=SCRIPTDIR source=verdicts.sh
. "$(dirname "${BASH_SOURCE[0]}")/verdicts.sh"
shopt -s lastpipe # verdict notes its failure in this shell

for program in buildah cpack dpkg-shlibdeps; do
    have "$program" container_image || exit 0
done
[ "$(id -u)" -eq 0 ] || { echo "SKIP container_image: not root"; exit 0; }

# Images in the scratch directory; chroot needs no namespaces, which a container that runs this may not make.
export BUILDAH_ISOLATION=chroot
images() { buildah --root "$scratch/images" --runroot "$scratch/run-images" --storage-driver vfs "$@"; }

base=docker.io/library/debian:12
if [ -n "${SLUICE_CONTAINER_BASE:-}" ]; then
    from=$(images from scratch) && images add -q "$from" "$SLUICE_CONTAINER_BASE" / >/dev/null &&
        images commit -q "$from" base >/dev/null
    base=localhost/base
elif ! timeout 120 buildah --root "$scratch/images" --runroot "$scratch/run-images" --storage-driver vfs pull -q "$base" >"$scratch/log" 2>&1; then
    echo "SKIP container_image: the image debian:12 cannot be fetched: $(tail -n 1 "$scratch/log" | cut -c 1-120)"
    exit 0
fi

package=()
if [ -z "${SLUICE_LONG:-}" ]; then
    (cd "$scratch" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$scratch/made/package") >"$scratch/log" 2>&1
    rm -rf "$scratch/made/package/_CPack_Packages"
    package=(--build-context "build=$scratch/made")
fi
{
    images bud -q --build-arg "BASE=$base" "${package[@]}" -t sluice -f "$root/Containerfile" "$root" >"$scratch/log" 2>&1 ||
        tail -n 15 "$scratch/log"
    container=$(images from sluice) && images run "$container" -- sluice --version >"$scratch/version" 2>&1
    grep -qx "sluice [0-9.]*" "$scratch/version" || cat "$scratch/version"
    ids=$(images run "$container" -- sluice demo -n 8 --temp 0 --output ids 2>"$scratch/demo.log")
    [ "$(echo "$ids" | wc -w)" -ge 8 ] || { echo "demo printed: $ids"; tail -n 5 "$scratch/demo.log"; }
} | verdict container_image "the image does not build or run"
exit "$failed"
