"""HTTP for those who have no Kafka client: topics and records as JSON, push, schemas, and a page to look at.

The gateway reaches the cluster as a Kafka client. It runs in a thread of `headwater serve`, with an event loop of its
own, or alone beside a cluster as `headwater gateway`.
"""
