"""A cluster with its data in a bucket: objects, write-ahead logs of sessions, rebuilt data directories."""
