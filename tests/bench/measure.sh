#!/usr/bin/env bash
# Everything that docs/benchmarks.md shows, by one command; see measure.py, which this runs.
#   tests/bench/measure.sh --short|--long [--only PART,...] -o DIR [--python VENV/bin/python]
exec python3 "$(dirname "${BASH_SOURCE[0]}")/measure.py" "$@"
