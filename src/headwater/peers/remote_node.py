"""The broker of another node, to be asked things (peers.questions).

Answers come in the order of the questions, so one that takes its time holds up those behind it. Therefore questions
have lanes, each a connection of its own: whoever may wait for somebody else's question to be answered takes another
lane than that one.
"""

from collections.abc import Sequence
from typing import Final

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.replica import Buffer, StoreError
from headwater.peers import messages
from headwater.peers.channel import Channel, ChannelOptions
from headwater.peers.messages import NO_STORE, Address, Call
from headwater.peers.questions import question, read_answer
from headwater.wire.codec import Cursor, MalformedRequest

_NO_STORE: Final = bytes.fromhex(NO_STORE)


class RemoteNode:
    def __init__(self, address: Address, secret: bytes, options: ChannelOptions) -> None:
        self.address = address
        self._secret = secret
        self._options = options
        self._lanes: dict[int, Channel] = {}

    async def ask(self, kind: int, body: bytes, lane: int) -> Cursor:
        """The answer. Raises RequestError: the other node's, or NETWORK_EXCEPTION if it is not known whether the
        question was understood. Nothing is sent twice."""

        def encode(version: int, number: int) -> Sequence[Buffer]:
            return [messages.request(version, Call.ASK, number, _NO_STORE, question(kind, body))]

        channel = self._lanes.get(lane)
        if channel is None:
            channel = self._lanes[lane] = Channel(self.address, self._secret, self._options)
        try:
            return read_answer(await channel.call(encode, len(body)))
        except (StoreError, MalformedRequest) as error:
            raise RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def close(self) -> None:
        """Whatever waits fails."""
        for channel in self._lanes.values():
            channel.close()
        self._lanes.clear()
