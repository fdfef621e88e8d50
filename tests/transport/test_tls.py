"""Files of a listener: what is accepted, what is refused with which words, and when they are read again."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater.transport.tls import ClientCertificates, ServerTlsFiles, read_context
from headwater.transport.tls_errors import UnusableCertificate
from headwater.transport.tls_reload import ReloadedTls
from tests.support.certificates import Authority

NOW = datetime.now(UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path)


def test_a_certificate_is_for_its_names_and_no_others(authority: Authority) -> None:
    files = authority.server_files("broker-1.example.com", "*.cluster.example.com", "127.0.0.1", "::1")
    for host in ("broker-1.example.com", "BROKER-1.example.com.", "a.cluster.example.com", "127.0.0.1", "::1"):
        assert read_context(files, NOW, (host,)).certificate.covers(host)
    for host in ("example.com", "a.b.cluster.example.com", "cluster.example.com", "127.0.0.2"):
        with pytest.raises(UnusableCertificate, match=rf"clients are sent to {host}, which the certificate is not for"):
            read_context(files, NOW, (host,))


def test_a_certificate_that_expired_is_refused(authority: Authority) -> None:
    files = authority.server_files()
    later = read_context(files, NOW).certificate.not_after + timedelta(seconds=1)
    with pytest.raises(UnusableCertificate, match=r"the certificate expired on .* UTC. Renew it."):
        read_context(files, later)


def test_a_key_that_others_may_read_is_refused_with_the_command_that_mends_it(authority: Authority) -> None:
    files = authority.server_files()
    files.key.chmod(0o604)
    with pytest.raises(UnusableCertificate, match=rf"Run: chmod 600 {files.key}"):
        read_context(files, NOW)


def test_files_that_do_not_belong_together_are_named(authority: Authority) -> None:
    files = authority.server_files()
    _, other_key = authority.issue("other", "localhost")
    mixed = ServerTlsFiles(certificate=files.certificate, key=other_key)
    with pytest.raises(UnusableCertificate, match=rf"{files.certificate} and the key {other_key} cannot be used"):
        read_context(mixed, NOW)


@pytest.mark.parametrize("text", [b"", b"not PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_is_refused(authority: Authority, text: bytes) -> None:
    files = authority.server_files()
    files.certificate.write_bytes(text)
    with pytest.raises(UnusableCertificate, match=r"server\.pem"):
        read_context(files, NOW)


def test_a_file_that_is_far_too_long_is_not_read(authority: Authority) -> None:
    files = authority.server_files()
    with files.certificate.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UnusableCertificate, match="it is not a certificate"):
        read_context(files, NOW)


def test_missing_files_are_named(authority: Authority) -> None:
    files = authority.server_files()
    files.key.unlink()
    with pytest.raises(UnusableCertificate, match=r"The key .*server.key cannot be read: No such file"):
        read_context(files, NOW)


def test_certificates_of_clients_need_an_authority(authority: Authority) -> None:
    files = authority.server_files()
    asking = ServerTlsFiles(
        certificate=files.certificate, key=files.key, client_certificates=ClientCertificates.REQUIRE
    )
    with pytest.raises(UnusableCertificate, match="needs client_ca"):
        read_context(asking, NOW)


def test_files_are_read_again_when_they_were_replaced_and_only_then(authority: Authority) -> None:
    async def main() -> None:
        tls = await ReloadedTls.open("clients", authority.server_files())
        first, first_der = tls.context, tls.certificate_der
        assert not await tls.reload_changed()
        assert tls.context is first
        authority.server_files()
        assert await tls.reload_changed()
        assert tls.context is not first and tls.certificate_der != first_der

    asyncio.run(main())


def test_new_files_that_cannot_be_used_change_nothing(authority: Authority) -> None:
    async def main() -> None:
        files = authority.server_files()
        tls = await ReloadedTls.open("clients", files, ("localhost",))
        first = tls.context
        files.key.write_text("half of a k")
        assert not await tls.reload_changed()
        assert (tls.context, tls.failures) == (first, 1)
        files.key.unlink()
        assert not await tls.reload_changed(), "a file that is missing is just being replaced"
        assert tls.failures == 1
        authority.server_files("other.example.com")
        assert not await tls.reload_changed(), "clients are not sent there"
        authority.server_files("localhost")
        assert await tls.reload_changed()

    asyncio.run(main())


def test_a_directory_that_a_link_points_into_may_be_swapped_again_and_again(authority: Authority) -> None:
    """As Kubernetes does with a mounted secret."""
    link = authority.directory / "current"

    def swap(version: int) -> None:
        there = authority.directory / f"v{version}"
        there.mkdir()
        for path in authority.issue("server", "localhost"):
            path.rename(there / path.name)
        fresh = authority.directory / "fresh"
        fresh.symlink_to(there)
        fresh.rename(link)

    async def main() -> None:
        swap(0)
        tls = await ReloadedTls.open(
            "clients", ServerTlsFiles(certificate=link / "server.pem", key=link / "server.key")
        )
        for version in range(1, 4):
            seen = tls.certificate_der
            swap(version)
            assert await tls.reload_changed()
            assert tls.certificate_der != seen

    asyncio.run(main())
