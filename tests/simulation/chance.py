"""Draws all random numbers from one seed, including those that production code asks the system for."""

from __future__ import annotations

import base64
import random
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def seeded(chance: random.Random) -> Iterator[None]:
    """Take ids and random numbers from `chance` while this context is open."""
    state = random.getstate()
    random.seed(chance.getrandbits(64))
    ids = random.Random(chance.getrandbits(64))

    def fresh_id() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    def fresh_text(size: int = 32) -> str:
        return base64.urlsafe_b64encode(ids.randbytes(size)).rstrip(b"=").decode()

    class Seeded(random.Random):
        """Without a seed it takes one from the run, and not from the system."""

        def __init__(self, seed: object = None) -> None:
            super().__init__(ids.getrandbits(64) if seed is None else seed)  # type: ignore[arg-type]

    with (
        mock.patch.object(uuid, "uuid4", fresh_id),
        mock.patch.object(secrets, "token_urlsafe", fresh_text),
        mock.patch.object(secrets, "token_bytes", ids.randbytes),
        mock.patch.object(random, "Random", Seeded),
    ):
        try:
            yield
        finally:
            random.setstate(state)
