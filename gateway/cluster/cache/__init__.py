"""The local disk as a cache of the bucket's segments: fetches absent blocks, evicts the longest unread."""
