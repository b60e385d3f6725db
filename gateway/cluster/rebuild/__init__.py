"""A start from the bucket alone: the data directory is made anew from the write-ahead logs of all sessions."""
