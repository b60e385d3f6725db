"""Seqgate: a Kafka-compatible gateway for idempotent producers."""

from seqgate import core

__version__ = "0.1.0"

core.install()
