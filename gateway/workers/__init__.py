"""Several workers over one data directory: processes that are brokers of one cluster, under one process that
supervises them.
"""
