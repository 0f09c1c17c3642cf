"""``cobalance group list``, ``create``, ``delete``, ``configure``, ``resume``, ``repair`` and ``trust-offsets``."""

from __future__ import annotations

from typing import Annotated

import attrs
from cyclopts import Parameter

from cobalance.admin import GroupAdmin
from cobalance.cli.exits import FAILED
from cobalance.cli.options import DEFAULT_AMQP_URL, THIS_REDIS, AmqpUrl, Json, Name, RedisOptions, SettingOptions
from cobalance.cli.output import print_json, print_table, remark, remark_waiting
from cobalance.errors import UnknownGroup

NO_SETTINGS = SettingOptions()


def list_groups(
    *,
    state: Annotated[bool, Parameter(negative="", help="With the state of each.")] = False,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
) -> None:
    """List the groups of this Redis."""
    with redis.admin() as admin:
        rows = [{"group": name, **({"state": _state(admin, name)} if state else {})} for name in admin.list()]
    if json:
        print_json(rows)
    else:
        print_table(("GROUP", "STATE") if state else ("GROUP",), (tuple(row.values()) for row in rows))


def _state(admin: GroupAdmin, name: str) -> str | None:
    """None of one that was deleted meanwhile."""
    try:
        return admin.describe(name).state
    except UnknownGroup:
        return None


def create(name: Name, /, *, redis: RedisOptions = THIS_REDIS, settings: SettingOptions = NO_SETTINGS) -> None:
    """Create a group that is known to be new, so that its first members start at once.

    A group that its first member creates waits for one session timeout first: an empty Redis cannot tell a new group from a lost one. Do
    not create one that Redis has lost while its members work: they recover it by themselves. It is refused while any of them listens.
    """
    with redis.admin() as admin:
        admin.create(name, settings.settings())


def delete(
    name: Name,
    /,
    *,
    force: Annotated[bool, Parameter(negative="", help="Though it has members, which then make it anew.")] = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> None:
    """Have Redis forget a group: its settings, its committed offsets, its journal; and RabbitMQ, which streams it has read. Its queues stay.

    Refused while anybody is a member; sessions of members that have crashed are waited for. With --force it is a loss of data to the
    members: they go on with what they hold, join again at once and make the group anew from that, with the settings and offsets
    they know; nobody is given what somebody else works. The offsets of what nobody held are lost. To be rid of it, stop its members.
    """
    with redis.admin(amqp_url) as admin:
        present = len(admin.describe(name).members) if force else 0
        admin.delete(name, force=force, on_waiting=remark_waiting)
    if present:
        remark(
            f"warning: group {name!r} had {present} member{'s' if present > 1 else ''}. Those that live make it anew from what they hold; "
            "stop them, and delete it again, to be rid of it."
        )


def configure(
    name: Name,
    /,
    *,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    settings: SettingOptions = NO_SETTINGS,
) -> None:
    """Change settings for all members of a group, at once; prints those in force."""
    with redis.admin() as admin:
        changes = settings.given()
        in_force = admin.configure(name, **changes) if changes else admin.settings(name)
    values = attrs.asdict(in_force)
    if json:
        print_json(values)
    else:
        print_table(("SETTING", "VALUE"), values.items())


def resume(
    name: Name,
    /,
    *resources: Annotated[str, Parameter(help="Halted partitions, as describe names them, or orders:0,3.")],
    all_of_them: Annotated[bool, Parameter(name="--all", negative="", help="Everything that is halted.")] = False,
    redis: RedisOptions = THIS_REDIS,
) -> int | None:
    """Have halted partitions worked again, once what kept their member from getting on is removed."""
    with redis.admin() as admin:
        answers = admin.resume(name, *resources, every=all_of_them)
    print_table(("PARTITION", "RESULT"), ((resource, _ANSWERS[answer]) for resource, answer in answers.items()))
    return FAILED if "unknown" in answers.values() else None


_ANSWERS = {"resumed": "resumed", "not_halted": "was not halted", "unknown": "no such partition"}


def trust_offsets(name: Name, /, *, redis: RedisOptions = THIS_REDIS) -> None:
    """Say that no committed offset was lost with Redis's data, or that those lost were set again.

    A stream without a committed offset begins at its start from then on, and not as on_unknown_offset says.
    """
    with redis.admin() as admin:
        admin.trust_offsets(name)


def repair(name: Name, /, *, redis: RedisOptions = THIS_REDIS) -> None:
    """Make a group's indices, totals and timers anew from its records.

    What a call left that died half-way is mended by the next one without being asked; this is for all else that may have damaged them.
    Everybody waits while it runs: some seconds of a large group (100,000 resources take 2,000 calls, 5 s on a small machine), which may
    cost members their sessions.
    """
    with redis.admin() as admin:
        mended = admin.repair(name)
    told = ["a call had died half-way and is mended"] if mended.torn else []
    if mended.changed:
        told.append("this has changed:")
    elif not told:
        told.append("nothing was out of place")
    print(f"{name} is made anew from its records; {'; '.join(told)}" + ("" if mended.changed else "."))
    for total, (before, after) in mended.changed.items():
        print(f"  {total}: {before or '-'} → {after or '-'}")
