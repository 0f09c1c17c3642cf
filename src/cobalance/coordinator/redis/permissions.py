"""Finds the commands that a user lacks: before a connection runs its first script, and when a Redis before 7.2 reports
only that there is one.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from redis import exceptions as redis_errors

from cobalance.coordinator.scripts import VERBS, load
from cobalance.coordinator.transport import Script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cobalance.coordinator.transport import Reply

    Exchange = Callable[..., Reply]

_INSIDE = "The user executing the script can't"
_INSIDE_SINCE_7_2 = "ACL failure in script: "

PUBLISH = "publish"
"""Used for hints only."""

COUNT = "pubsub|numsub"
"""Used to count who listens; without it, PUBLISH counts patterns as well."""

# acl_check_cmd is new in Redis 7. It needs just enough words to find the key among them; Redis 8 takes only as many as the command does.
_PROBE = Script.of(
    "permissions",
    """
local missing = {}
for i = 1, #ARGV do
  local target = ARGV[i] == 'publish' and string.gsub(KEYS[1], '[^:]*$', 'n:1') or KEYS[1]
  local command, part = string.match(ARGV[i], '^(%w+)|?(.*)$')
  for _, count in ipairs({3, 0, 1, 2, 4, 5}) do
    local words = {part ~= '' and part or target, target, target, target, target}
    local ok, allowed = pcall(redis.acl_check_cmd, command, unpack(words, 1, count))
    if ok then
      if not allowed then missing[#missing + 1] = ARGV[i] end
      break
    end
  end
end
return missing
""",
)


def is_inside_script(error: Exception) -> bool:
    """Whether a command inside the script was refused, so that earlier ones may have run."""
    return any(words in str(error) for words in (_INSIDE, _INSIDE_SINCE_7_2))


def lacking(script: Script, key: str, exchange: Exchange) -> set[str]:
    """The commands of this script, or of all verbs if it is one, that the user may not use on the key or its channel;
    empty if Redis cannot tell. If all of them are missing, the key is not permitted, which Redis reports better itself.
    """
    needed = _needed() if script.name in VERBS else _commands_of(script)
    missing = _missing(needed, key, exchange)
    return set() if missing >= set(needed) - {"time", PUBLISH, COUNT} else missing


def lacking_of_all(key: str, exchange: Exchange) -> set[str] | None:
    """The same of all verbs; None if Redis cannot tell. Raises what Redis says if the key is not permitted."""
    exchange("SCRIPT", "LOAD", _PROBE.source)
    try:
        missing = exchange("EVALSHA", _PROBE.sha, 1, key, *_needed())
    except redis_errors.ResponseError as error:
        if "acl_check_cmd" in str(error):  # new in Redis 7
            return None
        raise
    return {name.decode() for name in missing if isinstance(name, bytes)} if isinstance(missing, list) else set()


def refusal(missing: set[str]) -> redis_errors.NoPermissionError:
    """The error that Redis would raise."""
    return redis_errors.NoPermissionError(f"may not run the {_words(missing)} command")


def named(error: redis_errors.ResponseError, script: Script, key: str, exchange: Exchange) -> Exception:
    """The same error with the name of the command, if Redis is new enough to tell and the user may ask."""
    if "run this command" not in str(error):  # it is about a key or a channel
        return error
    missing = _missing(_commands_of(script), key, exchange)
    return redis_errors.NoPermissionError(f"{_INSIDE} run the {_words(missing)} command") if missing else error


def _missing(commands: Sequence[str], key: str, exchange: Exchange) -> set[str]:
    try:
        exchange("SCRIPT", "LOAD", _PROBE.source)
        missing = exchange("EVALSHA", _PROBE.sha, 1, key, *commands)
    except redis_errors.ResponseError:
        return set()
    return {name.decode() for name in missing if isinstance(name, bytes)} if isinstance(missing, list) else set()


def _words(missing: set[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(missing))


@cache
def _needed() -> Sequence[str]:
    return sorted({command for verb in VERBS for command in _commands_of(load(verb))})


def _commands_of(script: Script) -> Sequence[str]:
    found = re.findall(r"""(?:call|call_with)\(['"](\w+)['"]""", script.source)
    return sorted({COUNT if command == "PUBSUB" else command.lower() for command in found})
