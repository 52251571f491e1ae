# SPDX-License-Identifier: Apache-2.0
"""Measurements for docs/lab/papers.md: the claims of the four papers, on models of their kind. Parts of measure.py that
run only if --only names them."""
