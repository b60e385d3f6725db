"""The entry point of `seqgate`: what must be set before the first imports."""

from __future__ import annotations

import gc
import os
import sys

from seqgate import __version__, core
from seqgate.gateway.allocator import use_c_allocator


def main() -> None:
    """Run the command line: the entry point of the console script."""
    words = [] if "_SEQGATE_COMPLETE" in os.environ else sys.argv[1:]
    if words == ["--version"]:
        print(core.described(__version__))
        return
    # Nothing of the imports is garbage, and every 700 objects that they make would start a collection.
    gc.set_threshold(50_000)
    # kio imports Hypothesis where it is installed, for tests of its own types. That takes a third of a start.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    if words[:1] == ["serve"]:
        # before all further imports: what is imported before is imported twice
        use_c_allocator()
    else:
        import atexit  # noqa: PLC0415 - `--version` has no use for it

        from seqgate.gateway.admin.remote import kafka_parts  # noqa: PLC0415 - a gateway has no Kafka client

        kafka_parts.install()
        # an exit would look for garbage twice among all that was imported
        atexit.register(gc.freeze)
    from seqgate.gateway.cli import main as run_command  # noqa: PLC0415 - after the choice of the allocator

    run_command()
