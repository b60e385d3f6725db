"""The operations of the `seqgate` commands on a running gateway: one folder for each subject.

A folder has up to four parts: `messages` (requests and answers), `live` (what a running gateway answers),
`stopped` (the same from a data directory that no gateway has open) and `command` (options and tables).
`operations` lists all of them.

The control socket is a Unix domain socket in the data directory. Only the owner of the gateway's process may
connect. One connection carries one request and one answer, each a line of JSON.
"""
