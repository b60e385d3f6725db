"""Hostile bytes: every way by which bytes from outside come in, fuzzed under the guidance of coverage (atheris).

One module per target; `targets.NAMES` lists them. `corpora/` keeps for each a small set of inputs that reach what is to be
reached, and every input that once found a fault. `test_corpora` replays them; `python -m tests.fuzzing` looks for more.
"""
