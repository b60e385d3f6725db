"""The write-ahead log of a session in the bucket: creating the next object is commit point and fence."""
