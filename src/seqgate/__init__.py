"""Seqgate: a Kafka-compatible gateway for idempotent producers."""

__version__ = "0.1.0"
