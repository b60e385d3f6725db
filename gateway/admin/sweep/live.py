"""The sweep of a data directory that no gateway has open.

Finding leaks needs no lock and changes nothing; removing takes the directory's lock. Only files are swept.
Finding leaks in the state of groups and transactions takes a running gateway.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from seqgate.gateway.admin.request import STOPPED, ControlError, in_words
from seqgate.gateway.admin.stored import locked, metadata_directory, read_image
from seqgate.gateway.admin.sweep.command import SweepPage, SweepRequest
from seqgate.gateway.admin.sweep.sweeps import NAME, OTHER_NAMES, leak_rows
from seqgate.gateway.admin.tasks import TaskRow
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.runtime.upkeep.file_sweep import MAX_FOUND, is_chosen, is_partition
from seqgate.log import Storage, parse_partition_directory
from seqgate.log.stopped import FileLeak, leaks_of_directory, leaks_of_partition

Progress = Callable[[int, int], None]
"""Called with the number of directories swept so far, and of all directories."""


def sweep(data_dir: Path, request: SweepRequest, now_ms: int, progress: Progress) -> SweepPage:
    """Return the leaks of a data directory, and remove those that the request names. Raises ControlError."""
    directory = metadata_directory(data_dir)
    storage = Storage()
    removed: set[FileLeak] = set()
    with locked(storage, data_dir) if request.remove else contextlib.nullcontext():
        image = read_image(directory)
        try:
            found = _find(storage, data_dir, image, now_ms - request.min_age_ms, progress)
            leaks = list(itertools.islice(found, MAX_FOUND))
            for leak in leaks if request.remove else ():
                if is_chosen(leak, unknown=request.unknown):
                    _remove(storage, data_dir / leak.path, leak)
                    removed.add(leak)
        except OSError as error:
            raise ControlError(f"{data_dir} can't be swept: {in_words(error)}") from error
    task = TaskRow(0, NAME, now_ms, 0, len(leaks), len(leaks), ended=True, failure=None)
    return SweepPage(STOPPED, task, len(leaks), leak_rows(leaks, removed))


def _find(
    storage: Storage, data_dir: Path, image: MetadataImage, before_ms: int, progress: Progress
) -> Iterator[FileLeak]:
    entries = storage.entries(str(data_dir))
    yield from leaks_of_directory(
        entries,
        other_names=OTHER_NAMES,
        is_partition=lambda topic, index: is_partition(image, topic, index),
        waits=lambda _: False,
        before_ms=before_ms,
    )
    for count, entry in enumerate(entries, start=1):
        parsed = parse_partition_directory(entry.name) if entry.is_directory else None
        if parsed is not None and is_partition(image, *parsed):
            yield from leaks_of_partition(
                entry.name,
                storage.entries(str(data_dir / entry.name)),
                opened=None,
                waits=lambda _: False,
                before_ms=before_ms,
            )
        progress(count, len(entries))


def _remove(storage: Storage, path: Path, leak: FileLeak) -> None:
    if not leak.is_directory:
        storage.delete(str(path))
        return
    for name in storage.list_directory(str(path)):
        storage.delete(str(path / name))
    storage.delete_directory(str(path))
