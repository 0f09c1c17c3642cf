"""``cobalance group list``, ``create``, ``configure``, ``resume``, ``repair`` and ``trust-offsets``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import attrs
from cyclopts import Parameter

from cobalance.cli.exits import FAILED
from cobalance.cli.options import DEFAULT_REDIS_URL, Json, Name, RedisUrl, SettingOptions
from cobalance.cli.output import print_json, print_table
from cobalance.cli.snapshot import Snapshot
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.transport import Transport, open_transport
from cobalance.errors import UsageError
from cobalance.names import validate_name

NO_SETTINGS = SettingOptions()


@contextmanager
def connected(redis_url: str) -> Iterator[Transport]:
    """A connection for the length of a ``with``."""
    transport = open_transport(redis_url)
    try:
        yield transport
    finally:
        transport.close()


def list_groups(
    *,
    state: Annotated[bool, Parameter(negative="", help="With the state of each.")] = False,
    json: Json = False,
    redis_url: RedisUrl = DEFAULT_REDIS_URL,
) -> None:
    """List the groups of this Redis."""
    with connected(redis_url) as transport:
        names = transport.list_groups()
        rows = [{"group": name} for name in names]
        for row in rows if state else ():
            row["state"] = Snapshot.take(Coordinator(transport, row["group"])).state
    if json:
        print_json(rows)
    else:
        print_table(("GROUP", "STATE") if state else ("GROUP",), (tuple(row.values()) for row in rows))


def create(name: Name, /, *, redis_url: RedisUrl = DEFAULT_REDIS_URL, settings: SettingOptions = NO_SETTINGS) -> None:
    """Create a group that is known to be new, so that its first members start at once.

    A group that its first member creates waits for one session timeout first: an empty Redis cannot tell a new group from a lost one. Do
    not create one that Redis has lost while its members work: they recover it by themselves. It is refused while any of them listens.
    """
    validate_name("group", name)
    with connected(redis_url) as transport:
        Coordinator(transport, name).create(settings.settings())


def configure(
    name: Name,
    /,
    *,
    json: Json = False,
    redis_url: RedisUrl = DEFAULT_REDIS_URL,
    settings: SettingOptions = NO_SETTINGS,
) -> None:
    """Change settings for all members of a group, at once; prints those in force."""
    validate_name("group", name)
    with connected(redis_url) as transport:
        coordinator = Coordinator(transport, name)
        changes = settings.given()
        in_force = coordinator.configure(**changes) if changes else coordinator.settings()
    values = attrs.asdict(in_force)
    if json:
        print_json(values)
    else:
        print_table(("SETTING", "VALUE"), values.items())


def resume(
    name: Name,
    /,
    *resources: Annotated[str, Parameter(help="Halted partitions, as describe names them.")],
    all_of_them: Annotated[bool, Parameter(name="--all", negative="", help="Everything that is halted.")] = False,
    redis_url: RedisUrl = DEFAULT_REDIS_URL,
) -> int | None:
    """Have halted partitions worked again, once what kept their member from getting on is removed."""
    validate_name("group", name)
    if all_of_them == bool(resources):
        raise UsageError("Name the partitions to resume, or give --all.")
    with connected(redis_url) as transport:
        coordinator = Coordinator(transport, name)
        halted = [row.name for row in coordinator.resources() if row.halted] if all_of_them else resources
        answers = coordinator.resume(*halted) if halted else {}
    print_table(("PARTITION", "RESULT"), ((resource, _ANSWERS[answer]) for resource, answer in answers.items()))
    return FAILED if "UNKNOWN" in answers.values() else None


def trust_offsets(name: Name, /, *, redis_url: RedisUrl = DEFAULT_REDIS_URL) -> None:
    """Say that no committed offset was lost with Redis's data, or that those lost were set again.

    A stream without a committed offset begins at its start from then on, and not as on_unknown_offset says.
    """
    validate_name("group", name)
    with connected(redis_url) as transport:
        Coordinator(transport, name).trust_offsets()


_ANSWERS = {"OK": "resumed", "NOT_HALTED": "was not halted", "UNKNOWN": "no such partition"}


def repair(name: Name, /, *, redis_url: RedisUrl = DEFAULT_REDIS_URL) -> None:
    """Make a group's indices, totals and timers anew from its records.

    What a call left that died half-way is mended by the next one without being asked; this is for all else that may have damaged them.
    Everybody waits while it runs: some seconds of a large group (100,000 resources take 2,000 calls, 5 s on a small machine), which may
    cost members their sessions.
    """
    validate_name("group", name)
    with connected(redis_url) as transport:
        mended = Coordinator(transport, name).repair()
    told = ["a call had died half-way and is mended"] if mended.torn else []
    if mended.changed:
        told.append("this has changed:")
    elif not told:
        told.append("nothing was out of place")
    print(f"{name} is made anew from its records; {'; '.join(told)}" + ("" if mended.changed else "."))
    for total, (before, after) in mended.changed.items():
        print(f"  {total}: {before or '-'} → {after or '-'}")
