"""The error of a request to another gateway."""

from __future__ import annotations


class PeerUnavailable(Exception):
    """Another gateway did not answer: it is unknown, fenced, refuses the connection, or is silent. The message says which.

    Whether the request was carried out is unknown: the connection may have broken after it.
    """
