"""Fuzz tests of every path by which bytes enter from outside, guided by coverage (atheris).

Each target is one module; `targets.NAMES` lists them. `corpora/` has a small set of inputs for each target
that cover its code, and every input that once found a fault. `test_corpora` replays the inputs; `python -m
tests.fuzzing` searches for more.
"""
