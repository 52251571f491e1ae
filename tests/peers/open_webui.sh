#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest peers_open_webui: with SLUICE_LONG=1 a conversation in Open WebUI, driven in Chromium (open_webui.py). The program
# is pinned, and installed into BUILD/peers/open_webui by uv, which leaves out what only its local models need: 1.2 GB
# instead of 9. SLUICE_OPEN_WEBUI: the program of an installation. Without Chromium or the package index a SKIP.
# usage: open_webui.sh ROOT BUILD
set -euo pipefail
root=$1
build=$2
dir=$build/peers/open_webui
program=${SLUICE_OPEN_WEBUI:-$dir/bin/open-webui}
uv=0.13.9
unused=(torch sentence-transformers accelerate faster-whisper opencv-python-headless rapidocr-onnxruntime playwright)

if [ "${SLUICE_LONG:-}" != 1 ]; then
    echo "SKIP open_webui: only with --long"
    exit 0
fi
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "SKIP open_webui: Chromium is not installed"
    exit 0
}
install_program() {
    python3 -m venv "$dir" &&
        timeout 120 "$dir/bin/python" -m pip install --quiet "uv==$uv" &&
        printf "%s; python_version < '3'\n" "${unused[@]}" >"$dir/unused.txt" &&
        timeout 600 "$dir/bin/uv" pip install --quiet --python "$dir/bin/python" --override "$dir/unused.txt" open-webui==0.12.4
}
if ! [ -x "$program" ] && ! { mkdir -p "$dir" && install_program; } >"$build/peers/open_webui.log" 2>&1; then
    echo "SKIP open_webui: it cannot be installed: $(tail -n 1 "$build/peers/open_webui.log")"
    exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/open_webui.XXXXXX")
trap 'rm -rf "$work"' EXIT
python3 -B "$root/tests/peers/open_webui.py" --program "$program" --chromium "$chromium" --libexec "$build/libexec" -o "$work"
