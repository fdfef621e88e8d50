"""What the registry does when it is asked to: requests become events, or are refused.

Nothing is changed here. Whether a schema is valid and compatible was found out before: that takes time, and the state
may be asked in between.
"""

from dataclasses import dataclass, replace

from headwater.schemas import refusal
from headwater.schemas.contexts import ANY, DEFAULT, GLOBAL, Qualified, context_of, parse, settings_of
from headwater.schemas.events import Config, ConfigPut, ContextPut, Event, IdsGiven, ModePut, SchemaPut, SchemaRemoved
from headwater.schemas.levels import Level, Mode
from headwater.schemas.limits import MAX_SUBJECT_CHARS
from headwater.schemas.registry import Registry, Version
from headwater.schemas.schema import Schema

MAX_ID = 2**31 - 1
MAX_CONTEXTS = 2_000
MAX_VERSIONS = 100_000
MAX_SIZE_BYTES = 256 * 1024 * 1024
"""Both of the whole registry: it is kept in memory."""
_RESERVED = ("__GLOBAL", "__EMPTY")


@dataclass(frozen=True, slots=True)
class Registration:
    version: Version
    events: tuple[Event, ...] = ()
    """None if the schema was there."""


def check_subject(subject: str) -> None:
    """One that may have versions. Raises Refused."""
    found = parse(subject)
    if not found.name or found.name in _RESERVED or found.context in (ANY, GLOBAL) or not _is_text(subject):
        raise _invalid(subject)


def check_settings_subject(subject: str) -> None:
    """One that may have a level and a mode: also a context, and what all contexts inherit. Raises Refused."""
    found = parse(subject)
    if found.name in _RESERVED or found.context == ANY or (found.context == GLOBAL and found.name):
        raise _invalid(subject)
    if not _is_text(subject):
        raise _invalid(subject)


def _is_text(subject: str) -> bool:
    return 0 < len(subject) <= MAX_SUBJECT_CHARS and not any(ord(each) < 32 or ord(each) == 127 for each in subject)


def _invalid(subject: str) -> refusal.SchemaRefused:
    return refusal.SchemaRefused(42208, f"The specified subject '{subject[:80]}' is not a valid subject.")


def check_writable(registry: Registry, subject: str) -> None:
    mode = registry.mode(subject)
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise refusal.not_permitted(f"Subject {subject} is in read-only mode")


def check_may_register(registry: Registry, subject: str, schema_id: int | None) -> None:
    """Ids are given by the registry, or, in import mode, by the client."""
    check_writable(registry, subject)
    is_import = registry.mode(subject) is Mode.IMPORT
    if schema_id is not None and not is_import:
        raise refusal.not_permitted(f"Subject {subject} is not in import mode: the registry gives the ids")
    if schema_id is None and is_import:
        raise refusal.not_permitted(f"Subject {subject} is in import mode: a schema comes with its id")


def earlier(registry: Registry, subject: str) -> list[Version]:
    """The versions that a new schema must be compatible with, in order; fewer where the level asks for fewer."""
    level = registry.level(subject)
    versions = registry.versions(subject)
    if level is Level.NONE or registry.mode(subject) is Mode.IMPORT:
        return []
    return versions if level.is_transitive else versions[-1:]


def register(
    registry: Registry, subject: str, schema: Schema, schema_id: int | None = None, number: int | None = None
) -> Registration:
    """A schema that is valid and compatible. The same schema has the same id in every subject of a context."""
    check_subject(subject)
    found = registry.find(subject, schema)
    if found is not None and schema_id in (None, found.schema_id) and number in (None, found.version):
        return Registration(found)
    check_may_register(registry, subject, schema_id)
    is_import = registry.mode(subject) is Mode.IMPORT
    if len(registry) >= MAX_VERSIONS:
        raise refusal.not_permitted(f"The registry has {MAX_VERSIONS} versions, and takes no more")
    if registry.size_bytes + len(schema.text) > MAX_SIZE_BYTES:
        raise refusal.not_permitted(f"The registry has {MAX_SIZE_BYTES} bytes of schemas, and takes no more")
    decided = (
        _imported(registry, subject, schema, schema_id, number)
        if is_import
        else _new(registry, subject, schema, number)
    )
    context, contexts = context_of(subject), registry.contexts()
    if context in contexts:
        return decided
    if len(contexts) >= MAX_CONTEXTS:
        raise refusal.not_permitted(f"The registry has {MAX_CONTEXTS} contexts, and takes no more")
    return replace(decided, events=(ContextPut(context, True), *decided.events))


def _new(registry: Registry, subject: str, schema: Schema, number: int | None) -> Registration:
    numbers = [version.version for version in registry.versions(subject, with_deleted=True)]
    following = max(numbers, default=0) + 1
    if number is not None and number not in (-1, following):
        raise refusal.not_permitted(f"Version {number} was asked for; the next one of subject {subject} is {following}")
    context = context_of(subject)
    known = registry.id_of(schema, context)
    schema_id = known if known is not None else registry.last_id(context) + 1
    if schema_id > MAX_ID:
        raise refusal.not_permitted("There are no ids left")
    return _put(Version(subject, following, schema_id, schema, False))


def _imported(
    registry: Registry, subject: str, schema: Schema, schema_id: int | None, number: int | None
) -> Registration:
    assert schema_id is not None, "import mode has ids"
    if not 0 < schema_id <= MAX_ID:
        raise refusal.not_permitted(f"{schema_id} is no id")
    context = context_of(subject)
    if (
        registry.knows(schema_id, context)
        and registry.user(schema_id, context).schema.fingerprint != schema.fingerprint
    ):
        raise refusal.not_permitted(f"Overwrite new schema with id {schema_id} is not permitted.")
    numbers = {version.version: version for version in registry.versions(subject, with_deleted=True)}
    number = number if number is not None and number > 0 else max(numbers, default=0) + 1
    if number in numbers and numbers[number].schema.fingerprint != schema.fingerprint:
        raise refusal.not_permitted(f"Overwrite version {number} of subject {subject} is not permitted.")
    return _put(Version(subject, number, schema_id, schema, False))


def _put(version: Version) -> Registration:
    return Registration(version, (_event(version),))


def _event(version: Version) -> SchemaPut:
    return SchemaPut(version.subject, version.version, version.schema_id, version.schema, version.is_deleted)


# Deleting


def delete_subject(registry: Registry, subject: str, *, permanent: bool) -> tuple[list[int], list[Event]]:
    """The numbers of the versions that go."""
    versions = registry.versions(subject, with_deleted=True)
    live = [version for version in versions if not version.is_deleted]
    if not versions:
        raise refusal.subject_not_found(subject)
    check_writable(registry, subject)
    if permanent:
        if live:
            raise refusal.subject_not_deleted(subject)
        _check_unreferenced(registry, versions)
        events: list[Event] = [SchemaRemoved(subject, version.version) for version in versions]
        events += [ConfigPut(subject, None)] if registry.config(subject, inherited=False) is not None else []
        events += [ModePut(subject, None)] if registry.mode(subject, inherited=False) is not None else []
        return [version.version for version in versions], [_ids(registry, subject), *events]
    if not live:
        raise refusal.subject_deleted(subject)
    _check_unreferenced(registry, live)
    return [version.version for version in live], [_event(replace(version, is_deleted=True)) for version in live]


def delete_version(registry: Registry, subject: str, number: int | None, *, permanent: bool) -> tuple[int, list[Event]]:
    version = registry.version(subject, number, with_deleted=number is not None)
    check_writable(registry, subject)
    if permanent:
        if not version.is_deleted:
            raise refusal.version_not_deleted(subject, version.version)
        _check_unreferenced(registry, [version])
        return version.version, [_ids(registry, subject), SchemaRemoved(subject, version.version)]
    if version.is_deleted:
        raise refusal.version_deleted(subject, version.version)
    _check_unreferenced(registry, [version])
    return version.version, [_event(replace(version, is_deleted=True))]


def delete_context(registry: Registry, context: str) -> list[Event]:
    """One that has no subjects, not even such as were deleted softly."""
    if context == DEFAULT or context not in registry.contexts():
        raise refusal.context_not_found(context)
    if any(context_of(subject) == context for subject in registry.subjects(with_deleted=True)):
        raise refusal.context_not_empty(context)
    itself = str(Qualified(context, ""))
    events: list[Event] = [ContextPut(context, False)]
    events += [ConfigPut(itself, None)] if registry.config(itself, inherited=False) is not None else []
    events += [ModePut(itself, None)] if registry.mode(itself, inherited=False) is not None else []
    return events


def _ids(registry: Registry, subject: str) -> IdsGiven:
    context = context_of(subject)
    return IdsGiven(registry.last_id(context), context)


def _check_unreferenced(registry: Registry, versions: list[Version]) -> None:
    going = {(version.subject, version.version) for version in versions}
    for version in versions:
        for user in registry.referrers(version.subject, version.version):
            if (user.subject, user.version) not in going:
                raise refusal.referenced(version.subject, version.version)


# Levels and modes


def set_config(subject: str | None, config: Config) -> list[Event]:
    if subject is not None:
        check_settings_subject(subject)
    return [ConfigPut(subject, config)]


def delete_config(registry: Registry, subject: str | None) -> tuple[Config, list[Event]]:
    """What was in force."""
    config = registry.config(subject, inherited=False)
    if config is None:
        assert subject is not None, "there is always a level for all"
        raise refusal.no_level(subject)
    return config, [ConfigPut(subject, None)]


def set_mode(registry: Registry, subject: str | None, mode: Mode, *, force: bool) -> list[Event]:
    if subject is not None:
        check_settings_subject(subject)
    begins = mode is Mode.IMPORT and registry.mode(subject) is not Mode.IMPORT
    if begins and not force and any(subject in settings_of(each) for each in registry.subjects()):
        raise refusal.not_permitted("Cannot import since found existing subjects")
    return [ModePut(subject, mode)]


def delete_mode(registry: Registry, subject: str | None) -> tuple[Mode, list[Event]]:
    mode = registry.mode(subject, inherited=False)
    if mode is None:
        assert subject is not None, "there is always a mode for all"
        raise refusal.no_mode(subject)
    return mode, [ModePut(subject, None)]
