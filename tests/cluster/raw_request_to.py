"""One request to one node, and its answer: for what no client library sends, or to a node that it would not choose."""

from headwater.cli.raw_request import ask
from headwater.testing.broker import Broker
from headwater.wire.codec import Message


def ask_node(node: Broker, api_key: int, version: int, **fields: object) -> Message:
    return ask((node.host, node.port), api_key, version, **fields)
