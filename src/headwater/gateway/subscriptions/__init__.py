"""Streams and queues over HTTP: members of groups that live in the gateway."""
