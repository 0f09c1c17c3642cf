"""``cobalance group list``, ``create``, ``delete``, ``configure``, ``resume``, ``repair`` and ``trust-offsets``.

``describe``, ``history`` and ``reset-offsets`` have files of their own.
"""

from __future__ import annotations

from typing import Annotated

import attrs
from cyclopts import Parameter

from cobalance.admin import GroupAdmin
from cobalance.cli.exits import FAILED, check_any_read
from cobalance.cli.options import NO_SETTINGS, THIS_REDIS, AmqpUrl, Json, Name, RedisOptions, SettingOptions
from cobalance.cli.output import print_json, print_table, remark, remark_waiting
from cobalance.coordinator.transport import Listing
from cobalance.errors import CobalanceError, UnknownGroup, counted
from cobalance.operate.wording import RESUMED
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL


def list_groups(
    *,
    state: Annotated[bool, Parameter(negative="", help="Show the state of each.")] = False,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
) -> int:
    """List the groups of this Redis."""
    with redis.admin() as admin:
        listing, failures = Listing.of(admin.list), list[CobalanceError]()
        rows = [{"group": it, **({"state": _state(admin, it, failures)} if state else {})} for it in listing.names]
    if json:
        print_json(rows)
    else:
        print_table(("GROUP", "STATE") if state else ("GROUP",), (tuple(row.values()) for row in rows))
    code = check_any_read(failures, is_any_read=any(row.get("state") for row in rows))
    for error in failures:
        remark(f"warning: {error}")
    listing.check_complete()
    return code


def _state(admin: GroupAdmin, name: str, failures: list[CobalanceError]) -> str | None:
    """The state of a group, or None if it was deleted meanwhile, or cannot be read: it hides no other."""
    try:
        return admin.describe(name).state
    except UnknownGroup:
        return None
    except CobalanceError as error:
        failures.append(error)
        return None


def create(
    name: Name, /, *, json: Json = False, redis: RedisOptions = THIS_REDIS, settings: SettingOptions = NO_SETTINGS
) -> None:
    """Create a group that is known to be new, so that its first members start at once.

    A group that is created by its first member waits for one session timeout first, since an empty Redis cannot
    distinguish a new group from a lost one. Do not create a group that Redis has lost while its members work: they
    restore it by themselves. The command is refused while any of them listens.
    """
    with redis.admin() as admin:
        admin.create(name, made := settings.settings())
    if json:
        print_json({"group": name, "settings": attrs.asdict(made)})


def delete(
    name: Name,
    /,
    *,
    force: Annotated[
        bool, Parameter(negative="", help="Delete it even if it has members, which then recreate it.")
    ] = False,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> None:
    """Delete a group from Redis: its settings, its committed offsets, its journal; and from RabbitMQ, what streams it
    has read. Its queues remain.

    Refused while the group has members; waits for the sessions of crashed ones. With --force it is a loss of data to
    the members: they keep working what they hold, rejoin at once and recreate the group from that, with the settings
    and offsets they know. No resource is worked twice, but those held by nobody lose their offsets. To get rid of the
    group, stop its members.
    """
    with redis.admin(amqp_url) as admin:
        present = len(admin.describe(name).members) if force else 0
        admin.delete(name, force=force, on_waiting=remark_waiting)
    if json:
        print_json({"group": name, "deleted": True, "members": present})
    if present:
        remark(
            f"warning: group {name!r} had {counted(present, 'member')}. Members still alive will create it again from what "
            "they hold; stop them, and delete it again, to be rid of it."
        )


def configure(
    name: Name,
    /,
    *,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    settings: SettingOptions = NO_SETTINGS,
) -> None:
    """Change settings for all members of a group at once, and print those in force."""
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
    all_of_them: Annotated[bool, Parameter(name="--all", negative="", help="All halted partitions.")] = False,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
) -> int | None:
    """Resume halted partitions, once the cause of the failures is fixed.

    For a stream with an offset that RabbitMQ did not know of, this says that the offset is meant for it.
    """
    with redis.admin(amqp_url) as admin:
        answers = admin.resume(name, *resources, every=all_of_them)
    if json:
        print_json([{"partition": resource, "result": answer} for resource, answer in answers.items()])
    else:
        print_table(("PARTITION", "RESULT"), ((resource, RESUMED[answer]) for resource, answer in answers.items()))
    return FAILED if "unknown" in answers.values() else None


def trust_offsets(name: Name, /, *, json: Json = False, redis: RedisOptions = THIS_REDIS) -> None:
    """Declare that no committed offset was lost with Redis's data, or that lost ones were set again.

    A stream without a committed offset is then read from its start, and not as on_unknown_offset says.
    """
    with redis.admin() as admin:
        admin.trust_offsets(name)
    if json:
        print_json({"group": name, "offsets_known": True})


def repair(name: Name, /, *, json: Json = False, redis: RedisOptions = THIS_REDIS) -> None:
    """Rebuild a group's indices, totals and timers from its records.

    A call that died half-way is repaired automatically by the next one; this is for any other damage. The whole group
    waits while it runs: some seconds if it is large (100,000 resources take 5 s on a small machine), which may cost
    members their sessions.
    """
    with redis.admin() as admin:
        mended = admin.repair(name)
    if json:
        changed = [{"total": total, "before": old, "after": new} for total, (old, new) in mended.changed.items()]
        print_json({"group": name, "torn": mended.torn, "changed": changed})
        return
    done = ["a call had died half-way, or a key was gone, and is mended"] if mended.torn else []
    if mended.changed:
        done.append("this has changed:")
    elif not done:
        done.append("nothing was out of place")
    print(f"{name} has been rebuilt from its records; {'; '.join(done)}" + ("" if mended.changed else "."))
    for total, (before, after) in mended.changed.items():
        print(f"  {total}: {before or '-'} → {after or '-'}")
