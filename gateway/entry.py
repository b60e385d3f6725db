"""The entry point of `seqgate`: starts a gateway without the command line's packages."""

from __future__ import annotations

import os
import sys

from seqgate import __version__
from seqgate.gateway.allocator import use_c_allocator


def main() -> None:
    """Run the command line: the entry point of the console script."""
    words = [] if "_SEQGATE_COMPLETE" in os.environ else sys.argv[1:]
    if words == ["--version"]:
        print(f"seqgate {__version__}")
        return
    if words[:1] == ["serve"]:
        # at once: what is imported before is imported twice
        use_c_allocator()
        _serve(words[1:])
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
