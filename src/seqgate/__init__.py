"""Seqgate: a Kafka-compatible gateway for idempotent producers."""
