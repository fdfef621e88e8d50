"""An identity provider on loopback: it signs tokens, and serves its keys as a test says."""

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

AUDIENCE = "headwater"
METADATA, KEYS, TOKEN = "/.well-known/openid-configuration", "/keys", "/token"
LIFETIME_S = 600


@dataclass(frozen=True, slots=True)
class Reply:
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    repeats: int = 1
    """How often the body is sent."""
    waits_for: threading.Event | None = None
    """Before anything is sent."""


@dataclass(slots=True)
class IdentityProvider:
    issuer: str
    keys: dict[str, ec.EllipticCurvePrivateKey] = field(default_factory=dict)
    """By id, those that it publishes."""
    replies: dict[str, Reply] = field(default_factory=dict)
    """By path, what is sent instead."""
    requests: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, str]:
        """The table [oidc] of a broker that believes it."""
        return {"issuer": self.issuer, "audience": AUDIENCE}

    def new_key(self, kid: str) -> None:
        self.keys[kid] = ec.generate_private_key(ec.SECP256R1())

    def token(self, user: str = "alice", kid: str = "first", now_s: float | None = None, **claims: Any) -> str:
        """Claims and the time from which on it is valid may be anything."""
        issued_s = int(time.time() if now_s is None else now_s)
        payload = {"iss": self.issuer, "aud": AUDIENCE, "sub": user, "iat": issued_s, "exp": issued_s + LIFETIME_S}
        return jwt.encode(payload | claims, self.keys[kid], algorithm="ES256", headers={"kid": kid})

    def reply(self, path: str) -> Reply:
        self.requests.append(path)
        if path in self.replies:
            return self.replies[path]
        if path == METADATA:
            return Reply(body=json.dumps({"issuer": self.issuer, "jwks_uri": self.issuer + KEYS}).encode())
        if path == TOKEN:
            token = {"access_token": self.token(), "token_type": "Bearer", "expires_in": LIFETIME_S}
            return Reply(body=json.dumps(token).encode(), headers=(("Content-Type", "application/json"),))
        return Reply(body=self.published()) if path == KEYS else Reply(404)

    def published(self) -> bytes:
        algorithm = jwt.PyJWS().get_algorithm_by_name("ES256")
        entries = [json.loads(algorithm.to_jwk(key.public_key())) | {"kid": kid} for kid, key in self.keys.items()]
        return json.dumps({"keys": entries}).encode()


@contextmanager
def identity_provider(certificate: tuple[Path, Path] | None = None) -> Iterator[IdentityProvider]:
    """With one key, `first`. With a certificate, which must be for localhost, it speaks TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reply = provider.reply(self.path)
            if reply.waits_for is not None:
                reply.waits_for.wait(60)
            try:
                self.send_response(reply.status)
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.end_headers()
                for _ in range(reply.repeats):
                    self.wfile.write(reply.body)
            except ConnectionError:
                self.close_connection = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    provider = IdentityProvider(f"https://localhost:{port}" if certificate else f"http://127.0.0.1:{port}")
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    provider.new_key("first")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
