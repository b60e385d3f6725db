"""The object store that makes a cluster durable: the port, its implementations, and the check of a store at
the start.
"""
