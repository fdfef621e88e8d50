"""HTTP for programs without a Kafka client: topics and records as JSON, push, schemas, and a page to look at.

The gateway reaches the cluster as a Kafka client. It runs in a thread of `headwater serve`, with its own event loop, or
alone beside a cluster as `headwater gateway`.
"""
