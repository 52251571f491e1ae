#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes DIR/venv with llama-cpp-python, built for this processor, and gguf and numpy: pinned versions, see README.md.
# usage: setup.sh DIR [avx2|avxvnni]     takes about ten minutes of two cores; does nothing if DIR/venv is complete
# An instruction set: built for a processor that has no other one above it.
set -euo pipefail

case "$#,${2-}" in
    1, | 2,avx2 | 2,avxvnni) ;;
    *)
        echo "usage: setup.sh DIR [avx2|avxvnni]" >&2
        exit 2
        ;;
esac
llama=0.3.36
dir=$1
python=$dir/venv/bin/python
mkdir -p "$dir"
[ -x "$python" ] || python3 -m venv "$dir/venv"
if "$python" -c "import importlib.metadata as m; raise SystemExit(m.version('llama_cpp_python') != '$llama')" 2>/dev/null; then
    exit 0
fi

isa=${2-}
# avx...: whether the processor has it, unless an instruction set is given
flag() {
    if [ -n "$isa" ]; then
        [ "$isa" = avxvnni ] && [ "$1" = avx_vnni ] && echo ON || echo OFF
    else
        grep -qwm1 "$1" /proc/cpuinfo && echo ON || echo OFF
    fi
}

# AMX is off: llama.cpp crashed with it on virtual machines.
options=(-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON "-DGGML_AVX_VNNI=$(flag avx_vnni)"
    "-DGGML_AVX512=$(flag avx512bw)" "-DGGML_AVX512_VBMI=$(flag avx512vbmi)" "-DGGML_AVX512_VNNI=$(flag avx512_vnni)"
    "-DGGML_AVX512_BF16=$(flag avx512_bf16)" -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF
    -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DMTMD_BUILD=OFF -DLLAMA_CURL=OFF)
export CMAKE_ARGS="${options[*]}"
"$python" -m pip install --quiet gguf==0.19.0 numpy==2.4.6
# --no-cache-dir: pip keeps what it built for other options
"$python" -m pip install --quiet --no-cache-dir --no-binary llama-cpp-python "llama-cpp-python==$llama"
