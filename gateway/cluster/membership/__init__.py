"""Leases, and the conviction of gateways that are gone: both follow from the sessions' write-ahead logs."""
