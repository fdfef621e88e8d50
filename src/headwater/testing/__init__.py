"""Test your code against a real broker: `with headwater.testing.Broker() as broker: ...` (see `broker.py`)."""

from headwater.testing.broker import Broker

__all__ = ["Broker"]
