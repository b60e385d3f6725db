"""A start from the bucket alone: rebuilds the data directory from the write-ahead logs of all sessions."""
