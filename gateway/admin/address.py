"""Unix domain socket addresses for paths of any length.

The kernel takes some 100 bytes of path (`sun_path`). A socket with a longer path is reached through a
descriptor of its directory: `/proc/self/fd/N/control.sock`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOCKET_NAME: Final = "control.sock"
"""The name of the control socket in the data directory."""
LONGEST_PATH_BYTES: Final = 100
"""A path of more bytes goes through a descriptor of its directory."""
_DESCRIPTORS: Final = "/proc/self/fd"


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path to the same socket that is short enough for the kernel; it is valid while the context
    lasts.

    Raises OSError: the directory can't be opened, or the system has no /proc and the path is too long.
    """
    if len(os.fsencode(path)) <= LONGEST_PATH_BYTES:
        yield str(path)
        return
    if not Path(_DESCRIPTORS).is_dir():
        raise OSError(errno.ENAMETOOLONG, "the path of the control socket is too long", str(path))
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{_DESCRIPTORS}/{directory}/{path.name}"
    finally:
        os.close(directory)
