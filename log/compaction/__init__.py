"""Log compaction: only the newest value of each key stays.

`cleanable` decides what to clean and why, `cleaner` cleans one log, file by file, in a process of its own (`worker`), and `swap`
puts the cleaned segments in place. The rules (`offset_map`, `kept_records`, `cleaned_transactions`, `batch_rewriting`,
`segment_groups`) open no files. Source: Kafka's `LogCleaner`, `LogCleanerManager`, `MemoryRecords.filterTo`.
"""
