"""The entry point of `seqgate`: what must be set before the first imports, above all the C library's memory
allocator for a gateway.

Python's own allocator gives memory back in blocks of a megabyte, and only blocks without any live object.
After three thousand topics were created and deleted, a few objects made meanwhile keep a fifth of the memory.
The C library gives back every free page.

This module imports no `typing`: what is imported before the process is replaced takes its time twice.
"""

from __future__ import annotations

import gc
import os
import sys

from seqgate import __version__, core

CHOICE = "PYTHONMALLOC"
"""The variable with which the environment chooses Python's allocator."""


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


def use_c_allocator() -> None:
    """Replace this process by one that uses the C library's allocator, unless the environment chooses an
    allocator. Python chooses its allocator once, before it runs any code. The process id stays.
    """
    if CHOICE in os.environ or sys.platform != "linux":
        return
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, {**os.environ, CHOICE: "malloc"})  # noqa: S606 - its own arguments
