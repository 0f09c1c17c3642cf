"""Identifies keys of a group that something else has overwritten, and says what to do. Used after a failed script."""

from __future__ import annotations

import re
from shlex import quote
from typing import TYPE_CHECKING

from redis import exceptions as redis_errors

from cobalance.coordinator.advice import command
from cobalance.coordinator.keys import DEFAULT_PREFIX, NAMES, place_of
from cobalance.coordinator.transport import Script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cobalance.coordinator.transport import Reply

    Exchange = Callable[..., Reply]

RECORDS = frozenset({"state", "members", "resources", "offsets"})
"""Everything else can be rebuilt from these keys."""

# Uses commands that every user has; TYPE is not among them.
_PROBE = Script.of(
    "types",
    """
local foreign = {}
for i = 1, #KEYS do
  local reply
  if ARGV[i] == 'hash' then reply = redis.pcall('HEXISTS', KEYS[i], '-')
  elseif ARGV[i] == 'stream' then reply = redis.pcall('XREVRANGE', KEYS[i], '+', '-', 'COUNT', '1')
  else reply = redis.pcall('ZCARD', KEYS[i]) end
  if not tonumber(reply) and string.find(reply.err or '', 'WRONGTYPE', 1, true) then foreign[#foreign + 1] = KEYS[i] end
end
return foreign
""",
)


class Damaged(redis_errors.ResponseError):
    """Names the damaged keys."""


def damage(error: Exception, keys: Sequence[str], exchange: Exchange) -> Damaged | None:
    """Returns what is wrong with a group's keys, if that is why a script failed."""
    unreadable = re.search(r"UNREADABLE (\w+) (\S+)", str(error))
    if unreadable:
        name, field = unreadable.groups()
        return Damaged(_unreadable(keys[NAMES.index(name)], name, field))
    if "WRONGTYPE" not in str(error) or len(keys) < len(NAMES):
        return None
    foreign = _foreign(keys[: len(NAMES)], exchange)
    return Damaged(_wrong_type(foreign)) if foreign else None


def _foreign(keys: Sequence[str], exchange: Exchange) -> list[str]:
    kinds = ["hash" if name in RECORDS else "stream" if name == "journal" else "zset" for name in NAMES]
    exchange("SCRIPT", "LOAD", _PROBE.source)
    found = exchange("EVALSHA", _PROBE.sha, len(keys), *keys, *kinds)
    return [key.decode() for key in found if isinstance(key, bytes)] if isinstance(found, list) else []


def _wrong_type(keys: Sequence[str]) -> str:
    held = f"{' and '.join(keys)} hold{'s' if len(keys) == 1 else ''} what is not ours (WRONGTYPE)"
    if any(_name(key) in RECORDS for key in keys):
        return f"{held}. {_anew(keys)}"
    return f"{held}. `{_repair(keys[0])}` deletes it and creates it again"


def _unreadable(key: str, name: str, field: str) -> str:
    if name == "offsets":
        return f"{key} has an offset of {field} that is no whole number. Set it right: redis-cli HSET {quote(key)} {quote(field)} OFFSET"
    held = f"{key} has something else under {field} than we wrote"
    if name not in RECORDS:
        return f"{held}. `{_repair(key)}` creates it again"
    return f"{held}. {_anew([key])}"


def _anew(damaged: Sequence[str]) -> str:
    pattern = damaged[0].removesuffix(_name(damaged[0])) + "*"
    if any(_name(key) == "offsets" for key in damaged):
        which, spare = "all keys of the group", ""
    else:
        which, spare = "all keys of the group but its offsets", " | grep -v ':offsets$'"
    # The keys' expiry was that of the group that is deleted.
    lasting = f"; redis-cli PERSIST {quote(f'{pattern[:-1]}offsets')}" if spare else ""
    return (
        f"Delete {which}, and its members bring back what they hold, with the offsets of that: "
        f"redis-cli --scan --pattern {quote(pattern)}{spare} | xargs redis-cli DEL{lasting}"
    )


def _name(key: str) -> str:
    return key.rpartition(":")[2]


def _repair(key: str) -> str:
    prefix, group = place_of(key) or (DEFAULT_PREFIX, key)
    return command("group repair", group, key_prefix=prefix)
