"""The registry's state: subjects with their versions, ids, levels and modes.

`apply` is its only mutator. Reading the log from its start and following it give the same state.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headwater.schemas import refusal
from headwater.schemas.contexts import DEFAULT, GLOBAL, context_of, parse, settings_of, within
from headwater.schemas.events import (
    Config,
    ConfigPut,
    ContextPut,
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
        self._users: dict[tuple[str, int], dict[tuple[str, int], Version]] = {}
        """By context and id: the versions that have it."""
        self._ids: dict[tuple[str, bytes], int] = {}
        """By context and fingerprint."""
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._configs: dict[str | None, Config] = {}
        self._modes: dict[str | None, Mode] = {}
        self._last_ids: dict[str, int] = {}
        """By context."""
        self._contexts: set[str] = set()
        """Contexts that were made, and not removed."""
        self._held: Counter[str] = Counter()
        """By context, how many versions are in it."""
        self.size_bytes = 0
        """Of all texts, roughly: it is kept in memory."""
        self.changes = 0
        """How often it was changed: a decision on an older state is made again."""

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
            case IdsGiven(last_id, context):
                self._last_ids[context] = max(self.last_id(context), last_id)
            case ContextPut(context, is_there):
                (self._contexts.add if is_there else self._contexts.discard)(context)

    def _put(self, version: Version) -> None:
        self._remove(version.subject, version.version)
        key, context = (version.subject, version.version), context_of(version.subject)
        self._subjects.setdefault(version.subject, {})[version.version] = version
        self._users.setdefault((context, version.schema_id), {})[key] = version
        self.size_bytes += len(version.schema.text)
        self._ids.setdefault((context, version.schema.fingerprint), version.schema_id)
        for reference in version.schema.references:
            self._referrers.setdefault(_target(reference, context), set()).add(key)
        self._last_ids[context] = max(self.last_id(context), version.schema_id)
        self._held[context] += 1

    def _remove(self, subject: str, number: int) -> None:
        version = self._subjects.get(subject, {}).pop(number, None)
        if version is None:
            return
        if not self._subjects[subject]:
            del self._subjects[subject]
        self.size_bytes -= len(version.schema.text)
        context = context_of(subject)
        self._held[context] -= 1
        users = self._users[context, version.schema_id]
        del users[subject, number]
        if not users:
            del self._users[context, version.schema_id]
            if self._ids.get((context, version.schema.fingerprint)) == version.schema_id:
                del self._ids[context, version.schema.fingerprint]
        for reference in version.schema.references:
            target = _target(reference, context)
            referrers = self._referrers.get(target, set())
            referrers.discard((subject, number))
            if not referrers:
                self._referrers.pop(target, None)

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

    def contexts(self) -> list[str]:
        """The default one first. One that has subjects is there, though another registry wrote no record of it."""
        held = {context for context, versions in self._held.items() if versions}
        return [DEFAULT, *sorted((self._contexts | held) - {DEFAULT})]

    def last_id(self, context: str = DEFAULT) -> int:
        return self._last_ids.get(context, 0)

    def meant(self, subject: str, *, with_deleted: bool = False) -> str:
        """A subject that is not in the default context and does not name another is looked for in all of them: clients
        of a context ask for the subjects of their topics."""
        if context_of(subject) == DEFAULT and not self.versions(subject, with_deleted=with_deleted):
            for context in self.contexts()[1:]:
                qualified = within(context, subject)
                if self.versions(qualified, with_deleted=with_deleted):
                    return qualified
        return subject

    def context_with(self, schema_id: int, subject: str = "") -> str:
        """The context whose schema an id means, for a client that reads records of a subject; a subject without a name
        means a context. Raises Refused."""
        asked = parse(subject)
        if asked.name and self.has(schema_id, subject):
            return asked.context
        if asked.name and asked.context == DEFAULT:
            for context in self.contexts()[1:]:
                if self.has(schema_id, within(context, subject)):
                    return context
        if (asked.context, schema_id) not in self._users or (asked.name and asked.context != DEFAULT):
            raise refusal.schema_not_found(schema_id)
        return asked.context

    def users(self, schema_id: int, context: str = DEFAULT, *, with_deleted: bool = False) -> list[Version]:
        """Versions that have an id. Raises Refused if there was never one."""
        users = self._users.get((context, schema_id))
        if users is None:
            raise refusal.schema_not_found(schema_id)
        return [users[key] for key in sorted(users) if with_deleted or not users[key].is_deleted]

    def knows(self, schema_id: int, context: str = DEFAULT) -> bool:
        return (context, schema_id) in self._users

    def has(self, schema_id: int, subject: str) -> bool:
        """Whether an id belongs to a version of a subject; one that was deleted softly is still read."""
        return any(of == subject for of, _ in self._users.get((context_of(subject), schema_id), ()))

    def user(self, schema_id: int, context: str = DEFAULT) -> Version:
        """One that has an id. Raises Refused. One whose versions are all deleted softly is still found: records have
        its id."""
        return self.users(schema_id, context, with_deleted=True)[0]

    def id_of(self, schema: Schema, context: str = DEFAULT) -> int | None:
        return self._ids.get((context, schema.fingerprint))

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
        """Of a subject, of a context, or, if it is None, of the default context."""
        of = settings_of(subject)
        found = next((self._configs[each] for each in (of if inherited else of[:1]) if each in self._configs), None)
        return DEFAULT_CONFIG if found is None and (inherited or _is_top(subject)) else found

    def level(self, subject: str) -> Level:
        config = self.config(subject)
        assert config is not None, "everything inherits a level"
        return config.level

    def mode(self, subject: str | None, *, inherited: bool = True) -> Mode | None:
        of = settings_of(subject)
        if inherited and any(self._modes.get(each) is Mode.READONLY_OVERRIDE for each in of[1:]):
            return Mode.READONLY_OVERRIDE
        found = next((self._modes[each] for each in (of if inherited else of[:1]) if each in self._modes), None)
        return Mode.READWRITE if found is None and (inherited or _is_top(subject)) else found

    def resolve(self, schema: Schema, context: str = DEFAULT) -> Resolved:
        """A schema of a context with all that it refers to, in the order in which they need each other. Raises
        Refused."""
        named: dict[str, str] = {}
        self._collect(schema.references, context, named, ())
        return Resolved(schema, named)

    def _collect(
        self,
        references: tuple[Reference, ...],
        context: str,
        named: dict[str, str],
        inside: tuple[tuple[str, int], ...],
    ) -> None:
        for reference in references:
            target = _target(reference, context)
            if target in inside:
                raise refusal.invalid_schema(f"{reference.name} refers to itself")
            if reference.name in named:
                continue
            if len(named) + len(inside) >= MAX_REFERENCES:
                raise refusal.invalid_schema(f"there are more than {MAX_REFERENCES} references")
            number = None if reference.version == -1 else reference.version
            subject = target[0]
            found = self._subjects.get(subject, {})
            if not found or (number is not None and number not in found):
                where = f"version {reference.version} of subject '{subject}'"
                raise refusal.invalid_schema(f"{where}, which {reference.name} refers to, is not there")
            version = found[max(found) if number is None else number]
            self._collect(version.schema.references, context_of(subject), named, (*inside, target))
            named[reference.name] = version.schema.text


def _target(reference: Reference, context: str) -> tuple[str, int]:
    """What a schema of a context refers to: in the same context, unless it names another."""
    return within(context, reference.subject), reference.version


def _is_top(subject: str | None) -> bool:
    """What has a level and a mode in any case."""
    return subject is None or context_of(subject) == GLOBAL


def _set(table: dict[str | None, Config] | dict[str | None, Mode], key: str | None, value: object) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value  # type: ignore[assignment]
