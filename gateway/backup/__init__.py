"""Backups: plain copies of files, with a manifest. Knows files only, and no gateway.

repository      the directory that has the backups: their names and manifests, which are complete, the lock; a
                new backup, which links what an earlier backup has already
pace            bounds the rate, and reports the progress
"""
