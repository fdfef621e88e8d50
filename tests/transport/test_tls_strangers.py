"""TLS in front of clients that are old, weak, or not whom they claim to be."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headwater.transport.tls import ClientCertificates
from tests.support.certificates import Authority
from tests.support.eventually import until
from tests.transport.tls_server import RUNNERS, Run, served

REFUSED = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)
WEAK = {
    "without encryption": "eNULL:@SECLEVEL=0",
    "without a certificate": "aNULL:@SECLEVEL=0",
    "without forward secrecy": "kRSA:@SECLEVEL=0",
    "with CBC": "ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA:@SECLEVEL=0",
}


@pytest.mark.parametrize("ciphers", WEAK.values(), ids=WEAK)
def test_weak_ciphers_are_refused(ciphers: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            context = serving.context()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            try:
                context.set_ciphers(ciphers)
            except ssl.SSLError:
                pytest.skip("this OpenSSL does not have them at all")
            with pytest.raises(REFUSED):
                await serving.connect(context)
            strong = serving.context()
            strong.maximum_version = ssl.TLSVersion.TLSv1_2
            talk = await serving.connect(strong)
            name, version, _bits = talk.writer.get_extra_info("cipher")
            assert version in ("TLSv1.2", "TLSv1/SSLv3") and name.startswith("ECDHE") and "GCM" in name
            await talk.close()

    asyncio.run(main())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_client_cannot_renegotiate(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as (serving, _):
            host, port = serving.server.address
            command = ["openssl", "s_client", "-tls1_2", "-connect", f"{host}:{port}", "-CAfile"]
            command.append(str(serving.authority.file))
            # A line that is R alone makes s_client ask for it; a connection that goes on would say after what follows.
            done = await asyncio.to_thread(
                subprocess.run, command, input=b"R\n", capture_output=True, timeout=60, check=False
            )
            said = done.stdout + done.stderr
            assert b"RENEGOTIATING" in said and b"no renegotiation" in said, said.decode()

    asyncio.run(main())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_before_the_authority_was_taken_away_is_not_resumed(version: ssl.TLSVersion, tmp_path: Path) -> None:
    """Nor one by its number, as TLS 1.2 has it beside tickets: a new context knows none."""

    def attempt(context: ssl.SSLContext, address: tuple[str, int], session: ssl.SSLSession | None) -> ssl.SSLSession:
        with (
            socket.create_connection(address, timeout=60) as sock,
            context.wrap_socket(sock, server_hostname="localhost", session=session) as tls,
        ):
            tls.sendall(b"\0\0\0\1x")
            assert tls.recv(5)
            assert session is None or not tls.session_reused
            found = tls.session
            assert found is not None
            return found

    async def main() -> None:
        async with served(tmp_path, clients=ClientCertificates.REQUIRE) as (serving, tls):
            context = serving.context(certificate=serving.authority.issue("alice", common_name="alice"))
            context.minimum_version = context.maximum_version = version
            session = await asyncio.to_thread(attempt, context, serving.server.address, None)
            (tmp_path / "new").mkdir()
            Authority.create(tmp_path / "new").file.replace(serving.authority.file)
            assert await tls.reload_changed()
            with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
                await asyncio.to_thread(attempt, context, serving.server.address, session)
            assert len(serving.certificates) == 1, "nothing was handled"

    asyncio.run(main())


def issued_by(
    authority: Authority, *, usage: x509.ObjectIdentifier, not_after: datetime, is_self_signed: bool = False
) -> tuple[Path, Path]:
    """A certificate that trustme would not make."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    ca = x509.load_pem_x509_certificate(authority.ca.cert_pem.bytes())
    ca_key = load_pem_private_key(authority.ca.private_key_pem.bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if is_self_signed else ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_after - timedelta(days=300))
        .not_valid_after(not_after)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(key if is_self_signed else ca_key, hashes.SHA256())
    )
    certificate, private = authority.directory / "made.pem", authority.directory / "made.key"
    certificate.write_bytes(signed.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, private


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize(
    ("usage", "days", "is_self_signed"),
    [
        (ExtendedKeyUsageOID.CLIENT_AUTH, -1, False),
        (ExtendedKeyUsageOID.SERVER_AUTH, 100, False),
        (ExtendedKeyUsageOID.CLIENT_AUTH, 100, True),
    ],
    ids=["expired", "for servers", "self-signed"],
)
def test_a_certificate_that_is_not_good_for_clients_lets_none_in(
    run: Run, usage: x509.ObjectIdentifier, days: int, is_self_signed: bool, tmp_path: Path
) -> None:
    async def main() -> None:
        async with served(tmp_path, clients=ClientCertificates.REQUIRE) as (serving, _):
            now = datetime.now(UTC)
            made = issued_by(
                serving.authority, usage=usage, not_after=now + timedelta(days=days), is_self_signed=is_self_signed
            )
            with pytest.raises(REFUSED):
                talk = await serving.connect(serving.context(certificate=made))
                await talk.ask(b"x")
            await until(lambda: serving.traffic.bad["tls_handshake_failed"] == 1)
            good = issued_by(
                serving.authority, usage=ExtendedKeyUsageOID.CLIENT_AUTH, not_after=now + timedelta(days=100)
            )
            talk = await serving.connect(serving.context(certificate=good))
            assert await talk.ask(b"x") == b"x", "but for what is wrong with it, it is the same"
            await talk.close()

    run(main())
