"""The local disk as a cache of the segments in the bucket: fetches absent blocks, and evicts blocks that nobody reads."""
