"""Client files: what they mean, and what is wrong with those that cannot be used."""

from pathlib import PurePosixPath

import pytest

from headwater.client.client_file import BadClientFile, ClientFile, read_client_file
from headwater.client.security_options import ClientSecurity, security_of
from headwater.client.settings import SaslLogin, TlsFiles
from headwater.security.sasl_mechanisms import SaslMechanism

FOLDER = PurePosixPath("/etc/headwater")
LOGIN = "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password=hush\n"
ALICE = SaslLogin(mechanism=SaslMechanism.SCRAM_SHA_512, user="alice", password="hush")


def read(text: str) -> ClientFile:
    return read_client_file(text, FOLDER)


def refused(text: str) -> str:
    with pytest.raises(BadClientFile) as caught:
        read(text)
    assert "hush" not in str(caught.value)
    return str(caught.value)


def tls(authorities: str | None = None, pair: tuple[str | None, str | None] = (None, None), **more: object) -> TlsFiles:
    settings = {"key_password": None, "checks_host_name": True, **more}
    return TlsFiles(authorities, *pair, **settings)  # type: ignore[arg-type]


def test_an_empty_file_says_nothing() -> None:
    assert read("# nothing\n") == ClientFile(None, None, ClientSecurity(), has_secret=False)


def test_a_login_over_tls_is_read() -> None:
    file = read(f"bootstrap.servers=one:9093,[::1]:9094\nclient.id=me\n{LOGIN}ssl.ca.location=tls/ca.pem\n")
    assert (file.bootstrap, file.client_id, file.has_secret) == ("one:9093,[::1]:9094", "me", True)
    assert file.security == ClientSecurity(tls("/etc/headwater/tls/ca.pem"), ALICE)
    assert "hush" not in repr(file)


@pytest.mark.parametrize("module", ["org.apache.kafka.common.security.scram.ScramLoginModule", "ScramLoginModule"])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_login_is_read_as_java_has_it(module: str, quote: str) -> None:
    file = read(
        "security.protocol=sasl_plaintext\nsasl.mechanism=scram-sha-512\n"
        f"sasl.jaas.config={module} required \\\n  username={quote}alice{quote} \\\n"
        f"  password={quote}a;b = \\\\{quote}c{quote} tokenauth=false;\n"
    )
    login = file.security.sasl
    assert login is not None and (login.user, login.password) == ("alice", f"a;b = {quote}c")
    assert file.security.tls is None and file.has_secret


def test_certificates_are_named_as_librdkafka_and_as_java_do() -> None:
    one = read(
        "security.protocol=SSL\nssl.ca.location=/ca.pem\nssl.certificate.location=me.pem\nssl.key.location=me.key\n"
        "ssl.key.password=hush\nssl.endpoint.identification.algorithm=\n"
    )
    assert one.security == ClientSecurity(
        tls("/ca.pem", ("/etc/headwater/me.pem", "/etc/headwater/me.key"), key_password="hush", checks_host_name=False)
    )
    assert one.has_secret
    java = read(
        "security.protocol=SSL\nssl.truststore.location=/ca.pem\nssl.truststore.type=PEM\n"
        "ssl.keystore.location=me.pem\nssl.keystore.type=pem\n"
    )
    assert java.security == ClientSecurity(tls("/ca.pem", ("/etc/headwater/me.pem", "/etc/headwater/me.pem")))
    assert not java.has_secret


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("security.protocol=SSL\nsasl.kerberos.service.name=kafka", "line 2: sasl.kerberos.service.name is not under"),
        ("Hush this: is my password", "line 1: this is not an option. Understood are: bootstrap.servers"),
        ("security.protocol=TLS", "line 1: security.protocol is 'TLS'; it can be PLAINTEXT or SSL or SASL_PLAINTEXT"),
        ("security.protocol=SASL_SSL", "sasl.mechanism is missing; it can be PLAIN or SCRAM-SHA-256"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "line 2: sasl.mechanism is 'GSSAPI'"),
        (LOGIN.replace("sasl.password=hush", ""), "a login needs sasl.username and sasl.password"),
        (LOGIN.replace("sasl.password", "sasl.jaas.config"), "line 4: sasl.jaas.config is not of the form"),
        (LOGIN.replace("SASL_SSL", "SSL"), "line 2: sasl.mechanism has no meaning with security.protocol=SSL"),
        ("ssl.ca.location=/ca.pem", "line 1: ssl.ca.location has no meaning with security.protocol=PLAINTEXT"),
        (f"{LOGIN}sasl.password=hush2", "line 5: sasl.password is given twice, first in line 4"),
        ("security.protocol=SSL\nssl.truststore.location=a.jks", "line 2: ssl.truststore.location names a Java key"),
        ("ssl.keystore.key=-----BEGIN", "line 1: ssl.keystore.key holds PEM itself"),
        ("ssl.truststore.password=hush", "line 1: ssl.truststore.password is for Java key stores"),
        (
            "security.protocol=SSL\nssl.endpoint.identification.algorithm=htps",
            "line 2: ssl.endpoint.identification.algorithm is 'htps'; it can be https",
        ),
        ("bootstrap.servers=one", "line 1: bootstrap.servers: 'one' is not HOST:PORT"),
        ("client.id=\\u0000", "line 1: client.id has a NUL character"),
        ("a=\\u1", "line 1 has a \\u without four"),
    ],
    ids=lambda value: value.split("\n")[0],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, words: str) -> None:
    assert words in refused(text)


@pytest.mark.parametrize(
    "security",
    [
        ClientSecurity(),
        ClientSecurity(tls("/ca.pem")),
        ClientSecurity(None, ALICE),
        ClientSecurity(tls(None, ("a", "b"), key_password="p", checks_host_name=False), ALICE),
    ],
    ids=lambda security: security.protocol,
)
def test_what_other_clients_are_given_means_the_same(security: ClientSecurity) -> None:
    assert security_of(security.options()) == security
    assert ("hush" in str(security.options())) == (security.sasl is not None)
