"""The local disk as a cache of the segments in the bucket: fetches absent blocks, and evicts the blocks that
were not read for the longest time.
"""
