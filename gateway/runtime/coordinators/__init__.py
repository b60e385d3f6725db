"""Groups, share groups and transactions: the logs that hold their state, and the requests that wait. Every
operation is carried out in one order, judge → append → fold in → wait: see
`seqgate.gateway.runtime.coordinators.shards`.
"""
