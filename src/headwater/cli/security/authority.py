"""A certificate authority in a directory: for clusters that have none, and for tests.

    ca.pem  ca.key        the authority; with the key anyone can stand in for any node
    NAME.pem  NAME.key    a node: its certificate first, then that of the authority

While one authority takes the place of another, ca.pem has the certificates of both, the new one first: what the old one
has signed is still believed.

Keys are ECDSA P-256 in PKCS#8, which every client reads, and only their owner may read the files. A node's certificate
is for servers and for clients, because nodes are both to each other. Files that exist are replaced only by `renew` and
`rotate`, each file as a whole.
"""

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
NODE_DAYS: Final = 825
"""The most that some clients believe a server's certificate."""
CLOCK_SKEW: Final = timedelta(minutes=5)
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""In every certificate: tools on the machine itself use these."""
OWNER_ONLY: Final = 0o600
CERTIFICATE: Final = "ca.pem"
KEY: Final = "ca.key"


class UnusableAuthority(Exception):
    """The files of an authority cannot be read, or are not there. The message says which."""


@dataclass(frozen=True, slots=True)
class NodeFiles:
    certificate: Path
    key: Path


class Authority:
    def __init__(self, directory: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.file = directory / CERTIFICATE
        self._directory = directory
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, directory: Path, name: str) -> "Authority":
        """Raises FileExistsError."""
        authority = cls._signed_by_itself(directory, name)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(directory / KEY, _key_pem(authority._key), OWNER_ONLY)
        _write(directory / CERTIFICATE, _pem(authority._certificate), 0o644)
        return authority

    @classmethod
    def _signed_by_itself(cls, directory: Path, name: str) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        certificate = (
            _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(directory, certificate, key)

    @classmethod
    def load(cls, directory: Path) -> "Authority":
        """Raises UnusableAuthority."""
        try:
            certificate = x509.load_pem_x509_certificate((directory / CERTIFICATE).read_bytes())
            key = load_pem_private_key((directory / KEY).read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise UnusableAuthority(f"{directory} has no authority that can be used: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise UnusableAuthority(f"{directory / KEY} is not the key of {directory / CERTIFICATE}")
        return cls(directory, certificate, key)

    def issue(self, name: str, hosts: Sequence[str]) -> NodeFiles:
        """For a node that is reached under these names and addresses, and locally. Raises FileExistsError."""
        key, certificate = self._sign(hosts)
        files = NodeFiles(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        _write(files.key, _key_pem(key), OWNER_ONLY)
        _write(files.certificate, certificate, 0o644)
        return files

    def renew(self, files: NodeFiles) -> None:
        """Another certificate and key for the hosts of the one that is there. A node that reads one new file and one
        old keeps what it has, until they fit together. Raises UnusableAuthority."""
        try:
            before = x509.load_pem_x509_certificate(files.certificate.read_bytes())
            names = before.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (OSError, ValueError, x509.ExtensionNotFound) as error:
            raise UnusableAuthority(f"{files.certificate} is no certificate that can be renewed: {error}") from error
        addresses = map(str, names.get_values_for_type(x509.IPAddress))
        key, certificate = self._sign([*names.get_values_for_type(x509.DNSName), *addresses])
        _replace(files.key, _key_pem(key), OWNER_ONLY)
        _replace(files.certificate, certificate, 0o644)

    def node_files(self) -> list[NodeFiles]:
        """Of every certificate that is here with its key."""
        keys = sorted(self._directory.glob("*.key"))
        pairs = [NodeFiles(key.with_suffix(".pem"), key) for key in keys if key.name != KEY]
        return [pair for pair in pairs if pair.certificate.exists()]

    def rotate(self, name: str) -> "Authority":
        """Another authority in the place of this one. What this one has signed is believed until `forget_previous`."""
        successor = Authority._signed_by_itself(self._directory, name)
        _replace(self._directory / KEY, _key_pem(successor._key), OWNER_ONLY)
        _replace(self.file, _pem(successor._certificate) + _pem(self._certificate), 0o644)
        return successor

    def forget_previous(self) -> None:
        _replace(self.file, _pem(self._certificate), 0o644)

    def has_signed(self, files: NodeFiles) -> bool:
        """Whether it was this authority, and not the one before."""
        try:
            x509.load_pem_x509_certificate(files.certificate.read_bytes()).verify_directly_issued_by(self._certificate)
        except (OSError, ValueError, TypeError, InvalidSignature):
            return False
        return True

    def _sign(self, hosts: Sequence[str]) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
        """A key, and the chain of the certificate for it."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        names = x509.SubjectAlternativeName([_general_name(each) for each in dict.fromkeys((*hosts, *LOCAL_HOSTS))])
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(subject, self._certificate.subject, key.public_key(), NODE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .add_extension(usages, critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return key, _pem(certificate) + _pem(self._certificate)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=issuer,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - CLOCK_SKEW,
        not_valid_after=now + timedelta(days=days),
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _replace(path: Path, data: bytes, mode: int) -> None:
    """As a whole: a reader sees the file of before, or this one."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    _write(beside, data, mode)
    beside.replace(path)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Never over a file that exists, and never readable by others for a moment. Raises FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
