"""The `seqgate` commands: one file for each subject, read from the top. A long subject is a folder.

A file has up to four sections: the requests and rows, the commands with their options and words, what asks a
cluster over the Kafka protocol, and what a running gateway answers, or a data directory that no gateway has
open. `operations` lists what the gateway answers. A command loads its file before it parses its options, so
the last two sections import what they need inside their functions.

The control socket is a Unix domain socket in the data directory. Only the owner of the gateway's process may
connect. One connection carries one request and one answer, each a line of JSON.
"""
