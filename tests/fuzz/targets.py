"""Parsers of what strangers and files say, each as a function of bytes for a fuzzer.

A target returns for whatever the parser refuses as it is declared to, and raises for anything else: another exception,
a login that succeeds without its proof, memory that grows beyond what was sent. `SEEDS` have inputs that get far, so
that a fuzzer begins behind the first check.
"""

import json
import tomllib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import PurePath
from secrets import token_hex
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

from headwater.broker.access.acl_bindings import AclKey
from headwater.broker.access.user_record import UserRecord
from headwater.broker.settings.listener_config import read_listeners
from headwater.broker.settings.setting import ConfigError
from headwater.client.client_file import BadClientFile, read_client_file
from headwater.client.properties import MalformedProperties, parse_properties, property_line
from headwater.client.security_options import InvalidSecurityOption, security_of
from headwater.model.errors import RequestError
from headwater.model.moment import Moment
from headwater.security.acl import AclBinding, CorruptAclBinding, InvalidAclBinding
from headwater.security.acl_filter import AclFilter, InvalidAclFilter
from headwater.security.acl_index import AclIndex
from headwater.security.dn import UnreadableName, common_names, dn_of_certificate, dn_of_der
from headwater.security.jwt_rules import TokenRules
from headwater.security.key_set import KeySet, MalformedKeySet
from headwater.security.login_errors import LoginFailed
from headwater.security.oauthbearer import MalformedBearer, bearer_message, parse_bearer
from headwater.security.plain import MalformedPlain, parse_plain, plain_message
from headwater.security.principal_rules import MalformedRule, NoPrincipal, PrincipalRules
from headwater.security.quota_entities import (
    MalformedQuota,
    QuotaEntity,
    QuotaFilter,
    QuotaTable,
    check_quota,
    quotas_from_json,
)
from headwater.security.sasl_decisions import Challenge, CheckPassword, Close, HandshakeAnswer, Succeeded, VerifyToken
from headwater.security.sasl_mechanisms import SaslMechanism
from headwater.security.sasl_server import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, SaslRules, SaslServer
from headwater.security.scram import InventedCredentials, ScramCredential, ScramHashing, ScramMechanism
from headwater.security.scram_client import scram_login
from headwater.security.scram_messages import ClientFinal, ClientFirst, MalformedScram, ServerFinal, ServerFirst
from headwater.security.token_identity import InvalidToken
from headwater.wire.cursor import MalformedRequest
from headwater.wire.frame import FIRST_FRAME_LIMIT_BYTES, FrameReader, FrameTooLarge
from headwater.wire.messages import read_body, read_header
from headwater.wire.requests import write_request
from headwater.wire.typed.alter_client_quotas import AlterClientQuotasRequest
from headwater.wire.typed.create_acls import AclCreation, CreateAclsRequest
from headwater.wire.typed.delete_acls import DeleteAclsRequest
from headwater.wire.typed.describe_acls import DescribeAclsRequest
from headwater.wire.typed.sasl_authenticate import SaslAuthenticateRequest
from headwater.wire.typed.sasl_handshake import SaslHandshakeRequest

Target = Callable[[bytes], None]

SECRET: Final = token_hex(16)
"""A password that no input can have."""
NONCE: Final = b"n" * 24
APIS_BEFORE_LOGIN: Final = {SASL_HANDSHAKE: (0, 1), API_VERSIONS: (0, 4), SASL_AUTHENTICATE: (0, 2)}
APIS_OF_SECURITY: Final = {29: (1, 3), 30: (1, 3), 31: (1, 3), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0)}


def _derive(hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Of one round, so that a fuzzer is not slowed down; it must not be asked for more than a client allows."""
    assert 4096 <= iterations <= 1_000_000, "what a peer can make us compute has a limit"
    size = 32 if hash_name == "sha256" else 64
    return (sha256(password + salt).digest() * 2)[:size]


HASHING: Final = ScramHashing(derive=_derive)


@cache
def _rules() -> SaslRules:
    credentials = {
        mechanism: ScramCredential.of_password(mechanism, SECRET, b"salt", 4096, HASHING)
        for mechanism in ScramMechanism
    }

    def look_up(name: str, mechanism: ScramMechanism) -> ScramCredential | None:
        return credentials[mechanism] if name == "alice" else None

    invented = InventedCredentials(b"k" * 32)
    return SaslRules(
        mechanisms=tuple(SaslMechanism), look_up=look_up, invented=invented, reauth_ms=60_000, hashing=HASHING
    )


class Pieces:
    """Bytes as a list of choices and texts."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def has_more(self) -> bool:
        return self._position < len(self._data)

    def number(self, below: int) -> int:
        self._position += 1
        return self._data[self._position - 1] % below if self._position <= len(self._data) else 0

    def text(self) -> bytes:
        """As long as its first two bytes say."""
        size = self.number(256) * 256 + self.number(256)
        self._position += size
        return self._data[self._position - size : self._position]


def piece(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


def sasl_server(data: bytes) -> None:
    """What a client may send, in any order, to a connection that has not logged in, or that alice has."""
    pieces = Pieces(data)
    machine = SaslServer(_rules())
    is_alice = bool(pieces.number(2))
    if is_alice:
        _log_in(machine)
    for step in range(1, 65):
        if not pieces.has_more:
            break
        now = Moment(step * 2_000, step * 2_000)
        _one_request(machine, pieces, now)
        assert is_alice or not machine.is_ready, "nothing lets a client in but the proof"
        assert machine.principal is None or machine.principal.name == "alice"


def _log_in(machine: SaslServer) -> None:
    now = Moment(0, 0)
    assert isinstance(machine.handshake(1, "SCRAM-SHA-256", NONCE, now), HandshakeAnswer)
    login = scram_login(ScramMechanism.SCRAM_SHA_256, "alice", SECRET, "mine", HASHING)
    token = next(login)
    with suppress(StopIteration):
        while True:
            decision = machine.authenticate(token, now)
            assert isinstance(decision, Challenge | Succeeded)
            token = login.send(decision.token)
    assert machine.is_ready


def _one_request(machine: SaslServer, pieces: Pieces, now: Moment) -> None:
    kind = pieces.number(8)
    if kind == 0:
        machine.arrived(pieces.number(100), now, is_served=bool(pieces.number(2)))
    elif kind in (1, 2):
        if not isinstance(machine.arrived(SASL_HANDSHAKE, now), Close):
            mechanisms = [*(each.value for each in SaslMechanism), pieces.text().decode("utf-8", "replace")]
            machine.handshake(pieces.number(2), mechanisms[pieces.number(len(mechanisms))], NONCE, now)
    elif kind in (3, 4, 5):
        if not isinstance(machine.arrived(SASL_AUTHENTICATE, now), Close):
            _decided(machine, machine.authenticate(_token(pieces), now), now)
    elif kind == 6 and machine.expects_raw_token:
        _decided(machine, machine.raw_token(_token(pieces), now), now)
    else:
        machine.password_checked(False, now)


def _token(pieces: Pieces) -> bytes:
    """Of the first server message a fuzzer knows the nonce: ours never changes here."""
    return pieces.text()


def _decided(machine: SaslServer, decision: object, now: Moment) -> None:
    if isinstance(decision, CheckPassword):
        machine.password_checked(decision.password == SECRET, now)
    elif isinstance(decision, VerifyToken):
        machine.token_refused("no token is right here")
    elif isinstance(decision, Challenge):
        assert len(decision.token) <= 1024, "an answer is short"


def sasl_client(data: bytes) -> None:
    """What a server may answer to a login of ours, that does not know the password."""
    pieces = Pieces(data)
    mechanism = list(ScramMechanism)[pieces.number(2)]
    login = scram_login(mechanism, "alice", SECRET, "mine", HASHING)
    next(login)
    try:
        for _ in range(4):
            login.send(pieces.text())
    except LoginFailed:
        return
    except StopIteration:
        raise AssertionError("the client believes a server that does not know the password") from None
    raise AssertionError("a login has three messages")


def sasl_messages(data: bytes) -> None:
    with suppress(MalformedPlain):
        login = parse_plain(data)
        assert parse_plain(plain_message(login.user, login.password)) == login
    with suppress(MalformedBearer):
        token = parse_bearer(data).token
        assert parse_bearer(bearer_message(token)).token == token
    for parse in (ClientFirst.parse, ServerFirst.parse, ClientFinal.parse, ServerFinal.parse):
        with suppress(MalformedScram):
            parse(data)


def login_frames(data: bytes) -> None:
    """Requests of a client that has not logged in, in pieces of any size."""
    pieces = Pieces(data)
    reader = FrameReader(bytearray(512))
    sent = 0
    while pieces.has_more:
        part = pieces.text()[:512]
        buffer = reader.buffer()
        part = part[: len(buffer)]
        buffer[: len(part)] = part
        sent += len(part)
        try:
            frames = reader.advance(len(part))
        except FrameTooLarge:
            return
        assert reader.pending_bytes <= min(FIRST_FRAME_LIMIT_BYTES, 2 * sent + 2048), "memory is bounded by what came"
        for frame in frames:
            _body(frame, APIS_BEFORE_LOGIN)


def requests_of_security(data: bytes) -> None:
    """Requests about bindings, quotas and users, up to what becomes of their fields."""
    request = _body(data, APIS_OF_SECURITY)
    if isinstance(request, CreateAclsRequest):
        for each in request.creations:
            with suppress(InvalidAclBinding):
                made = _binding(each)
                assert AclBinding.from_json(made.to_json()) == made and len(made.id) == 16
                AclIndex([made], version=1)
    elif isinstance(request, DescribeAclsRequest):
        _filter(request)
    elif isinstance(request, DeleteAclsRequest):
        for one in request.filters:
            _filter(one)
    elif isinstance(request, AlterClientQuotasRequest):
        for entry in request.entries:
            with suppress(RequestError):
                entity = QuotaEntity.of([(part.entity_type, part.entity_name) for part in entry.entity])
                assert entity.key().isascii() and str(entity)
                for op in entry.ops:
                    check_quota(entity, op.key, op.value)
    elif request is not None and hasattr(request, "components"):
        with suppress(RequestError):
            QuotaFilter.of([(part.entity_type, part.match_type, part.match) for part in request.components], True)


def _body(frame: bytes | bytearray, apis: Mapping[int, tuple[int, int]]) -> Any:
    try:
        header = read_header(frame)
        least, most = apis.get(header.api_key, (1, 0))
        return read_body(frame, header) if least <= header.api_version <= most else None
    except MalformedRequest:
        return None


def _binding(creation: AclCreation) -> AclBinding:
    return AclBinding.of_codes(
        resource_type=creation.resource_type,
        pattern_type=creation.resource_pattern_type,
        name=creation.resource_name,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission=creation.permission_type,
    )


def _filter(request: Any) -> None:
    with suppress(InvalidAclFilter):
        AclFilter.of_codes(
            resource_type=request.resource_type_filter,
            pattern_type=request.pattern_type_filter,
            name=request.resource_name_filter,
            principal=request.principal_filter,
            host=request.host_filter,
            operation=request.operation,
            permission=request.permission_type,
        )


@cache
def _keys() -> KeySet:
    key = generate_private_key(SECP256R1()).public_key()
    entry = {**ECAlgorithm.to_jwk(key, as_dict=True), "kid": "k", "alg": "ES256", "use": "sig"}
    return KeySet.parse(json.dumps({"keys": [entry]}).encode())


def token(data: bytes) -> None:
    """With keys whose private halves are gone, and the same token as claims that were signed."""
    rules = TokenRules(issuer="https://id", audience="a")
    text = data.decode("utf-8", "replace")
    try:
        rules.verify(text, _keys(), 1_000)
    except InvalidToken:
        pass
    else:
        raise AssertionError("nobody has signed this token")
    with suppress(InvalidToken):
        rules.verify(text, _AnySignature(), 1_000)  # type: ignore[arg-type]


class _AnySignature:
    """Keys that have signed everything, so that claims are looked at."""

    def find(self, kid: str | None) -> "_AnySignature":
        return self

    def has_signed(self, message: bytes, signature: bytes, algorithm: str) -> bool:
        return True


def key_set(data: bytes) -> None:
    with suppress(MalformedKeySet):
        keys = KeySet.parse(data)
        key = keys.find(next(iter(keys.by_kid), None))
        for algorithm in ("RS256", "PS512", "ES256", "EdDSA", "HS256", "none"):
            assert key is None or not key.has_signed(b"message", data[-64:], algorithm)


def names(data: bytes) -> None:
    """Distinguished names, and certificates for the sake of their names."""
    for read in (dn_of_der, dn_of_certificate, common_names):
        with suppress(UnreadableName):
            assert len(read(data)) <= 8 * len(data)


def principal_rules(data: bytes) -> None:
    rules, _, name = data.decode("utf-8", "replace").partition("\0")
    with suppress(MalformedRule, NoPrincipal):
        assert PrincipalRules(rules).name(name)


def client_files(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(BadClientFile):
        read_client_file(text, PurePath("/folder"))
    with suppress(MalformedProperties):
        for each in parse_properties(text):
            [again] = parse_properties(property_line(each.key, each.value))
            assert (again.key, again.value) == (each.key, each.value)
    with suppress(InvalidSecurityOption):
        options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": text}
        login = security_of(options).sasl
        assert login is not None and login.user and login.password not in (None, "")


def records_of_security(data: bytes) -> None:
    """Values of the metadata store: bindings, users, quotas, and the keys of bindings."""
    with suppress(CorruptAclBinding):
        assert AclBinding.from_json(AclBinding.from_json(data).to_json())
    with suppress(ValueError):
        user = UserRecord.from_json(data)
        assert UserRecord.from_json(user.to_json()) == user
    with suppress(InvalidAclBinding, ValueError):
        _ = AclKey.parse(data.decode("utf-8", "replace")).stand_in
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return
    with suppress(MalformedQuota):
        entity, values = quotas_from_json(record)
        QuotaTable({entity: values})


def listeners(data: bytes) -> None:
    try:
        tables = tomllib.loads(data.decode("utf-8", "replace"))
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    with suppress(ConfigError):
        assert len(read_listeners(tables.get("listener"))) <= 16


def _b64(value: object) -> bytes:
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


_CLIENT_FIRST: Final = b"n,,n=alice,r=mine"
_SERVER_NONCE: Final = b64encode(NONCE).rstrip(b"=")
_SERVER_FIRST: Final = b"r=mine" + _SERVER_NONCE + b",s=" + b64encode(b"salt") + b",i=4096"
_CLIENT_FINAL: Final = b"c=biws,r=mine" + _SERVER_NONCE + b",p=" + b64encode(bytes(32))
_TOKEN: Final = b".".join(
    [
        _b64({"alg": "ES256", "kid": "k", "typ": "JWT"}),
        _b64({"iss": "https://id", "aud": ["a"], "sub": "alice", "iat": 900, "exp": 1_900, "nbf": 900}),
        urlsafe_b64encode(bytes(64)).rstrip(b"="),
    ]
)
_BINDING: Final = AclBinding.of_codes(
    resource_type=2, pattern_type=4, name="orders-", principal="User:alice", host="10.0.0.7", operation=3, permission=3
)
_JAAS: Final = b'a.b.ScramLoginModule required username="alice" password="it\'s \\"x\\"";'
_NAME: Final = bytes.fromhex(
    "3047310b300906035504061302444531273011060355040a0c0a41636d652c20496e632e301206092a864886f70d01090116056140622e63"
    "310f300d06035504030c0664756b653d78"
)
"""CN=duke\\=x,O=Acme\\, Inc.+ an e-mail address,C=DE."""
_CERTIFICATE: Final = bytes.fromhex(
    "3082013a3081eda003020102020101300506032b6570"
    + _NAME.hex()
    + "301e170d3230303130313030303030305a170d3430303130313030303030305a"
    + _NAME.hex()
    + "302a300506032b6570032100f676da2bb2783ec248aaed06622c52835e49f888686263454b8722cd357d12e8300506032b6570034100"
    + "19d9ee62a7e80123de1d64f7b59d3d2bc359e628a862f61eb21f91aee5df2cf415557d609007dba1ed5e9f09c69431a5102450ea1a70d41b"
    + "e499a0ea0a312402"
)


def _request(request: Any, version: int) -> bytes:
    """Without the length of the frame."""
    return bytes(write_request(request, version, 1, "fuzz"))[4:]


def _frames(*requests: tuple[Any, int]) -> bytes:
    return b"".join(piece(bytes(write_request(request, version, 1, "fuzz"))) for request, version in requests)


_CREATION: Final = AclCreation(
    resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:a", host="*", operation=3,
    permission_type=3,
)  # fmt: skip

SEEDS: Final[Mapping[Target, tuple[bytes, ...]]] = {
    sasl_server: (
        b"\0" + bytes([1]) + piece(b"") + b"\1\1" + bytes([3]) + piece(_CLIENT_FIRST) + bytes([3])
        + piece(_CLIENT_FINAL),
        b"\0" + bytes([1]) + piece(b"") + b"\1\0" + bytes([3]) + piece(b"\0alice\0secret"),
        b"\0" + bytes([1]) + piece(b"") + b"\0\2" + bytes([6]) + piece(_CLIENT_FIRST) + bytes([6])
        + piece(_CLIENT_FINAL),
        b"\1" + bytes([1]) + piece(b"") + b"\1\1" + bytes([3]) + piece(_CLIENT_FIRST) + bytes([0, 3, 1]),
        b"\1" + bytes([1]) + piece(b"") + b"\1\3" + bytes([3]) + piece(bearer_message(_TOKEN.decode())),
    ),
    sasl_client: (
        b"\0" + piece(_SERVER_FIRST) + piece(b"v=" + b64encode(bytes(32))),
        b"\1" + piece(_SERVER_FIRST) + piece(b"e=other-error"),
    ),
    sasl_messages: (
        _CLIENT_FIRST, _SERVER_FIRST, _CLIENT_FINAL, b"v=" + b64encode(bytes(32)), b"alice\0alice\0secret",
        bearer_message(_TOKEN.decode()), b"n,a=alice,n=alice,r=x,m=y",
    ),
    login_frames: (
        _frames((SaslHandshakeRequest(mechanism="PLAIN"), 1), (SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), 2)),
        _frames((SaslAuthenticateRequest(auth_bytes=b"n,,n=a,r=b"), 1)),
    ),
    requests_of_security: (
        _request(CreateAclsRequest(creations=[_CREATION]), 1),
        _request(CreateAclsRequest(creations=[_CREATION, _CREATION]), 3),
        _request(DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1), 2),
        _request(DeleteAclsRequest(), 1),
        _request(AlterClientQuotasRequest(), 1),
    ),
    token: (_TOKEN,),
    key_set: (
        b'{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","alg":"EdDSA","x":"' + urlsafe_b64encode(bytes(32))[:43]
        + b'"}]}',
        b'{"keys":[{"kty":"RSA","kid":"b","e":"AQAB","n":"' + urlsafe_b64encode(b"\xff" * 256)[:342] + b'"}]}',
    ),
    names: (_NAME, _CERTIFICATE, bytes.fromhex("300c310a300806032a03040c0161")),
    principal_rules: (
        b"RULE:^CN=(.*?),OU=(.*)$/$1@$2/L, DEFAULT\0CN=alice,OU=x", b"RULE:(.*)/$1/\0CN=a", b"DEFAULT\0CN=a",
    ),
    client_files: (
        b"bootstrap.servers=h:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=a\n"
        b"sasl.password=\\u00e9 \\\n  b\nssl.ca.location=ca.pem\n",
        _JAAS, b"# c\n! d\nclient.id : x\n",
    ),
    records_of_security: (
        _BINDING.to_json(), b"TOPIC.LITERAL.a%2Fb/0011223344556677",
        b'{"entity":{"user":"alice","client-id":null},"quotas":{"producer_byte_rate":1024}}',
        UserRecord().to_json(),
    ),
    listeners: (
        b'[[listener]]\nname = "a"\nlisten = "127.0.0.1:9092"\n[[listener]]\nname = "b"\nprotocol = "SASL_PLAINTEXT"\n'
        b'listen = "[::1]:1"\nmechanisms = ["PLAIN"]\nreauth_ms = 1000\nadvertise = "h:1"\n',
    ),
}  # fmt: skip
TARGETS: Final[Mapping[str, Target]] = {target.__name__: target for target in SEEDS}
