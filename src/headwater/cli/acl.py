"""`headwater acl`: who may do what. Bindings are made through Kafka's own API, so that Kafka's tools see the same."""

import json as json_text
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.acl_grant import Words, bindings_of, filters_of, principal_of, resource_of, resource_operations
from headwater.cli.acl_requests import (
    allows_without_bindings,
    create_bindings,
    delete_bindings,
    index_of,
    matching,
)
from headwater.cli.brokers import Bootstrap, Brokers, ClientFile, brokers_of
from headwater.cli.client import Json, cluster
from headwater.cli.output import CommandFailed, confirm, note, print_json, print_table, say
from headwater.security.access_codes import PatternType, Permission
from headwater.security.acl import AclBinding
from headwater.security.acl_filter import AclFilter
from headwater.security.acl_words import allowing_command, explanation, operation_word, sentence, type_word
from headwater.security.hosts import host_of, is_address
from headwater.security.principal import EVERY_HOST

if TYPE_CHECKING:
    from headwater.cli.acl_grant import ResourceOperation
    from headwater.client.blocking_cluster import BlockingCluster
    from headwater.security.acl_verdict import AclVerdict

app = typer.Typer(help="Say who may do what, and ask why not.", no_args_is_help=True, add_completion=False)

DENIED_EXIT = 1
COLUMNS = ("user", "may", "operation", "resource", "name", "pattern", "from")

Who = Annotated[str, typer.Argument(metavar="USER", help="alice or User:alice; '*' is every user.")]
Operations = Annotated[
    str,
    typer.Argument(
        metavar="OPERATIONS", help="read,write,… or all; or a role: produce, consume, work (of a queue), admin."
    ),
]
Type = Annotated[str, typer.Argument(metavar="TYPE", help="topic, group, cluster or transactional-id.")]
Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of the resource; '*' is all. A cluster has none.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="The names are how names begin.")]
Group = Annotated[str | None, typer.Option("--group", metavar="NAME", help="Also read with this group.")]
TransactionalId = Annotated[
    str | None, typer.Option("--transactional-id", metavar="ID", help="Also write with this transactional id.")
]
From = Annotated[str | None, typer.Option("--from", metavar="ADDRESS", help="Only from this IP address.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
def allow(
    who: Who,
    operations: Operations,
    resource_type: Type,
    name: Name = None,
    prefix: Prefix = False,
    group: Group = None,
    transactional_id: TransactionalId = None,
    host: From = None,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Allow a user something."""
    words = _words(who, operations, resource_type, name, prefix, group, transactional_id, host)
    _create(words, Permission.ALLOW, brokers_of(bootstrap, client_file))


@app.command()
def deny(
    who: Who,
    operations: Operations,
    resource_type: Type,
    name: Name = None,
    prefix: Prefix = False,
    group: Group = None,
    transactional_id: TransactionalId = None,
    host: From = None,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Deny a user something, whatever else allows it."""
    words = _words(who, operations, resource_type, name, prefix, group, transactional_id, host)
    _create(words, Permission.DENY, brokers_of(bootstrap, client_file))


@app.command("list")
def list_all(
    of: Annotated[str | None, typer.Option("--of", metavar="USER", help="Only those that name this user.")] = None,
    on: Annotated[
        tuple[str, str] | None, typer.Option("--on", metavar="TYPE NAME", help="Only those on this resource.")
    ] = None,
    is_matching: Annotated[
        bool, typer.Option("--matching", help="With --on: also prefixes and '*', all that decides about it.")
    ] = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """List what is allowed and denied."""
    acl_filter = AclFilter(principal=str(principal_of(of)) if of is not None else None)
    if on is not None:
        resource_type, name = resource_of(*on)
        acl_filter = AclFilter(
            resource_type=resource_type,
            pattern_type=PatternType.MATCH if is_matching else PatternType.ANY,
            name=name,
            principal=acl_filter.principal,
        )
    elif is_matching:
        raise CommandFailed("--matching goes with --on TYPE NAME.", exit_code=2)
    with cluster(brokers_of(bootstrap, client_file)) as client:
        bindings = matching(client, acl_filter)
    if json:
        print_json([{**json_text.loads(each.to_json()), "sentence": sentence(each)} for each in bindings])
        return
    print_table(COLUMNS, [_row(each) for each in bindings], empty="No bindings.")


@app.command()
def remove(
    who: Who,
    operations: Annotated[str, typer.Argument(metavar="OPERATIONS", help="As in `allow`; any is every one there is.")],
    resource_type: Type,
    name: Name = None,
    prefix: Prefix = False,
    group: Group = None,
    transactional_id: TransactionalId = None,
    host: From = None,
    is_denial: Annotated[bool, typer.Option("--denial", help="What `deny` made, not what `allow` made.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Take back what the same words allowed, after showing it."""
    words = _words(who, operations, resource_type, name, prefix, group, transactional_id, host)
    acl_filters = list(filters_of(words, Permission.DENY if is_denial else Permission.ALLOW))
    with cluster(brokers_of(bootstrap, client_file)) as client:
        bindings = list(dict.fromkeys(each for acl_filter in acl_filters for each in matching(client, acl_filter)))
        if not bindings:
            raise CommandFailed("No binding says that.", "`headwater acl list` shows what is allowed and denied.")
        for each in bindings:
            say(sentence(each))
        confirm(f"Remove {'this' if len(bindings) == 1 else f'these {len(bindings)} bindings'}?", yes)
        count = delete_bindings(client, bindings)
    note(f"Removed {count} binding{'s' if count != 1 else ''}.")


@app.command()
def test(
    who: Who,
    operations: Operations,
    resource_type: Type,
    name: Name = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    host: From = None,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Ask whether a user may do something, and which rule decides. Exits with 1 if not."""
    words = _words(who, operations, resource_type, name, False, group, transactional_id, host)
    with cluster(brokers_of(bootstrap, client_file)) as client:
        verdicts = _verdicts(client, words, with_bindings=False)
    if json:
        print_json([_as_json(words, each, verdict) for each, verdict, _ in verdicts])
    else:
        _print_verdicts(words, verdicts)
    if not all(verdict for _, verdict, _ in verdicts):
        raise typer.Exit(DENIED_EXIT)


@app.command()
def explain(
    who: Annotated[str | None, typer.Argument(metavar="[USER]", help="As in `test`.")] = None,
    operations: Annotated[str | None, typer.Argument(metavar="[OPERATIONS]", help="As in `test`.")] = None,
    resource_type: Annotated[str | None, typer.Argument(metavar="[TYPE]", help="As in `test`.")] = None,
    name: Name = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    host: From = None,
    is_recent: Annotated[
        bool, typer.Option("--recent", help="Instead: what was refused in the last hour, by the audit.")
    ] = False,
    of: Annotated[str | None, typer.Option("--of", metavar="USER", help="With --recent: only to this user.")] = None,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """As `test`, with all bindings on the resource, of whatever user: one on it ends what holds without any."""
    if is_recent:
        if who is not None:
            raise CommandFailed("--recent is about all that was refused.", "Name a user with --of.", exit_code=2)
        from headwater.cli.acl_recent import explain_recent

        explain_recent(brokers_of(bootstrap, client_file), principal_of(of) if of is not None else None)
        return
    if who is None or operations is None or resource_type is None or of is not None:
        raise CommandFailed("Write USER OPERATIONS TYPE NAME, or --recent [--of USER].", exit_code=2)
    words = _words(who, operations, resource_type, name, False, group, transactional_id, host)
    with cluster(brokers_of(bootstrap, client_file)) as client:
        _print_verdicts(words, _verdicts(client, words, with_bindings=True))


def _words(
    who: str,
    operations: str,
    resource_type: str,
    name: str | None,
    prefix: bool,
    group: str | None,
    transactional_id: str | None,
    host: str | None,
) -> Words:
    return Words(
        who=who,
        operations=operations,
        resource_type=resource_type,
        name=name,
        is_prefix=prefix,
        group=group,
        transactional_id=transactional_id,
        host=host,
    )


def _create(words: Words, permission: Permission, brokers: Brokers) -> None:
    new = bindings_of(words, permission)
    with cluster(brokers) as client:
        _warn_of_first(client, new)
        create_bindings(client, new)
    for each in new:
        say(sentence(each))


def _warn_of_first(client: "BlockingCluster", new: list[AclBinding]) -> None:
    """A resource without bindings may be open to everyone, and is not any more when it has one."""
    if not allows_without_bindings(client):
        return
    for type_and_name in dict.fromkeys((each.resource_type, each.name, each.pattern_type) for each in new):
        resource_type, name, pattern_type = type_and_name
        is_prefix = pattern_type is PatternType.PREFIXED
        which = PatternType.PREFIXED if is_prefix else PatternType.MATCH
        if not matching(client, AclFilter(resource_type=resource_type, pattern_type=which, name=name)):
            what = f"{type_word(resource_type)}s that begin with" if is_prefix else type_word(resource_type)
            note(
                f"Until now every user may do everything with {what} {name!r}, because no binding is about it. Now "
                "only what bindings allow is allowed there."
            )


def _verdicts(
    client: "BlockingCluster", words: Words, *, with_bindings: bool
) -> "list[tuple[ResourceOperation, AclVerdict, list[AclBinding]]]":
    """Of all that the words ask for, each with the bindings on patterns that the resource fits."""
    if words.host is not None and not is_address(words.host):
        raise CommandFailed(f"--from {words.host!r} is no IP address.", exit_code=2)
    principal, host = principal_of(words.who), host_of(words.host or EVERY_HOST)
    verdicts = []
    for each in resource_operations(words):
        acl_filter = AclFilter(resource_type=each.resource_type, pattern_type=PatternType.MATCH, name=each.name)
        bindings = matching(client, acl_filter)
        index, is_certain = index_of(client, bindings)
        verdict = index.authorize(principal, host, each.operation, each.resource_type, each.name)
        if not is_certain and not verdict:
            note(
                "The broker does not show its super users to this client, nor what holds where no binding is: it may "
                "allow more."
            )
        verdicts.append((each, verdict, bindings if with_bindings else []))
    return verdicts


def _print_verdicts(words: Words, verdicts: "list[tuple[ResourceOperation, AclVerdict, list[AclBinding]]]") -> None:
    principal = principal_of(words.who)
    for each, verdict, bindings in verdicts:
        subject = f"{operation_word(each.operation)} {type_word(each.resource_type)} {each.name}: "
        say(f"{subject if len(verdicts) > 1 else ''}{explanation(verdict)}")
        for binding in bindings:
            say(f"  {sentence(binding)}")
        command = allowing_command(principal, each.operation, each.resource_type, each.name)
        if not verdict and verdict.binding is None and command is not None:
            say(f"  {command}")
        elif not verdict and verdict.binding is not None:
            say("  A denial wins over all that allows: `headwater acl remove --denial` takes it back.")


def _as_json(words: Words, each: "ResourceOperation", verdict: "AclVerdict") -> dict[str, object]:
    return {
        "user": str(principal_of(words.who)),
        "operation": operation_word(each.operation),
        "resource": type_word(each.resource_type),
        "name": each.name,
        "is_allowed": verdict.is_allowed,
        "explanation": explanation(verdict),
    }


def _row(binding: AclBinding) -> tuple[object, ...]:
    return (
        binding.principal,
        binding.permission.name.lower(),
        operation_word(binding.operation),
        type_word(binding.resource_type),
        binding.name,
        binding.pattern_type.name.lower(),
        binding.host,
    )
