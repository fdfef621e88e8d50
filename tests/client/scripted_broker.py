"""A server on a free port of this machine that answers as a test says: what a broker would, or worse."""

import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from headwater.client.address import BrokerAddress
from headwater.wire.api_keys import ApiKey
from headwater.wire.message import Message
from headwater.wire.messages import RequestHeader, read_header, write_response
from headwater.wire.typed.api_versions import ApiVersion, ApiVersionsResponse

TIMEOUT_S = 60.0

Served: TypeAlias = Sequence[tuple[int, int, int]]
"""API, oldest and newest version."""
Answer: TypeAlias = Callable[[RequestHeader], bytes | None]
"""What is sent back to a request, byte for byte; None ends the connection."""

METADATA_ONLY: Served = [(ApiKey.API_VERSIONS, 0, 4), (ApiKey.METADATA, 0, 12)]


def framed(body: bytes | bytearray) -> bytes:
    return struct.pack(">i", len(body)) + bytes(body)


def response(header: RequestHeader, message: Message) -> bytes:
    """As a broker sends it."""
    return framed(write_response(header.api_key, header.api_version, header.correlation_id, message))


def versions(served: Served = METADATA_ONLY) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=api, min_version=least, max_version=most) for api, least, most in served]
    )


def after_handshake(answer: Answer, served: Served = METADATA_ONLY) -> Answer:
    def answer_either(header: RequestHeader) -> bytes | None:
        return response(header, versions(served)) if header.api_key == ApiKey.API_VERSIONS else answer(header)

    return answer_either


@contextmanager
def scripted_broker(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[BrokerAddress]:
    """One connection after another, each until the client or the script ends it."""
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_serve, args=(listener, answer, tls))
    thread.start()
    try:
        yield BrokerAddress(*listener.getsockname())
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive(), "the clients of the test have closed their connections"


def certificate(directory: Path) -> tuple[Path, Path]:
    """Of `localhost`, signed by itself, and its key."""
    paths = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    subprocess.run([*command, *names, "-out", paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


def _serve(listener: socket.socket, answer: Answer, tls: ssl.SSLContext | None) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.settimeout(TIMEOUT_S)
            with suppress(OSError), connection:
                _answer_all(tls.wrap_socket(connection, server_side=True) if tls is not None else connection, answer)


def _answer_all(connection: socket.socket, answer: Answer) -> None:
    with connection, connection.makefile("rb") as stream:
        while length := stream.read(4):
            response = answer(read_header(stream.read(*struct.unpack(">i", length))))
            if response is None:
                return
            connection.sendall(response)
