"""Shows the contents of records, which may be anything: text, JSON, bytes, Avro and Protobuf. Pure.

Contents come from strangers. So every function is bounded, and raises ContentError with a sentence for what
it can't read.
"""
