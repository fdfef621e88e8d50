"""The broker of another node: node calls over the network (peers.calls).

Replies come in the order of the calls, so a slow call holds up the calls behind it on its connection. Therefore calls
have classes, each with its own connection: a call that may have to wait for another call takes another class.
"""

from collections.abc import Sequence
from typing import Final

from headwater.model.errors import ErrorCode, RequestError
from headwater.model.replica import Buffer, StoreError
from headwater.peers import messages
from headwater.peers.calls import call_body, read_reply
from headwater.peers.channel import Channel, ChannelOptions
from headwater.peers.identity import PeerIdentity
from headwater.peers.messages import NO_STORE, Call, PeerAddress
from headwater.wire.cursor import Cursor, MalformedRequest

_NO_STORE: Final = bytes.fromhex(NO_STORE)


class RemoteNode:
    def __init__(self, address: PeerAddress, identity: PeerIdentity, options: ChannelOptions) -> None:
        self.address = address
        self._identity = identity
        self._options = options
        self._channels: dict[int, Channel] = {}

    async def call(self, kind: int, body: bytes, connection_class: int) -> Cursor:
        """The body of the reply. Raises RequestError: the other node's, or NETWORK_EXCEPTION if it is not known whether
        the call was carried out. Nothing is sent twice."""

        def encode(version: int, number: int) -> Sequence[Buffer]:
            return [messages.request(version, Call.ASK, number, _NO_STORE, call_body(kind, body))]

        channel = self._channels.get(connection_class)
        if channel is None:
            channel = self._channels[connection_class] = Channel(self.address, self._identity, self._options)
        try:
            return read_reply(await channel.call(encode, len(body)))
        except (StoreError, MalformedRequest) as error:
            raise RequestError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def close(self) -> None:
        """Calls without a reply fail."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
