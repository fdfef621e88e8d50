"""The registry's state: subjects with their versions, ids, levels and modes.

`apply` is its only mutator. Reading the log from its start and following it give the same state.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headwater.schemas import refusal
from headwater.schemas.events import (
    Config,
    ConfigPut,
    Event,
    IdsGiven,
    ModePut,
    SchemaPut,
    SchemaRemoved,
    SubjectDeleted,
)
from headwater.schemas.levels import Level, Mode
from headwater.schemas.limits import MAX_REFERENCES
from headwater.schemas.schema import Reference, Resolved, Schema

DEFAULT_CONFIG = Config(Level.BACKWARD)


@dataclass(frozen=True, slots=True)
class Version:
    subject: str
    version: int
    schema_id: int
    schema: Schema
    is_deleted: bool


class Registry:
    def __init__(self) -> None:
        self._subjects: dict[str, dict[int, Version]] = {}
        self._users: dict[int, dict[tuple[str, int], Version]] = {}
        """By id: the versions that have it."""
        self._ids: dict[bytes, int] = {}
        """By fingerprint."""
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._configs: dict[str | None, Config] = {}
        self._modes: dict[str | None, Mode] = {}
        self.last_id = 0
        self.size_bytes = 0
        """Of all texts, roughly: it is kept in memory."""
        self.changes = 0
        """How often it was changed: whoever decided on an older state decides again."""

    # Changing

    def apply(self, event: Event) -> None:
        self.changes += 1
        match event:
            case SchemaPut():
                self._put(Version(event.subject, event.version, event.schema_id, event.schema, event.is_deleted))
            case SchemaRemoved(subject, version):
                self._remove(subject, version)
            case SubjectDeleted(subject, last):
                for found in list(self._subjects.get(subject, {}).values()):
                    if found.version <= last:
                        self._put(replace(found, is_deleted=True))
            case ConfigPut(of, config):
                _set(self._configs, of, config)
            case ModePut(of, mode):
                _set(self._modes, of, mode)
            case IdsGiven(last_id):
                self.last_id = max(self.last_id, last_id)

    def _put(self, version: Version) -> None:
        self._remove(version.subject, version.version)
        key = (version.subject, version.version)
        self._subjects.setdefault(version.subject, {})[version.version] = version
        self._users.setdefault(version.schema_id, {})[key] = version
        self.size_bytes += len(version.schema.text)
        self._ids.setdefault(version.schema.fingerprint, version.schema_id)
        for reference in version.schema.references:
            self._referrers.setdefault((reference.subject, reference.version), set()).add(key)
        self.last_id = max(self.last_id, version.schema_id)

    def _remove(self, subject: str, number: int) -> None:
        version = self._subjects.get(subject, {}).pop(number, None)
        if version is None:
            return
        if not self._subjects[subject]:
            del self._subjects[subject]
        self.size_bytes -= len(version.schema.text)
        users = self._users[version.schema_id]
        del users[subject, number]
        if not users:
            del self._users[version.schema_id]
            if self._ids.get(version.schema.fingerprint) == version.schema_id:
                del self._ids[version.schema.fingerprint]
        for reference in version.schema.references:
            referrers = self._referrers.get((reference.subject, reference.version), set())
            referrers.discard((subject, number))
            if not referrers:
                self._referrers.pop((reference.subject, reference.version), None)

    # Reading

    def __len__(self) -> int:
        """How many versions there are."""
        return sum(len(versions) for versions in self._subjects.values())

    def subjects(self, *, with_deleted: bool = False) -> list[str]:
        return sorted(subject for subject in self._subjects if self.versions(subject, with_deleted=with_deleted))

    def versions(self, subject: str, *, with_deleted: bool = False) -> list[Version]:
        """In order; empty if there are none."""
        found = self._subjects.get(subject, {})
        return [found[number] for number in sorted(found) if with_deleted or not found[number].is_deleted]

    def all_versions(self, *, with_deleted: bool = False) -> Iterator[Version]:
        for subject in sorted(self._subjects):
            yield from self.versions(subject, with_deleted=with_deleted)

    def version(self, subject: str, number: int | None, *, with_deleted: bool = False) -> Version:
        """None is the latest. Raises Refused."""
        found = self.versions(subject, with_deleted=with_deleted)
        if not found:
            raise refusal.subject_not_found(subject)
        if number is None:
            return found[-1]
        for version in found:
            if version.version == number:
                return version
        raise refusal.version_not_found(number)

    def users(self, schema_id: int, *, with_deleted: bool = False) -> list[Version]:
        """Versions that have an id. Raises Refused if there was never one."""
        users = self._users.get(schema_id)
        if users is None:
            raise refusal.schema_not_found(schema_id)
        return [users[key] for key in sorted(users) if with_deleted or not users[key].is_deleted]

    def knows(self, schema_id: int) -> bool:
        return schema_id in self._users

    def has(self, schema_id: int, subject: str) -> bool:
        """Whether an id belongs to a version of a subject; one that was deleted softly is still read."""
        return any(of == subject for of, _ in self._users.get(schema_id, ()))

    def schema(self, schema_id: int) -> Schema:
        """Raises Refused. One whose versions are all deleted softly is still found: records have its id."""
        return self.users(schema_id, with_deleted=True)[0].schema

    def id_of(self, schema: Schema) -> int | None:
        return self._ids.get(schema.fingerprint)

    def find(self, subject: str, schema: Schema, *, with_deleted: bool = False) -> Version | None:
        fingerprint = schema.fingerprint
        for version in reversed(self.versions(subject, with_deleted=with_deleted)):
            if version.schema.fingerprint == fingerprint:
                return version
        return None

    def referrers(self, subject: str, number: int, *, with_deleted: bool = False) -> list[Version]:
        found = sorted(self._referrers.get((subject, number), ()))
        versions = (self._subjects[of][version] for of, version in found)
        return [version for version in versions if with_deleted or not version.is_deleted]

    def config(self, subject: str | None, *, inherited: bool = True) -> Config | None:
        found = self._configs.get(subject)
        if found is None and (inherited or subject is None):
            return self._configs.get(None, DEFAULT_CONFIG)
        return found

    def level(self, subject: str) -> Level:
        config = self.config(subject)
        assert config is not None, "everything inherits a level"
        return config.level

    def mode(self, subject: str | None, *, inherited: bool = True) -> Mode | None:
        everywhere = self._modes.get(None, Mode.READWRITE)
        if everywhere is Mode.READONLY_OVERRIDE and inherited:
            return everywhere
        return self._modes.get(subject, everywhere if inherited or subject is None else None)

    def resolve(self, schema: Schema) -> Resolved:
        """With all that it refers to, those that others need first. Raises Refused."""
        named: dict[str, str] = {}
        self._collect(schema.references, named, ())
        return Resolved(schema, named)

    def _collect(self, references: tuple[Reference, ...], named: dict[str, str], inside: tuple[Reference, ...]) -> None:
        for reference in references:
            if reference in inside:
                raise refusal.invalid_schema(f"{reference.name} refers to itself")
            if reference.name in named:
                continue
            if len(named) + len(inside) >= MAX_REFERENCES:
                raise refusal.invalid_schema(f"there are more than {MAX_REFERENCES} references")
            number = None if reference.version == -1 else reference.version
            found = self._subjects.get(reference.subject, {})
            if not found or (number is not None and number not in found):
                where = f"version {reference.version} of subject '{reference.subject}'"
                raise refusal.invalid_schema(f"{where}, which {reference.name} refers to, is not there")
            version = found[max(found) if number is None else number]
            self._collect(version.schema.references, named, (*inside, reference))
            named[reference.name] = version.schema.text


def _set(table: dict[str | None, Config] | dict[str | None, Mode], key: str | None, value: object) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value  # type: ignore[assignment]
