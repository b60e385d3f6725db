"""python -m tests.fuzzing [--target NAME]... [--seconds N] [--seed S] [--keep]

Fuzzes all targets, or those named, for N seconds in all. Ends with one line of JSON; exits with 1 when an
input broke something. --keep adds inputs that reach more code than the kept ones to `corpora/`, as few as
possible.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.fuzzing.run import fuzz
from tests.fuzzing.targets import NAMES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument(
        "--target", action="append", choices=NAMES, help="fuzz only this target; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    outcome = fuzz(asked.target or NAMES, asked.seconds, asked.seed, keep=asked.keep)
    print(json.dumps({"part": "hostile bytes", "counts": outcome.counts, "breaches": outcome.breaches}))
    return 1 if outcome.breaches else 0


if __name__ == "__main__":
    sys.exit(main())
