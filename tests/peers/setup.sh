#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes DIR/venv with llama-cpp-python, built for this processor, and gguf and numpy: pinned versions, see README.md.
# usage: setup.sh DIR     takes about ten minutes of two cores; does nothing if DIR/venv is complete
set -euo pipefail

[ $# -eq 1 ] || {
    echo "usage: setup.sh DIR" >&2
    exit 2
}
llama=0.3.36
dir=$1
python=$dir/venv/bin/python
mkdir -p "$dir"
[ -x "$python" ] || python3 -m venv "$dir/venv"
if "$python" -c "import importlib.metadata as m; raise SystemExit(m.version('llama_cpp_python') != '$llama')" 2>/dev/null; then
    exit 0
fi

flag() { grep -qwm1 "$1" /proc/cpuinfo && echo ON || echo OFF; }

# AMX is off: llama.cpp crashed with it on virtual machines.
options=(-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON
    "-DGGML_AVX512=$(flag avx512bw)" "-DGGML_AVX512_VBMI=$(flag avx512vbmi)" "-DGGML_AVX512_VNNI=$(flag avx512_vnni)"
    "-DGGML_AVX512_BF16=$(flag avx512_bf16)" -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF
    -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DMTMD_BUILD=OFF -DLLAMA_CURL=OFF)
export CMAKE_ARGS="${options[*]}"
"$python" -m pip install --quiet gguf==0.19.0 numpy==2.4.6
"$python" -m pip install --quiet --no-binary llama-cpp-python "llama-cpp-python==$llama"
