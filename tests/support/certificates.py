"""Certificates for tests: an authority of their own, and files as an administrator would lay them down."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme

from headwater.transport.tls import ClientCertificates, ServerTlsFiles


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates, and has a folder for them."""

    ca: trustme.CA
    directory: Path

    @classmethod
    def create(cls, directory: Path) -> "Authority":
        authority = cls(trustme.CA(key_type=trustme.KeyType.ECDSA), directory)
        authority.ca.cert_pem.write_to_path(authority.file)
        return authority

    @property
    def file(self) -> Path:
        return self.directory / "ca.pem"

    def issue(
        self, name: str, *identities: str, common_name: str | None = None, not_after: datetime | None = None
    ) -> tuple[Path, Path]:
        """Certificate and key under this name; files that are there are replaced."""
        issued = self.ca.issue_cert(
            *identities, common_name=common_name, not_after=not_after, key_type=trustme.KeyType.ECDSA
        )
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        certificate.unlink(missing_ok=True)
        issued.cert_chain_pems[0].write_to_path(certificate)
        key.unlink(missing_ok=True)
        key.touch(0o600)
        issued.private_key_pem.write_to_path(key)
        return certificate, key

    def server_files(self, *identities: str, clients: ClientCertificates = ClientCertificates.NONE) -> ServerTlsFiles:
        certificate, key = self.issue("server", *(identities or ("localhost", "127.0.0.1")))
        client_ca = self.file if clients is not ClientCertificates.NONE else None
        return ServerTlsFiles(certificate=certificate, key=key, client_ca=client_ca, client_certificates=clients)
