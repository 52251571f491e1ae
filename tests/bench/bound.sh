#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures lossless decode relative to the bound by storage device and CPU; runs bound.py.
#   tests/bench/bound.sh -m MODEL [--shares 50,25] [-n 64 -r 5] [--python VENV/bin/python]
exec python3 "$(dirname "${BASH_SOURCE[0]}")/bound.py" "$@"
