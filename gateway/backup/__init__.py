"""Backups of a data directory: plain copies of its files, with a manifest. Knows files only, and no gateway.

repository      the directory that has the backups: their names, which are complete, the lock
manifest        what is in a backup: each file with its size and its SHA-256
creation        copies what `seqgate.log.staging` has staged; links what an earlier backup has already
verification    compares a backup with its manifest
restoring       copies a backup into an empty data directory
pace            bounds the rate, and reports the progress
"""
