import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.hosts import host_of, is_address


@pytest.mark.parametrize(
    "spellings",
    [
        ("::1", "0:0:0:0:0:0:0:1", "0000:0000:0000:0000:0000:0000:0000:0001", "::0001"),
        ("10.0.0.7", "::ffff:10.0.0.7", "::FFFF:a00:7", "0:0:0:0:0:ffff:10.0.0.7"),
        ("fe80::a%eth0", "FE80:0:0::A%eth0"),
    ],
)
def test_spellings_of_one_address_are_one_host(spellings: tuple[str, ...]) -> None:
    assert {host_of(each) for each in spellings} == {spellings[0]}


def test_other_addresses_are_other_hosts() -> None:
    texts = ["10.0.0.7", "10.0.0.70", "::1", "::10.0.0.7", "fe80::1", "fe80::1%eth0", "fe80::1%eth1"]
    assert len({host_of(each) for each in texts}) == len(texts)


@pytest.mark.parametrize("text", ["", "*", "localhost", "10.0.0.0/8", "10.0.0.07", "10.0.0", " 10.0.0.7", "[::1]", "é"])
def test_what_is_no_address_stays_as_it_is(text: str) -> None:
    assert host_of(text) == text
    assert not is_address(text)


@given(st.ip_addresses())
def test_a_host_has_one_spelling(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    host = host_of(address.exploded)
    assert host == host_of(str(address)) == host_of(address.exploded.upper()) == host_of(host)
    assert is_address(host)
