"""Which command a script lacked: Redis says only that there was one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redis import exceptions as redis_errors

from cobalance.coordinator.transport import Script

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cobalance.coordinator.transport import Reply

    Exchange = Callable[..., Reply]

_INSIDE = "The user executing the script can't"

# acl_check_cmd is new in Redis 7. It wants no more than enough words to find the key among them.
_PROBE = Script.of(
    "permissions",
    """
local missing = {}
for i = 1, #ARGV do
  local ok, allowed = pcall(redis.acl_check_cmd, ARGV[i], KEYS[1], '1', '1', '1')
  if ok and not allowed then missing[#missing + 1] = ARGV[i] end
end
return missing
""",
)


def is_inside_script(error: Exception) -> bool:
    """Whether a command inside the script was refused, so that those before it may have run."""
    return _INSIDE in str(error)


def named(error: redis_errors.ResponseError, script: Script, key: str, exchange: Exchange) -> Exception:
    """The same error, saying which command it was, where Redis is new enough to tell and lets us ask."""
    if "run this command" not in str(error):  # but use a key or a channel
        return error
    try:
        exchange("SCRIPT", "LOAD", _PROBE.source)
        missing = exchange("EVALSHA", _PROBE.sha, 1, key, *_commands_of(script))
    except redis_errors.ResponseError:
        return error
    if not isinstance(missing, list) or not missing:
        return error
    words = ", ".join(f"'{name.decode()}'" for name in missing if isinstance(name, bytes))
    return redis_errors.NoPermissionError(f"{_INSIDE} run the {words} command")


def _commands_of(script: Script) -> Sequence[str]:
    found = re.findall(r"""(?:call|call_with)\(['"](\w+)['"]""", script.source)
    return sorted({command.lower() for command in found})
