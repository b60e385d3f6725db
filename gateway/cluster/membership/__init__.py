"""Leases, and the conviction of gateways that are gone: both follow from the write-ahead logs of the
sessions.
"""
