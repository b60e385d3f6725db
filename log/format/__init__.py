"""Bytes of record batches: headers, records, compression, validation."""
