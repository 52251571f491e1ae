#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The image of Containerfile has programs that run. The long form builds the package in the image, too; the short form
# takes one of this build tree. With podman and runc, an engine of it runs with limits of memory and of /dev/shm. Its
# other limits are low ones: podman's own cannot be set inside some containers. SLUICE_CONTAINER_BASE: an archive of an image instead of Debian's from its registry, for
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

# crun, podman's default, rejects machines with both kinds of cgroups.
limits="--ulimit nofile=4096:4096 --ulimit nproc=1000:1000"
podman_() {
    podman --root "$scratch/images" --runroot "$scratch/run-images" --storage-driver vfs --cgroup-manager cgroupfs \
        --events-backend file --runtime runc "$@"
}
# shellcheck disable=SC2086 # words
run_engine() { # PORT OPTIONS...: an engine in the background, named sluice-test
    podman_ run -d --name sluice-test $limits --network host "${@:2}" sluice run \
        -m /usr/share/sluice/demo/tiny-books-moe-q8_0.gguf --budget 160MiB --http "127.0.0.1:$1"
}
for program in podman runc curl python3; do
    have "$program" container_engine || exit "$failed"
done
# shellcheck disable=SC2086 # words
podman_ run --rm $limits --network host --memory 100m sluice --version >"$scratch/log" 2>&1 || {
    echo "SKIP container_engine: podman runs nothing here: $(tail -n 1 "$scratch/log" | cut -c 1-120)"
    exit "$failed"
}
{
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    run_engine "$port" --memory 300m --shm-size 200m >"$scratch/log" 2>&1 || tail -n 3 "$scratch/log"
    for _ in $(seq 300); do
        curl -sf "http://127.0.0.1:$port/health" >/dev/null && break
        sleep 0.1
    done
    curl -sS "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' \
        -d '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}' >"$scratch/answer" 2>&1
    grep -q '"completion_tokens":8' "$scratch/answer" || { cat "$scratch/answer"; podman_ logs sluice-test 2>&1 | tail -n 5; }
    podman_ exec sluice-test id -un 2>&1 | grep -vx sluice
    podman_ exec sluice-test sh -c 'df -k /dev/shm | tail -n 1' 2>&1 | grep -v " 204800 "
    podman_ stop -t 30 sluice-test >/dev/null
    podman_ inspect sluice-test --format 'exit {{.State.ExitCode}}, killed for memory {{.State.OOMKilled}}' |
        grep -vx 'exit 0, killed for memory false'
    podman_ rm sluice-test >/dev/null
} | verdict container_engine "an engine in a container is not ready, does not answer, or ends with an error"
exit "$failed"
