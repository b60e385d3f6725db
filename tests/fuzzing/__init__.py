"""Fuzz tests of every path by which bytes from outside come in, guided by coverage (atheris).

One module per target; `targets.NAMES` lists them. `corpora/` has for each target a small set of inputs that cover its
code, and every input that once found a fault. `test_corpora` replays them; `python -m tests.fuzzing` looks for more.
"""
