"""Kafka clients for an event loop: their blocking calls run in threads, their callbacks end in futures."""
