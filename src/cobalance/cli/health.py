"""``cobalance health``: asks a member's process for its probes, for containers whose probes are commands."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from cyclopts import Parameter

from cobalance.cli.exits import FAILED, OK
from cobalance.cli.options import Json
from cobalance.cli.output import print_json
from cobalance.errors import Unreachable, UsageError
from cobalance.http_call import NoAnswerError, call_http
from cobalance.limits import parse_json
from cobalance.operate.http_listener import LOCALHOST
from cobalance.operate.probes import PATHS, PORT, Probe
from cobalance.redact import printable

TIMEOUT_S = 5.0
"""For the whole answer."""

MOST_BYTES = 2**24
"""How long an answer may be: that of ten thousand groups is shorter. What is cut off is no JSON."""

PROBE_PORT = "COBALANCE_PROBE_PORT"


def health(
    *,
    live: Annotated[bool, Parameter(negative="", help="Whether the member's engine works.")] = False,
    ready: Annotated[bool, Parameter(negative="", help="Whether it has joined, and is not leaving.")] = False,
    host: Annotated[str, Parameter(help="Where it listens.")] = LOCALHOST,
    port: Annotated[int, Parameter(env_var=PROBE_PORT, help="Its probe port.")] = PORT,
    json: Json = False,
) -> int:
    """Ask a member's process whether it is alive or ready, as a probe that is a command.

    The process listens with `cobalance consume --probe-port`, or with a ProbeServer of its own. Exit code 0 says that
    it is, 1 that it is not, 3 that it does not answer.
    """
    if live == ready:
        raise UsageError("Give one of --live and --ready.")
    probe: Probe = "live" if live else "ready"
    found = _ask(host, port, probe)
    if json:
        print_json(found)
    else:
        for group in found["groups"]:
            print(printable("; ".join((f"{group['group']}: {group['state']}", *group["reasons"]))))
    return OK if found[probe] else FAILED


def _ask(host: str, port: int, probe: Probe) -> dict[str, Any]:
    path = next(path for path, it in PATHS.items() if it == probe)
    try:
        _, body = call_http("GET", host, port, path, timeout_s=TIMEOUT_S, most=MOST_BYTES)
    except NoAnswerError as error:
        raise Unreachable(
            f"No member answers probes at {host}, port {port} ({error}): start it with --probe-port, or give its port."
        ) from None
    with suppress(ValueError):
        found = parse_json(body, dict)
        if _is_answer(found, probe):
            return found
    raise Unreachable(f"What answers at {host}, port {port}, is no member: give the port of its probes.")


def _is_answer(found: dict[str, Any], probe: Probe) -> bool:
    groups = found.get("groups")
    return isinstance(found.get(probe), bool) and isinstance(groups, list) and all(_is_group(it) for it in groups)


def _is_group(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("reasons"), list):
        return False
    return all(isinstance(it, str) for it in (found.get("group"), found.get("state"), *found["reasons"]))
