"""Contexts: names, and a registry of its own in each."""

import pytest

from headwater.schemas import decisions
from headwater.schemas.contexts import BadContext, Qualified, parse, parse_context, settings_of, within
from headwater.schemas.event_records import from_record
from headwater.schemas.events import Config, ContextPut
from headwater.schemas.levels import Level, Mode
from headwater.schemas.refusal import SchemaRefused
from headwater.schemas.schema import Reference, Schema, SchemaType
from tests.schemas.registry_log import Log

ONE, TWO = (Schema(SchemaType.AVRO, text) for text in ("one", "two"))


@pytest.mark.parametrize(
    ("text", "context", "name", "shortest"),
    [
        ("orders", ".", "orders", "orders"),
        (":.:orders", ".", "orders", "orders"),
        (":.ctx:orders", ".ctx", "orders", ":.ctx:orders"),
        (":.ctx:a:b", ".ctx", "a:b", ":.ctx:a:b"),
        (":.ctx:", ".ctx", "", ":.ctx:"),
        (":.ctx", ".ctx", "", ":.ctx:"),
        (":*:orders", "*", "orders", ":*:orders"),
        (":odd", ".", ":odd", ":odd"),
        ("", ".", "", ""),
    ],
)
def test_a_subject_says_its_context(text: str, context: str, name: str, shortest: str) -> None:
    assert parse(text) == Qualified(context, name)
    assert str(parse(text)) == shortest and parse(shortest) == parse(text)


def test_a_path_gives_subjects_their_context_unless_they_name_one() -> None:
    assert within(".ctx", "orders") == ":.ctx:orders"
    assert within(".ctx", ":.other:orders") == ":.other:orders"
    assert within(".ctx", ":.:orders") == "orders"
    assert [parse_context(text) for text in ("ctx", ".ctx", ":.ctx:", ":.:", ".")] == [".ctx", ".ctx", ".ctx", ".", "."]
    for odd in ("a:b", ":.a:b:", "a\n"):
        with pytest.raises(BadContext):
            parse_context(odd)


def test_prefixes_stay_in_their_context() -> None:
    subjects = ["orders", "other", ":.a:orders", ":.b:orders"]

    def found(prefix: str) -> list[str]:
        return [subject for subject in subjects if parse(prefix).matches(subject)]

    assert found("") == ["orders", "other"]
    assert found(":.a:") == [":.a:orders"]
    assert found(":*:or") == ["orders", ":.a:orders", ":.b:orders"]
    assert found(":*:") == subjects


def test_each_context_counts_its_own_ids_and_never_gives_one_twice() -> None:
    log = Log()
    for subject, schema in ((":.a:s", ONE), (":.a:s", TWO), (":.b:s", TWO), ("s", TWO)):
        log.register(subject, schema)
    registry = log.registry
    assert [registry.id_of(TWO, context) for context in (".a", ".b", ".")] == [2, 1, 1]
    assert registry.contexts() == [".", ".a", ".b"]
    for permanent in (False, True):
        log.write(decisions.delete_subject(registry, ":.a:s", permanent=permanent)[1])
    assert registry.contexts() == [".", ".a", ".b"], "it is there until it is deleted itself"
    log.write(decisions.delete_context(registry, ".a"))
    assert registry.contexts() == [".", ".b"]
    log.register(":.a:s", ONE)
    assert registry.id_of(ONE, ".a") == 3
    with pytest.raises(SchemaRefused) as refused:
        decisions.delete_context(registry, ".b")
    assert refused.value.code == 42211
    for unknown in (".c", "."):
        with pytest.raises(SchemaRefused) as refused:
            decisions.delete_context(registry, unknown)
        assert refused.value.code == 40401


def test_levels_and_modes_are_inherited_from_the_context_and_from_all_of_them() -> None:
    log = Log()
    registry = log.registry
    assert settings_of(":.a:s") == (":.a:s", ":.a:", ":.__GLOBAL:")
    assert settings_of("s") == ("s", None, ":.__GLOBAL:")
    log.write(decisions.set_config(":.__GLOBAL:", Config(Level.FULL)))
    assert registry.level("s") is registry.level(":.a:s") is Level.FULL
    log.write(decisions.set_config(None, Config(Level.NONE)))
    assert (registry.level("s"), registry.level(":.a:s")) == (Level.NONE, Level.FULL)
    log.write(decisions.set_config(":.a:", Config(Level.FORWARD)))
    assert (registry.level(":.a:s"), registry.level(":.b:s")) == (Level.FORWARD, Level.FULL)
    assert registry.config(":.a:s", inherited=False) is None
    log.write(decisions.set_mode(registry, ":.a:", Mode.READONLY, force=False))
    assert (registry.mode(":.a:s"), registry.mode("s")) == (Mode.READONLY, Mode.READWRITE)
    with pytest.raises(SchemaRefused):
        decisions.register(registry, ":.a:s", ONE)


def test_an_id_is_looked_for_in_the_subject_that_is_read() -> None:
    log = Log()
    registry = log.registry
    log.register("default-value", ONE)
    log.register(":.a:orders-value", TWO)
    assert registry.context_with(1) == "."
    assert registry.context_with(1, "default-value") == "."
    assert registry.context_with(1, "orders-value") == ".a", "no subject of the default context has this name"
    assert registry.context_with(1, "unknown-value") == "."
    assert registry.context_with(1, ":.a:") == ".a"
    for subject in (":.a:unknown-value", ":.b:", ":.b:orders-value"):
        with pytest.raises(SchemaRefused):
            registry.context_with(1, subject)
    assert registry.meant("orders-value") == ":.a:orders-value"
    assert registry.meant("unknown-value") == "unknown-value"
    assert registry.has(1, "default-value") and not registry.has(1, "orders-value")


def test_references_are_found_in_the_context_of_the_schema() -> None:
    log = Log()
    registry = log.registry
    log.register("types", ONE)
    log.register(":.a:types", TWO)
    plain, other = (Schema(SchemaType.AVRO, "user", (Reference("t", subject, 1),)) for subject in ("types", ":.:types"))
    assert registry.resolve(plain).named == {"t": "one"}
    assert registry.resolve(plain, ".a").named == {"t": "two"}
    assert registry.resolve(other, ".a").named == {"t": "one"}
    assert registry.resolve(plain).fingerprint != registry.resolve(plain, ".a").fingerprint
    log.register(":.a:user", plain)
    assert [each.subject for each in registry.referrers(":.a:types", 1)] == [":.a:user"]
    assert registry.referrers("types", 1) == []


@pytest.mark.parametrize("subject", ["", ":.a:", ":*:s", ":.__GLOBAL:s", "__GLOBAL", ":.a:__EMPTY", "a\nb"])
def test_what_is_no_subject_gets_no_schema(subject: str) -> None:
    with pytest.raises(SchemaRefused) as refused:
        decisions.check_subject(subject)
    assert refused.value.code == 42208


def test_contexts_of_other_registries_are_understood() -> None:
    key = b'{"keytype":"CONTEXT","tenant":"default","context":".a","magic":0}'
    assert from_record(key, b'{"tenant":"default","context":".a"}') == ContextPut(".a", True)
    assert from_record(key, None) == ContextPut(".a", False)
