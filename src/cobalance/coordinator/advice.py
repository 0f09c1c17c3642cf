"""Words the commands that logs, errors and reports advise."""

from __future__ import annotations

import shlex

from cobalance.coordinator.keys import DEFAULT_PREFIX


def command(words: str, *names: str, key_prefix: str | None, **options: object) -> str:
    """A command that can be pasted into a shell, whatever characters its names have.

    Args:
        words: command and subcommand, as in "group resume".
        names: positional arguments, such as a group and its resources.
        key_prefix: that of the group, without which the command would act on the group of the same name under the
            default one. None for a command that needs no Redis.
        options: their values, or True for an option without one.
    """
    if key_prefix not in {None, DEFAULT_PREFIX}:
        options["key_prefix"] = key_prefix
    chosen = [word for name, value in options.items() for word in _option(name, value)]
    after = ["--", *names] if any(name.startswith("-") for name in names) else []
    return f"cobalance {words} {shlex.join([*(() if after else names), *chosen, *after])}".rstrip()


def from_earliest(group: str, stream: str, key_prefix: str) -> str:
    """The command that lets a group go on at the oldest message of a stream that is not as it was."""
    return command("group reset-offsets", group, key_prefix=key_prefix, resource=stream, to_earliest=True, execute=True)


def _option(name: str, value: object) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    return [f"{option}={value}"] if str(value).startswith("-") else [option, str(value)]
