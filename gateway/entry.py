"""The entry point of `seqgate`: checks that the packages are Seqgate's, and starts a gateway without the
command line's packages.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from seqgate.gateway.allocator import use_c_allocator

PACKAGES: Final = ("log", "pid_allocator", "seq_validator", "spark_kafka_compat")
"""The packages that are installed beside `gateway`."""


def main() -> None:
    """Run the command line: the entry point of the console script."""
    serves = sys.argv[1:2] == ["serve"] and "_SEQGATE_COMPLETE" not in os.environ
    if serves:
        # at once: what is imported before is imported twice
        use_c_allocator()
    complaint = shadowed()
    if complaint is not None:
        print(f"seqgate: {complaint}", file=sys.stderr)
        sys.exit(1)
    if serves:
        _serve(sys.argv[2:])
    from seqgate.gateway.cli import main as run_command  # noqa: PLC0415 - a gateway that serves needs no typer

    run_command()


def _serve(words: list[str]) -> None:
    """Run the gateway and exit; return when typer must look at the options."""
    # kio imports Hypothesis where it is installed, for tests of its own types. That takes a third of a start.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    from seqgate.gateway.serving import parse, serve  # noqa: PLC0415 - completion in a shell needs nothing of this module

    options = parse(words)
    if options is None:
        return
    try:
        sys.exit(serve(options))
    except KeyboardInterrupt:
        print("Aborted!", file=sys.stderr)
        sys.exit(1)


def shadowed() -> str | None:
    """Return a sentence that names a package which is imported from another place than `gateway`, and says
    what to do; None when all packages are Seqgate's.
    """
    from importlib.util import find_spec  # noqa: PLC0415 - not before `use_c_allocator`
    from pathlib import Path  # noqa: PLC0415

    home = Path(__file__).parent.parent
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None:
            return f"the package {name} is missing in {home}; install Seqgate again"
        found = (
            Path(spec.origin) if spec.origin else Path(next(iter(spec.submodule_search_locations or ())), "")
        )
        if found != home / name / "__init__.py":
            return (
                f"the package {name} of Seqgate, in {home}, is hidden by {found}, which Python finds first; "
                "rename that one, or start seqgate where neither the current directory nor PYTHONPATH leads "
                "to it"
            )
    return None
