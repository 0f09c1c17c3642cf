"""The keys of a group, described in this place only. Every script declares all of them; they share one hash tag, and so
one cluster slot.

Keys and hint channels are named ``PREFIX:1:{GROUP}:NAME``. Groups under different prefixes are unrelated.

=============  ======  =================================================================================================
name           type    contents; expires with the group (``_prelude/87_expiry.lua``) unless noted otherwise
=============  ======  =================================================================================================
``state``      hash    the group's scalars (``_prelude/10_group.lua``), of which ``pulse`` is the progress of the repair
                       after a script that died (``85_repair.lua``); per member ``r:<id>`` last request and session end
                       in ms, ``c:<id>`` version of its last change, ``k:<id>`` sum of the tokens it has, ``h:<id>``
                       cursor and sum when it last received everything, ``a:<id>`` last results, ``w:<id>`` what it
                       reported as in flight (``report.lua``), ``v:<id>`` when, on which server and for which
                       connection it vouched that a broker guards what it holds, or that it took that back, and how often
                       it has said so (``vouch.lua``); per subscription ``u:<subscription>`` how much of its list is known
``members``    hash    member id → packed record (``20_records.lua``), kept as a tombstone for ten minutes after its
                       end; ``=<instance id>`` → member id
``resources``  hash    resource → packed record
``names``      zset    every resource, by name
``owned``      zset    ``<member> k<rank><token> <resource>`` kept; ``p<since>`` pending revocation, cancellable;
                       ``r<since>`` pending because the resource is being removed
``feed``       zset    ``<member> <version> <resource>``: changes that the member has not confirmed
``ids``        zset    every member in ``load``, by id, so that a page of them is "those behind this one"
``load``       zset    member → resources it keeps, per unit of its capacity (``40_shares.lua``); below 0 for graced
                       members; above 2^53 for those without a share
``more``       zset    who may have more: ``<subscription> <load with one more> <member>``
``less``       zset    who may have less: like ``load``, with one fewer, of members that keep any; those found to keep
                       only pinned resources may be missing
``loose``      zset    like ``load``, of the members in ``less`` that have a share
``declared``   zset    ``<subscription> <resource>``: the list of a subscription (``35_subscriptions.lua``)
``revoking``   zset    like ``load``, of members with a revocation that could be cancelled; like ``more`` and negative
                       for ``+<member>``
``free``       zset    resource → version at which it became free; 0 if it only has to be deleted; 2^52 and above while
                       no member that could work it has a share
``timers``     zset    ``<kind>:<id>`` → due at ms (``70_timers.lua``)
``deadlines``  zset    resource → ms at which its armed revocation is forced
``offsets``    hash    resource → committed offset; kept for seven days after the resource was removed
``journal``    stream  one entry per transition, ``seq`` contiguous; trimmed to about ``journal_length``
=============  ======  =================================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SCHEMA = 1

DEFAULT_PREFIX = "cobalance"

NAMES = (
    "state",
    "members",
    "resources",
    "names",
    "owned",
    "feed",
    "load",
    "revoking",
    "free",
    "timers",
    "deadlines",
    "offsets",
    "journal",
    "more",
    "less",
    "loose",
    "declared",
    "ids",
)


def group_keys(group: str, prefix: str = DEFAULT_PREFIX) -> tuple[str, ...]:
    """The keys that every script of the group gets, in the order in which the scripts expect them."""
    return tuple(_key(prefix, group, name) for name in NAMES)


def journal_key(group: str, prefix: str = DEFAULT_PREFIX) -> str:
    """The stream of the group's transitions."""
    return _key(prefix, group, "journal")


def queues_key(prefix: str, period: int) -> str:
    """A hash shared by all groups under a prefix, for a period of time: broker and queue → the group that a member last
    joined or stayed in to work it (other_groups.py, which says how long it lives). Group scripts do not touch it, and
    only a warning depends on it.
    """
    return _key(prefix, "queues", f"worked-by:{period}")


def replay_key(group: str, prefix: str = DEFAULT_PREFIX) -> str:
    """A stream of what a replay orders and its agents report (``cobalance sims replay``), which says how long it lives.
    Group scripts do not touch it.
    """
    return _key(prefix, group, "replay")


def tuned_key(group: str, prefix: str = DEFAULT_PREFIX) -> str:
    """A hash with what `cobalance sims tune` last decided for the group (operate/tuned.py). Of the group's scripts only
    ``delete`` and ``configure`` get it. With an idle expiry it goes at the moment that was the group's when it was stored.
    """
    return _key(prefix, group, "tuned")


def groups_pattern(prefix: str = DEFAULT_PREFIX) -> str:
    """A glob pattern for one key of each group. Braces are literal in Redis's glob syntax."""
    return _key(prefix, "*", "state")


def place_of(key: str) -> tuple[str, str] | None:
    """Prefix and group of such a key; None for any other."""
    found = re.fullmatch(rf"(.+):{SCHEMA}:{{([^{{}}]+)}}:\w+", key)
    return (found[1], found[2]) if found else None


def group_names(keys: Iterable[str], prefix: str = DEFAULT_PREFIX) -> list[str]:
    """The groups under this prefix that these keys belong to, sorted."""
    places = {place_of(key) for key in keys}
    return sorted(place[1] for place in places if place is not None and place[0] == prefix)


def scope(group: str, prefix: str = DEFAULT_PREFIX, database: str = "") -> str:
    """What tells the group apart outside of Redis: "cobalance orders", in database 3 "cobalance#3 orders". No name has
    a blank or a #.

    Args:
        database: as the channels of that database end, "/3"; "" for number 0.
    """
    return f"{prefix}{database.replace('/', '#')} {group}"


EVERYBODY = "-"
"""Every listener of a group receives what is published for this member: the request to call, when the group starts
recovering.
"""


def hint_channel(group: str, member: str, prefix: str = DEFAULT_PREFIX) -> str:
    """The channel on which a member learns that something changed for it. In a database other than 0, the transport adds
    its number.
    """
    return _key(prefix, group, f"n:{member}")


def _key(prefix: str, group: str, name: str) -> str:
    return f"{prefix}:{SCHEMA}:{{{group}}}:{name}"
