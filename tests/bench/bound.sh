#!/usr/bin/env bash
# How near lossless decode comes to what drive and processor allow; see bound.py, which this runs.
#   tests/bench/bound.sh -m MODEL [--shares 50,25] [-n 64 -r 5] [--python VENV/bin/python]
exec python3 "$(dirname "${BASH_SOURCE[0]}")/bound.py" "$@"
