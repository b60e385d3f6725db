"""`seqgate quotas`."""
