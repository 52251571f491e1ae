#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures everything in docs/benchmarks.md; runs measure.py, see there.
#   tests/bench/measure.sh --short|--long [--only PART,...] -o DIR [--python VENV/bin/python]
exec python3 "$(dirname "${BASH_SOURCE[0]}")/measure.py" "$@"
