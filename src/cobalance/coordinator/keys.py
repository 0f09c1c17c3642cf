"""The keys of a group: described once, here. All are declared to every script and share one hash tag (one cluster slot).

They are called ``PREFIX:1:{GROUP}:NAME``, and so are the channels of hints. Groups under different prefixes know nothing of each other.

=============  ======  ==================================================================================================
name           type    contents; lifetime is the group's (``_prelude/87_expiry.lua``) unless it says otherwise
=============  ======  ==================================================================================================
``state``      hash    the group's scalars (``_prelude/10_group.lua``), of which ``pulse`` says after a script that died how far the
                       repair is (``85_repair.lua``); per member ``r:<id>`` last request
                       and session end in ms, ``c:<id>`` version of its last change, ``k:<id>`` sum of the tokens it has, ``h:<id>`` cursor and
                       sum when it was last told everything, ``a:<id>`` last results, ``w:<id>`` what it told that it has in flight
                       (``report.lua``); per subscription
                       ``u:<subscription>`` how far its list is known
``members``    hash    member id → packed record (``20_records.lua``), kept as a tombstone for ten minutes after its end;
                       ``=<instance id>`` → member id
``resources``  hash    resource → packed record
``names``      zset    every resource, by name
``owned``      zset    ``<member> k<rank><token> <resource>`` kept; ``p<since>`` pending revocation, cancellable;
                       ``r<since>`` pending because the resource is being removed
``feed``       zset    ``<member> <version> <resource>``: changes the member has not confirmed hearing
``load``       zset    member → resources it keeps, a unit of its capacity (``40_shares.lua``); below 0 for graced ones; above 2^53
                       for those without a share
``more``       zset    ``<subscription> <the same with one more> <member>``, of those that may be given one
``less``       zset    the same with one fewer, of those that keep any; who was found to keep only pinned ones may be missing
``loose``      zset    as ``load``, of those in ``less`` that have a share
``declared``   zset    ``<subscription> <resource>``: what is on the list of a subscription (``35_subscriptions.lua``)
``revoking``   zset    as ``load`` for members with a revocation that could be cancelled, as ``more`` and negative for ``+<member>``
``free``       zset    resource → version at which it became free; 0 when it is only to be deleted; 2^52 and more while nobody who
                       could work it has a share
``timers``     zset    ``<kind>:<id>`` → due at ms (``70_timers.lua``)
``deadlines``  zset    resource → ms at which its armed revocation is forced
``offsets``    hash    resource → committed offset; kept for seven days after the resource was removed
``journal``    stream  one entry a transition, ``seq`` contiguous; trimmed to about ``journal_length``
=============  ======  ==================================================================================================
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
)


def group_keys(group: str, prefix: str = DEFAULT_PREFIX) -> tuple[str, ...]:
    """The keys that every script of the group gets, in the order in which the scripts expect them."""
    return tuple(_key(prefix, group, name) for name in NAMES)


def journal_key(group: str, prefix: str = DEFAULT_PREFIX) -> str:
    """The stream of the group's transitions."""
    return _key(prefix, group, "journal")


def queues_key(prefix: str = DEFAULT_PREFIX) -> str:
    """A hash shared by all groups under a prefix: broker and queue → the group that a member last joined to work it
    (other_groups.py). Group scripts do not touch it, and only a warning depends on it.
    """
    return _key(prefix, "queues", "worked-by")


def groups_pattern(prefix: str = DEFAULT_PREFIX) -> str:
    """A glob pattern for one key of each group. Braces are literal in Redis's glob syntax."""
    return _key(prefix, "*", "state")


def place_of(key: str) -> tuple[str, str] | None:
    """Prefix and group of such a key; None for any other."""
    found = re.fullmatch(rf"(.+):{SCHEMA}:{{(.+)}}:\w+", key)
    return (found[1], found[2]) if found else None


def group_names(keys: Iterable[str], prefix: str = DEFAULT_PREFIX) -> list[str]:
    """The groups under this prefix that these keys belong to, sorted."""
    places = {place_of(key) for key in keys}
    return sorted(place[1] for place in places if place is not None and place[0] == prefix)


EVERYBODY = "-"
"""Every listener of a group receives what is published for this member: the request to call, when the group starts
recovering.
"""


def hint_channel(group: str, member: str, prefix: str = DEFAULT_PREFIX) -> str:
    """The channel on which a member learns that something changed for it."""
    return _key(prefix, group, f"n:{member}")


def _key(prefix: str, group: str, name: str) -> str:
    return f"{prefix}:{SCHEMA}:{{{group}}}:{name}"
