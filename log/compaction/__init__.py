"""Log compaction: of each key only the newest value stays.

`cleanable` says what of a log can be cleaned and why, `cleaner` does it for one log, file by file, in a process of its
own (`worker`); `swap` puts the result in place. The rules (`offset_map`, `kept_records`, `cleaned_transactions`,
`batch_rewriting`, `segment_groups`) know no files. Source: Kafka's `LogCleaner`, `LogCleanerManager`, `MemoryRecords.filterTo`.
"""
