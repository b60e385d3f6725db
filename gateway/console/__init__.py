"""The console: a web page for people, in a process of its own that speaks the Kafka protocol with a cluster.

`pages` holds one module per page; it draws on `asking` (the cluster, over the Kafka protocol) and `metrics`
(the gateway's metrics listener). `web` carries what pages return over HTTP, and keeps strangers out.
"""
