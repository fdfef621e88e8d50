"""Every setting of the broker as a TOML file, with what it means and its default: `headwater serve --print-config`.

Each line is commented out, so that a copy changes nothing until it is edited.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any

from headwater.broker.settings.broker_config import SETTINGS, BrokerConfig
from headwater.broker.settings.setting import Address, Section

COMMENT_WIDTH = 110
WITHOUT_DEFAULT = {
    "advertise": '"broker.example.com:9092"',
    "metadata": '"sqlite:headwater-data/metadata.db"',
    "authorization": '"on"',
    "metrics_token_file": '"/etc/headwater/metrics-token"',
    "http_token_file": '"/etc/headwater/http-token"',
    "http_ca": '"/etc/headwater/tls/ca.pem"',
    "peer_listen": '"0.0.0.0:9192"',
    "peer_advertise": '"broker.example.com:9192"',
    "cluster_secret_file": '"/etc/headwater/cluster-secret"',
    "rack": '"room-1"',
}
"""Examples for settings that have no default."""
TABLES = {"topic", "listener", "oidc", "peer_tls"}
LISTENER_EXAMPLE = """\
# [[listener]]
# name = "clients"
# protocol = "SASL_SSL"
# listen = "0.0.0.0:9093"
# advertise = "broker.example.com:9093"
# certificate = "/etc/headwater/tls/node.pem"
# key = "/etc/headwater/tls/node.key"
"""
OIDC_EXAMPLE = """\
# [oidc]
# issuer = "https://id.example.com/realms/a"
# audience = "headwater"
"""
PEER_TLS_EXAMPLE = """\
# [peer_tls]
# certificate = "/etc/headwater/tls/node.pem"
# key = "/etc/headwater/tls/node.key"
# ca = "/etc/headwater/tls/ca.pem"
"""
TOPIC_EXAMPLE = '"retention.ms" = 604800000'


def config_template() -> str:
    defaults = {f.name: f.default if f.default is not MISSING else {} for f in fields(BrokerConfig)}
    parts = []
    for section in Section:
        names = [name for name, setting in SETTINGS.items() if setting.section == section and name not in TABLES]
        lines = [line for name in names for line in _lines(name, defaults[name])]
        if section == Section.TOPIC:
            lines = [*_comment(SETTINGS[Section.TOPIC].key.doc), f"# {TOPIC_EXAMPLE}", ""]
        parts += [f"[{section.value}]", *lines] if section else lines
    parts += [*_comment(SETTINGS["listener"].key.doc), LISTENER_EXAMPLE]
    parts += [*_comment(SETTINGS["oidc"].key.doc), OIDC_EXAMPLE]
    parts += [*_comment(SETTINGS["peer_tls"].key.doc), PEER_TLS_EXAMPLE]
    return "\n".join(parts).rstrip() + "\n"


def _lines(name: str, default: Any) -> list[str]:
    shown = WITHOUT_DEFAULT[name] if default is None else _toml(default)
    kafka_name = SETTINGS[name].kafka_name
    known_as = f" Kafka: {kafka_name}." if kafka_name else ""
    if SETTINGS[name].is_fixed:
        known_as += " Read at the start only."
    return [*_comment(SETTINGS[name].key.doc + known_as), f"# {name} = {shown}", ""]


def _comment(text: str) -> list[str]:
    return [f"## {line}" for line in textwrap.wrap(text, COMMENT_WIDTH)]


def _toml(value: Any) -> str:
    assert not isinstance(value, Mapping), "tables are shown as sections"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(each) for each in value)}]" if not isinstance(value, Address) else f'"{value}"'
    return f'"{value.value if isinstance(value, Enum) else value}"'
