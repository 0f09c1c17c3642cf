"""``cobalance group desired-members``, and the options that say what is asked of a group's size."""

from __future__ import annotations

import time
from typing import Annotated

import attrs
from cyclopts import Parameter

from cobalance.cli.options import THIS_REDIS, AmqpUrl, Json, ManagementUrl, Name, RedisOptions, duration_option
from cobalance.cli.output import print_json, print_table, seconds
from cobalance.operate.desired import Scaling, ScalingSettings
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL

_USUAL = ScalingSettings()


@Parameter(name="*")
@attrs.frozen(kw_only=True)
class ScalingOptions:
    """What is asked of a group's size."""

    least_members: Annotated[int, Parameter(help="The fewest members; 0 lets a group without work have none.")] = (
        _USUAL.least
    )
    drain_within_ms: Annotated[int, duration_option("drain-within", "How soon what waits is to be done.")] = (
        _USUAL.drain_within_ms
    )
    out_after_ms: Annotated[
        int, duration_option("scale-out-after", "How long more members must have been needed before there are more.")
    ] = _USUAL.out_after_ms
    in_after_ms: Annotated[
        int, duration_option("scale-in-after", "How long fewer must have been enough before there are fewer.")
    ] = _USUAL.in_after_ms

    def settings(self) -> ScalingSettings:
        """As values.

        Raises:
            InvalidSettings: one is out of range.
        """
        return ScalingSettings(
            least=self.least_members,
            drain_within_ms=self.drain_within_ms,
            out_after_ms=self.out_after_ms,
            in_after_ms=self.in_after_ms,
        )


AS_USUAL = ScalingOptions()


def desired_members(
    name: Name,
    /,
    *,
    measured_for: Annotated[int, duration_option("for", "How long to measure.")] = 30_000,
    scaling: ScalingOptions = AS_USUAL,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> None:
    """Measure for a while how many members a group needs.

    NEEDED is how many would do for what came in meanwhile, and for what waits within --drain-within: by what those
    members got done that had work throughout, else by the share of their time that this takes. It is never more than
    there are partitions. What is not known is "-".

    `cobalance metrics` answers the same for autoscalers, who ask again and again; there, the number goes up and down
    only after --scale-out-after and --scale-in-after.
    """
    settings = scaling.settings()
    with redis.admin(amqp_url, management_url) as admin:
        watch, judged = admin.watch(name), Scaling(settings)
        end = time.monotonic() + measured_for / 1_000
        found = judged.judge(watch.snapshot())
        while time.monotonic() < end:
            time.sleep(1.0)
            found = judged.judge(watch.snapshot())
    if json:
        print_json({"group": name, **attrs.asdict(found)})
        return
    cells = (
        name, found.present, found.needed, found.partitions, found.lag, seconds(found.waiting_ms),
        _rate(found.in_per_s), _rate(found.done_per_s), _rate(found.per_member_per_s),
    )  # fmt: skip
    print_table(
        ("GROUP", "#MEMBERS", "NEEDED", "#PARTITIONS", "LAG", "WAITING", "IN/S", "DONE/S", "CAN-DO/S-EACH"), [cells]
    )


def _rate(per_s: float | None) -> str | None:
    return None if per_s is None else f"{per_s:.1f}"
