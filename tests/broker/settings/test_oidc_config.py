"""The issuer of tokens in the configuration: what is read, and what stops the start with which words."""

from pathlib import Path
from typing import Any

import pytest

from headwater.broker.settings.broker_config import BrokerConfig, ConfigError
from headwater.broker.settings.oidc_config import read_oidc
from headwater.security.jwt_rules import TokenRules

LEAST = {"issuer": "https://id.example.com", "audience": "headwater"}


def test_the_issuer_of_tokens_is_a_table_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(
        """
[oidc]
issuer = "https://id.example.com"
audience = "headwater"
jwks_url = "https://keys.example.com/all"
ca = "/tls/ca.pem"
principal_claim = "email"
scope = "kafka logs"
clock_skew_s = 5
allowed_algorithms = ["ES256"]
"""
    )
    oidc = BrokerConfig.load(file).oidc
    assert oidc is not None
    assert (oidc.issuer, oidc.jwks_url, oidc.ca) == (
        "https://id.example.com", "https://keys.example.com/all", Path("/tls/ca.pem"),
    )  # fmt: skip
    assert oidc.rules == TokenRules(
        issuer=oidc.issuer, audience="headwater", principal_claim="email", scope="kafka logs", clock_skew_s=5,
        allowed_algorithms=("ES256",),
    )  # fmt: skip
    assert BrokerConfig.load(None).oidc is None
    assert BrokerConfig.load(None, oidc=oidc).oidc == oidc


def test_what_is_not_given_is_as_the_rules_have_it() -> None:
    assert read_oidc(LEAST).rules == TokenRules(issuer=LEAST["issuer"], audience=LEAST["audience"])


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"issuer": "https://id.example.com"}, "[oidc]: audience is missing"),
        ({"audience": "headwater"}, "[oidc]: issuer is missing"),
        ({**LEAST, "audience": ""}, "[oidc]: audience = '': a text is needed"),
        ({**LEAST, "audiance": "x"}, "[oidc]: unknown key 'audiance'; did you mean 'audience'?"),
        ({**LEAST, "issuer": "http://id.example.com"}, "[oidc]: issuer: 'http://id.example.com' is not an https URL"),
        ({**LEAST, "issuer": "accounts.example.com"}, "[oidc]: issuer: 'accounts.example.com' is not"),
        ({**LEAST, "jwks_url": "http://10.0.0.1/keys"}, "[oidc]: jwks_url: 'http://10.0.0.1/keys' is not an https URL"),
        ({**LEAST, "clock_skew_s": 301}, "[oidc]: The skew of clocks is from 0 to 300 seconds."),
        ({**LEAST, "clock_skew_s": 0.5}, "clock_skew_s = 0.5: a whole number of seconds is needed"),
        ({**LEAST, "clock_skew_s": True}, "a whole number of seconds is needed"),
        ({**LEAST, "allowed_algorithms": ["none"]}, "The algorithms of tokens are one or more of"),
        ({**LEAST, "allowed_algorithms": ["RS256", "HS256"]}, "The algorithms of tokens are one or more of"),
        ({**LEAST, "allowed_algorithms": []}, "The algorithms of tokens are one or more of"),
        ("https://id.example.com", "a table is needed, [oidc]"),
        ([LEAST], "a table is needed, [oidc]"),
    ],
)
def test_an_issuer_that_makes_no_sense_stops_the_start(table: Any, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.load(None, oidc=table)
    assert words in str(refused.value)


def test_an_issuer_whose_name_is_no_url_needs_the_url_of_its_keys() -> None:
    oidc = read_oidc({**LEAST, "issuer": "accounts.example.com", "jwks_url": "https://example.com/keys"})
    assert oidc.issuer == "accounts.example.com"
