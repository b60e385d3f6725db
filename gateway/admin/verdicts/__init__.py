"""The newest batches that were not stored, and why."""
