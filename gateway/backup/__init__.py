"""Backups of a data directory: plain copies of its files, with a manifest. Knows files only, and no gateway.

repository      the directory that has the backups: their names and manifests, which are complete, the lock;
                compares a backup with its manifest, and restores one
creation        copies what `seqgate.log.staging` has staged, or the objects of a bucket; links what an
                earlier backup has already
pace            bounds the rate, and reports the progress
"""
