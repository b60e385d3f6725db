"""The operations of the `seqgate` commands on a running gateway: one folder for each subject.

A folder has up to four parts: `command` (options and tables), `messages` (requests and answers, where the
command has no room for them), `live` (what a running gateway answers, or a data directory that no gateway has
open) and `remote` (the same over the Kafka protocol). `operations` lists all of them.

The control socket is a Unix domain socket in the data directory. Only the owner of the gateway's process may
connect. One connection carries one request and one answer, each a line of JSON.
"""
