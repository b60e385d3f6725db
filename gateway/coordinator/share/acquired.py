"""The ranges of offsets that a share group hands out to a member."""

from __future__ import annotations

from typing import NamedTuple


class Acquired(NamedTuple):
    """A range of offsets, both ends inclusive, that a member gets. `delivery_count` counts its deliveries, this one included."""

    first_offset: int
    last_offset: int
    delivery_count: int


def len_of(acquired: Acquired) -> int:
    """Return the number of offsets in the run."""
    return acquired.last_offset - acquired.first_offset + 1


def joined(acquired: list[Acquired], first_new: int, batch_size: int) -> list[Acquired]:
    """Join neighbours with the same delivery count; offsets handed out for the first time only up to `batch_size`."""
    found: list[Acquired] = []
    for one in acquired:
        previous = found[-1] if found else None
        if (
            previous is not None
            and previous.delivery_count == one.delivery_count
            and previous.last_offset + 1 == one.first_offset
            and one.first_offset != first_new
            and (one.first_offset < first_new or len_of(previous) < batch_size)
        ):
            found[-1] = found[-1]._replace(last_offset=one.last_offset)
        else:
            found.append(one)
    return found
