"""The place of one worker: what it inherits from the process that supervises it."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from gateway.metadata.image import MetadataImage
from gateway.workers.messages import Failed, encode
from log import DirectoryShare


@dataclass(slots=True)
class Seat:
    """A worker's number, which counts from 1, its share of the data directory, the metadata at its start, and its stream to the supervisor.

    `first_id` is the node id of worker 1, which the data directory belongs to.
    """

    number: int
    first_id: int
    share: DirectoryShare
    image: MetadataImage
    end_offset: int
    connection: socket.socket


def report(connection: socket.socket, sentence: str) -> None:
    """Tell the supervisor why this process ends. Call this when nothing else uses the stream any more."""
    with contextlib.suppress(OSError):  # the supervisor may be gone
        connection.setblocking(True)
        connection.sendall(encode(Failed(sentence)))
