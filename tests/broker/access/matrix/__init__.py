"""What every request needs, tried: each API in each version without, with, and with all but one of its grants.

The declarations beside the handlers (`declared_access`) say what must be refused, and where. `cases` has the requests,
`scene` what they name, `runs` with which bindings they are sent, and `judge` what the answer must be. `world` is a
server with an administrator and a stranger: ours on the event loop of the test, or an Apache Kafka, for
`make access-matrix`.
"""
