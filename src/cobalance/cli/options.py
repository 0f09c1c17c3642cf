"""Options shared by several commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import attrs
from cyclopts import Parameter, Token

from cobalance.admin import GroupAdmin
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.open import DEFAULT_REDIS_URL
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL
from cobalance.settings import GroupSettings, Mode, duration_ms

RedisUrl = Annotated[
    str,
    Parameter(
        name="--redis-url",
        env_var="COBALANCE_REDIS_URL",
        show_default=False,
        help="redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://; by default the Redis on this machine.",
    ),
]
KeyPrefix = Annotated[
    str,
    Parameter(
        name="--key-prefix",
        env_var="COBALANCE_KEY_PREFIX",
        show_default=False,
        help="Prefix of the group's keys and channels in Redis, as for its members; by default cobalance.",
    ),
]
AmqpUrl = Annotated[
    str,
    Parameter(
        name="--amqp-url",
        env_var="COBALANCE_AMQP_URL",
        show_default=False,
        help="amqp:// or amqps://, several hosts with commas; by default the RabbitMQ on this machine, as guest.",
    ),
]
ManagementUrl = Annotated[
    str | None,
    Parameter(
        name="--management-url",
        env_var="COBALANCE_MANAGEMENT_URL",
        help="RabbitMQ's management API; by default at the hosts of --amqp-url, port 15672, with TLS 15671.",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Write JSON, for programs.")]
Name = Annotated[str, Parameter(help="Its name.")]


def _converted(_: object, tokens: Sequence[Token]) -> int:
    return duration_ms(tokens[0].value)


def duration_option(name: str, words: str, such_as: str = "1500ms, 30s or 2m") -> Parameter:
    """An option that takes a duration, with a ``-ms`` variant of its name."""
    return Parameter(name=(f"--{name}", f"--{name}-ms"), converter=_converted, help=f"{words} Such as {such_as}.")


ConnectTimeout = Annotated[
    int, duration_option("connect-timeout", "How long servers are waited for that cannot be reached yet.")
]


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class RedisOptions:
    """Where the groups are."""

    redis_url: RedisUrl = DEFAULT_REDIS_URL
    key_prefix: KeyPrefix = DEFAULT_PREFIX

    def admin(self, amqp_url: str = DEFAULT_AMQP_URL, management_url: str | None = None) -> GroupAdmin:
        """Of these groups; `amqp_url` may be "none"."""
        queues = None if amqp_url == "none" else amqp_url
        return GroupAdmin(self.redis_url, amqp_url=queues, management_url=management_url, key_prefix=self.key_prefix)


THIS_REDIS = RedisOptions()


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class SettingOptions:
    """Settings shared by all members of a group. Omitted ones stay unchanged, or have their defaults."""

    mode: Annotated[Mode | None, Parameter(help="cooperative moves surplus only; eager stops everything.")] = None
    session_timeout_ms: Annotated[
        int | None, duration_option("session-timeout", "A member silent for so long has crashed.")
    ] = None
    heartbeat_interval_ms: Annotated[
        int | None, duration_option("heartbeat-interval", "How often members renew their session.")
    ] = None
    revocation_timeout_ms: Annotated[
        int | None,
        duration_option("revocation-timeout", "How long a holder may take to hand over; not below the session's."),
    ] = None
    rejoin_grace_ms: Annotated[
        int | None, duration_option("rejoin-grace", "How long a member with an instance id is waited for.")
    ] = None
    gather_ms: Annotated[int | None, duration_option("gather", "Changes so close together are handled together.")] = (
        None
    )
    moves_per_call: Annotated[int | None, Parameter(help="The most resources that one call moves.")] = None
    journal_length: Annotated[int | None, Parameter(help="Approximate number of journal entries to keep.")] = None
    idle_expiry_ms: Annotated[
        int | None, duration_option("idle-expiry", "How long Redis keeps a group without members; 0 for good.", "30d")
    ] = None

    def given(self) -> dict[str, int | str]:
        """The given ones, by their names in :class:`GroupSettings`."""
        return {name: value for name, value in attrs.asdict(self).items() if value is not None}

    def settings(self) -> GroupSettings:
        return GroupSettings(**self.given())  # type: ignore[arg-type]


NO_SETTINGS = SettingOptions()
