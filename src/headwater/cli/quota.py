"""`headwater quota`: how much users, client ids and addresses may take. Limits are set through Kafka's own API, and
hold at each broker."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.cli.brokers import Bootstrap, ClientFile, brokers_of
from headwater.cli.client import Json, cluster
from headwater.cli.metrics_address import DEFAULT_METRICS, Metrics
from headwater.cli.metrics_token import MetricsToken, metrics_token
from headwater.cli.output import CommandFailed, confirm, note, print_json, print_table, say
from headwater.cli.quota_usage import UsedQuota, read_usage
from headwater.cli.quota_words import OPTIONS, limit_text, limit_word, limits_of, rate_text
from headwater.model.errors import RequestError
from headwater.security.quota_entities import EntityKind, QuotaEntity

if TYPE_CHECKING:
    from headwater.client.admin.quotas import EntityQuotas

app = typer.Typer(help="Limit what clients take.", no_args_is_help=True, add_completion=False)

COLUMNS: Final = ("of", "produce", "consume", "requests", "mutations", "connections")
USAGE_COLUMNS: Final = ("of", "limit", "now", "waits", "violations")

User = Annotated[str | None, typer.Option("--user", metavar="NAME")]
UserDefault = Annotated[bool, typer.Option("--user-default", help="Each user without a limit of their own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="Alone, or of a user.")]
ClientIdDefault = Annotated[bool, typer.Option("--client-id-default", help="Each client id without one of its own.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS")]
IpDefault = Annotated[bool, typer.Option("--ip-default", help="Each address without one of its own.")]


@app.command("set")
def set_limits(
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    produce: Annotated[str | None, typer.Option(metavar="10MB/s", help="Bytes written, per second.")] = None,
    consume: Annotated[str | None, typer.Option(metavar="20MB/s", help="Bytes read, per second.")] = None,
    requests: Annotated[str | None, typer.Option(metavar="50%", help="Of a broker's time.")] = None,
    mutations: Annotated[
        str | None, typer.Option(metavar="5/s", help="Partitions made or deleted, per second.")
    ] = None,
    connections: Annotated[str | None, typer.Option(metavar="20/s", help="Of an address, per second.")] = None,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Set limits; those that are not named stay."""
    from headwater.client.admin.quotas import alter_quotas

    entity = _required_entity(user, user_default, client_id, client_id_default, ip, ip_default)
    texts = {"produce": produce, "consume": consume, "requests": requests, "mutations": mutations}
    values = limits_of({**texts, "connections": connections}, entity)
    with cluster(brokers_of(bootstrap, client_file)) as client:
        client.answer(alter_quotas(entity, values))
    limits = ", ".join(f"{limit_word(key)} {limit_text(key, value)}" for key, value in values.items())
    note(f"Limits of {entity}: {limits}.")


@app.command("list")
def list_all(json: Json = False, bootstrap: Bootstrap = None, client_file: ClientFile = None) -> None:
    """List all limits."""
    from headwater.client.admin.quotas import describe_quotas

    with cluster(brokers_of(bootstrap, client_file)) as client:
        entities = client.answer(describe_quotas())
    if json:
        print_json([_as_json(each) for each in entities])
        return
    rows = [
        (str(entity), *(limit_text(key, quotas[key]) if key in quotas else None for key in OPTIONS.values()))
        for entity, quotas in entities
    ]
    print_table(COLUMNS, sorted(rows, key=lambda row: str(row[0])), empty="No limits.")


@app.command()
def show(
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    json: Json = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Show the limits of one user, client id or address; what defaults say is in the list."""
    from headwater.client.admin.quotas import describe_quotas

    entity = _required_entity(user, user_default, client_id, client_id_default, ip, ip_default)
    with cluster(brokers_of(bootstrap, client_file)) as client:
        entities = client.answer(describe_quotas(entity))
    limits = {key: value for _, quotas in entities for key, value in quotas.items()}
    if json:
        print_json(_as_json((entity, limits)))
        return
    if not limits:
        raise CommandFailed(f"There is no limit of {entity}.", "`headwater quota list` shows those there are.")
    for key, value in limits.items():
        say(f"{limit_word(key)} {limit_text(key, value)}")


@app.command()
def clear(
    user: User = None,
    user_default: UserDefault = False,
    client_id: ClientId = None,
    client_id_default: ClientIdDefault = False,
    ip: Ip = None,
    ip_default: IpDefault = False,
    only: Annotated[
        list[str], typer.Option("--only", metavar="LIMIT", help=f"Of {', '.join(OPTIONS)}. May be repeated.")
    ] = [],  # noqa: B006 (typer copies it)
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: Bootstrap = None,
    client_file: ClientFile = None,
) -> None:
    """Remove limits: all of them, unless some are named."""
    from headwater.client.admin.quotas import alter_quotas, describe_quotas

    entity = _required_entity(user, user_default, client_id, client_id_default, ip, ip_default)
    for each in only:
        if each not in OPTIONS:
            raise CommandFailed(f"--only {each!r} is no limit.", f"Use one of: {', '.join(OPTIONS)}.", exit_code=2)
    with cluster(brokers_of(bootstrap, client_file)) as client:
        present = {key for _, quotas in client.answer(describe_quotas(entity)) for key in quotas}
        keys = sorted(present & {str(OPTIONS[each]) for each in only} if only else present)
        if not keys:
            raise CommandFailed(f"There is no such limit of {entity}.", "`headwater quota list` shows those there are.")
        confirm(f"Remove {', '.join(map(limit_word, keys))} of {entity}?", yes)
        client.answer(alter_quotas(entity, dict.fromkeys(keys)))
    note(f"Removed {', '.join(map(limit_word, keys))} of {entity}.")


@app.command()
def usage(metrics: Metrics = DEFAULT_METRICS, metrics_token_file: MetricsToken = None, json: Json = False) -> None:
    """Show what clients use of their limits at one broker, over the last ten seconds, and who is throttled."""
    used = read_usage(metrics, metrics_token(metrics_token_file))
    if json:
        print_json([_usage_as_json(each) for each in used])
        return
    rows = [
        (
            str(each.entity),
            f"{limit_word(each.key)} {limit_text(each.key, each.limit)}",
            rate_text(each.key, each.rate),
            f"{each.waits_ms / 1_000:.1f} s" if each.waits_ms else None,
            each.violations,
        )
        for each in used
    ]
    print_table(USAGE_COLUMNS, rows, empty="No client that has a limit was here.")


def _required_entity(
    user: str | None,
    user_default: bool,
    client_id: str | None,
    client_id_default: bool,
    ip: str | None,
    ip_default: bool,
) -> QuotaEntity:
    parts: list[tuple[str, str | None]] = []
    options = (
        (EntityKind.USER, user, user_default),
        (EntityKind.CLIENT_ID, client_id, client_id_default),
        (EntityKind.IP, ip, ip_default),
    )
    for kind, name, is_default in options:
        if name is not None and is_default:
            raise CommandFailed(f"--{kind} and --{kind}-default exclude each other.", exit_code=2)
        if name is not None or is_default:
            parts.append((kind, name))
    if not parts:
        raise CommandFailed(
            "Whose limits?", "Name --user, --client-id, both, or --ip; or --user-default and the like.", exit_code=2
        )
    try:
        return QuotaEntity.of(parts)
    except RequestError as error:
        raise CommandFailed(error.message, exit_code=2) from None


def _usage_as_json(used: UsedQuota) -> dict[str, object]:
    return {
        "entity": {kind.value: name for kind, name in used.entity.parts},
        "quota": used.key,
        "limit": used.limit,
        "rate": used.rate,
        "waits_ms": used.waits_ms,
        "violations": used.violations,
        "throttled_ms": used.throttled_ms,
    }


def _as_json(of_entity: "EntityQuotas") -> dict[str, object]:
    entity, quotas = of_entity
    return {"entity": {kind.value: name for kind, name in entity.parts}, "quotas": quotas}
