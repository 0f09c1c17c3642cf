"""Churn as parameters: how big a group is, how its processes come, go, crash, freeze and get cut off, and how long its
work takes.

A :class:`Churn` is plain data: a name in :data:`CHURNS`, or a table as in TOML and JSON, made from a production journal
by ``cobalance sims calibrate`` or by hand. :meth:`Churn.scenario` turns it into a scenario for
:class:`cobalance_sims.simulate.run.Run`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast, get_args

import attrs

from cobalance.errors import UsageError
from cobalance.settings import GroupSettings
from cobalance_sims.simulate import churn_faults as f
from cobalance_sims.simulate.distributions import FORMS, Distribution, LogNormal, Uniform, parse
from cobalance_sims.simulate.habits import Habits
from cobalance_sims.simulate.network import Network
from cobalance_sims.simulate.scenario import Messages, Randomly, Regularly, Scenario
from cobalance_sims.simulate.witnesses import Witnesses

MOST_MEMBERS, MOST_RESOURCES = 5_000, 100_000
LONGEST_MS = 30 * 86_400_000
NEARLY_ALWAYS = 0.999_999
"""The share of durations that is taken into account."""
POISON_MS = (80, 120)
"""From the grant of a resource that nobody can work until it is given up."""


class BadChurn(UsageError):
    """The parameters are invalid; the message names the one at fault and says what is accepted."""


def _number(low: float, high: float = float("inf"), *, whole: bool = False) -> Any:
    def check(_: object, attribute: attrs.Attribute[float], value: object) -> None:
        kinds = int if whole else int | float
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            what = "a whole number" if whole else "a number"
            raise BadChurn(f"{attribute.name} is {value!r}: give {what} from {low:g} to {high:g}")

    return check


def _whole(default: int, low: int, high: int) -> Any:
    return attrs.field(default=default, validator=_number(low, high, whole=True))


def _rate() -> Any:
    return attrs.field(default=0.0, validator=_number(0, 100_000))


# Values that cannot be converted are left alone: the validators below know the parameter's name, and reject them.


def _parsed(given: str | float | Distribution) -> Distribution:
    plain = isinstance(given, str | int | float) and not isinstance(given, bool)
    return parse(given) if plain else cast("Distribution", given)


def _parsed_each(given: Any) -> Mapping[str, Distribution]:
    return {name: _parsed(it) for name, it in given.items()} if isinstance(given, Mapping) else given


def _in_turn(given: Iterable[int]) -> tuple[int, ...]:
    return tuple(given) if isinstance(given, list | tuple) else cast("tuple[int, ...]", given)


def _distribution(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    _check_distribution(attribute.name, value)


def _distributions(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Mapping):
        raise BadChurn(
            f"{attribute.name} is {value!r}: give a table of distributions, with resources' names (r0, r1 …)"
        )
    for name, it in value.items():
        _check_distribution(f"{attribute.name}.{name}", it)


def _check_distribution(name: str, value: Any) -> None:
    if not hasattr(value, "quantile"):
        raise BadChurn(f"{name} is {value!r}: give one of {FORMS}, in ms")
    try:
        value.quantile(NEARLY_ALWAYS)
    except OverflowError:
        raise BadChurn(f"{name} is {value.text}: no duration is that long; give a smaller sigma") from None


def _text(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, str):
        raise BadChurn(f"{attribute.name} is {value!r}: give a string")


def _flag(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        raise BadChurn(f"{attribute.name} is {value!r}: give true or false")


@attrs.frozen(kw_only=True)
class Churn:
    """How a group lives. Rates are averages; distributions are in ms, in the text form of distributions.py.

    Raises:
        BadChurn: a value is out of range, or two of them contradict each other.
        BadDistribution: a distribution is invalid.
    """

    name: str = attrs.field(default="custom", validator=_text)
    summary: str = attrs.field(default="", validator=_text)
    members: int = _whole(4, 1, MOST_MEMBERS)
    """Number of processes at first."""
    resources: int = _whole(12, 1, MOST_RESOURCES)
    instances: bool = attrs.field(default=False, validator=_flag)
    """Whether processes have instance ids, so that their resources wait for their return."""
    capacities: tuple[int, ...] = attrs.field(default=(1,), converter=_in_turn)
    """Capacities of the processes, in turn."""
    length_ms: int = _whole(600_000, 1_000, LONGEST_MS)
    """Length of the observation."""

    deploy: f.DeployShape = "none"
    deploy_every_ms: int = _whole(600_000, 1_000, LONGEST_MS)
    """From the beginning of one deployment to the next; the first begins at a random time in the first such interval.
    """
    deploy_pause_ms: int = _whole(5_000, 0, 3_600_000)
    """Between the start of a new process and the turn of the next old one."""
    startup_ms: Distribution = attrs.field(default=LogNormal(3000, 0.4), converter=_parsed, validator=_distribution)
    """From the end of an old process (or the order for a new one) to the join."""

    joins_per_hour: float = _rate()
    """Rate, for the group, at which an autoscaler adds a process."""
    leaves_per_hour: float = _rate()
    """Rate, for the group, at which an autoscaler removes a process."""
    least_members: int = _whole(1, 1, MOST_MEMBERS)
    most_members: int = _whole(MOST_MEMBERS, 1, MOST_MEMBERS)

    crashes_per_member_hour: float = _rate()
    restart_ms: Distribution = attrs.field(default=LogNormal(5000, 0.5), converter=_parsed, validator=_distribution)
    """From a crash to the join of the successor."""
    replacements_per_member_hour: float = _rate()
    """Rate of graceful replacements after ``startup_ms``: a drained node, a reclaimed spot instance."""
    crash_detection: bool = attrs.field(default=False, validator=_flag)
    """Whether a killed process is seen at once, since RabbitMQ guards all that it works; else when its session ends."""
    host_deaths_per_hour: float = _rate()
    """Rate, for the group, at which a machine is gone with its processes. Nobody closes their connections, so they are
    not seen at once; successors start elsewhere after ``restart_ms``.
    """
    members_per_host: int = _whole(2, 1, MOST_MEMBERS)
    outages_per_hour: float = _rate()
    """Rate at which nobody can reach Redis for a while."""
    outage_ms: Distribution = attrs.field(default=LogNormal(8000, 0.8), converter=_parsed, validator=_distribution)
    pauses_per_member_hour: float = _rate()
    """Rate at which a process freezes: a garbage collector, a migrating machine."""
    pause_ms: Distribution = attrs.field(default=LogNormal(1000, 1.0), converter=_parsed, validator=_distribution)
    cuts_per_member_hour: float = _rate()
    """Rate at which a process loses its connection to Redis."""
    cut_ms: Distribution = attrs.field(default=LogNormal(3000, 1.0), converter=_parsed, validator=_distribution)
    latency_ms: Distribution = attrs.field(default=Uniform(1, 3), converter=_parsed, validator=_distribution)
    """One-way latency between a process and Redis."""
    hint_lost: float = attrs.field(default=0.0, validator=_number(0, 1))
    """Share of the wake-ups that get lost, so that only the next heartbeat brings the news."""

    drain_ms: Distribution = attrs.field(default=LogNormal(200, 1.0), converter=_parsed, validator=_distribution)
    """From being asked for a resource back until the work is finished and committed."""
    drain_ms_of: Mapping[str, Distribution] = attrs.field(
        factory=dict, converter=_parsed_each, validator=_distributions
    )
    """The same for single resources (r0, r1 …) that have a distribution of their own."""
    handle_ms: Distribution = attrs.field(default=LogNormal(20, 1.0), converter=_parsed, validator=_distribution)
    """Time to handle one message."""
    messages_per_s: float = attrs.field(default=1.0, validator=_number(0, 1_000_000))
    """Arrival rate of messages, per resource."""
    prefetch: int = _whole(10, 1, 65_535)
    poison: int = _whole(0, 0, MOST_RESOURCES)
    """How many of the resources no process can work: each is given up soon after it was granted."""

    def __attrs_post_init__(self) -> None:
        if self.deploy not in get_args(f.DeployShape):
            raise BadChurn(f"deploy is {self.deploy!r}: give one of {', '.join(get_args(f.DeployShape))}")
        if self.deploy == "surge" and self.instances:
            raise BadChurn(
                "deploy is 'surge' and instances is true: two processes cannot have one instance id at a time"
            )
        if not self.least_members <= self.members <= self.most_members:
            raise BadChurn(
                f"members is {self.members}, which is not between least_members ({self.least_members}) and most_members "
                f"({self.most_members})"
            )
        if not (self.capacities and isinstance(self.capacities, tuple)) or not all(
            type(it) is int and 0 <= it <= 1_000 for it in self.capacities
        ):
            raise BadChurn(f"capacities is {self.capacities!r}: give whole numbers from 0 to 1000, one at least")

    @classmethod
    def of(cls, source: str | Mapping[str, Any] | Churn) -> Churn:
        """Creates a churn from a name, or from a table as :meth:`table` returns it; ``base`` in a table names a churn
        whose values it changes.

        Raises:
            BadChurn: there is no such churn or parameter, or a value is invalid.
        """
        if isinstance(source, Churn):
            return source
        if isinstance(source, str):
            if source not in CHURNS:
                raise BadChurn(f"there is no churn {source!r}; there are {', '.join(CHURNS)}")
            return CHURNS[source]
        if not isinstance(source, Mapping):
            raise BadChurn(f"a churn is {source!r}: give the name of one, or a table")
        changes = dict(source)
        base = cls.of(changes.pop("base")) if "base" in changes else cls()
        return base.changed(**changes)

    def changed(self, **changes: Any) -> Churn:
        """Returns a copy with some values changed.

        Raises:
            BadChurn: see :meth:`of`.
        """
        names = [field.name for field in attrs.fields(Churn)]
        if strange := sorted(changes.keys() - set(names)):
            raise BadChurn(f"a churn has no {', '.join(strange)}; it has {', '.join(names)}")
        return attrs.evolve(self, **changes) if changes else self

    def table(self) -> dict[str, Any]:
        """The parameters as TOML and JSON have them."""

        def plain(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: it.text for name, it in value.items()}
            if isinstance(value, tuple):
                return list(value)
            return value.text if hasattr(value, "text") else value

        return {field.name: plain(getattr(self, field.name)) for field in attrs.fields(Churn)}

    # -- as a story ------------------------------------------------------------------------------------------------------

    def scenario(self, settings: GroupSettings) -> Scenario:
        """Returns a scenario of this churn. Idle time is left out unless the network itself may cost a session."""
        return Scenario(
            name=self.name,
            summary=self.summary,
            plan=self._plan(),
            members=self.members,
            instances=self.instances,
            capacities=self.capacities,
            resources=self.resources,
            length_ms=self.length_ms,
            settings=settings,
            network=Network(one_way=self.latency_ms, slow=0.0, hint_lost=self.hint_lost),
            habits=Habits(
                drain_ms=self.drain_ms,
                drain_ms_of=self.drain_ms_of,
                fails_ms_of={f"r{number}": POISON_MS for number in range(self.poison)},
                handle_ms=self.handle_ms,
                prefetch=self.prefetch,
            ),
            witnesses=Witnesses() if self.crash_detection else None,
            messages=Messages(self.messages_per_s, self.handle_ms),
            skips_idle=4 * self.latency_ms.quantile(NEARLY_ALWAYS) < settings.session_timeout_ms // 6,
        )

    def _plan(self) -> tuple[Regularly | Randomly, ...]:
        steps = (
            Randomly(self.joins_per_hour, f.ScaleOut(self.most_members, self.capacities, self.instances)),
            Randomly(self.leaves_per_hour, f.ScaleIn(self.least_members)),
            Randomly(self.crashes_per_member_hour, f.CrashAndRestart(self.restart_ms), per_member=True),
            Randomly(self.replacements_per_member_hour, f.Replace(self.startup_ms), per_member=True),
            Randomly(self.pauses_per_member_hour, f.PauseAndResume(self.pause_ms), per_member=True),
            Randomly(self.cuts_per_member_hour, f.Cut(self.cut_ms), per_member=True),
            Randomly(self.host_deaths_per_hour, f.HostDeath(self.members_per_host, self.restart_ms)),
            Randomly(self.outages_per_hour, f.Outage(self.outage_ms)),
        )
        return (*self._deploys(), *[step for step in steps if step.per_hour > 0])

    def _deploys(self) -> tuple[Regularly, ...]:
        if self.deploy == "none":
            return ()
        return (Regularly(self.deploy_every_ms, f.Deploy(self.deploy, self.deploy_pause_ms, self.startup_ms)),)


_ALL = (
    Churn(
        name="steady",
        summary="hardly anything happens: a crash in a hundred process hours, short pauses, a rolling deploy every six hours",
        length_ms=6 * 3_600_000,
        deploy="rolling",
        deploy_every_ms=6 * 3_600_000,
        crashes_per_member_hour=0.01,
        pauses_per_member_hour=0.5,
        pause_ms="lognormal:400:0.8",
    ),
    Churn(
        name="rolling_deploy",
        summary="every ten minutes each process leaves and is replaced, one after the other (a Deployment without surge)",
        deploy="rolling",
    ),
    Churn(
        name="surge_deploy",
        summary="the same, but each new process is there before its old one leaves (a Deployment with maxSurge)",
        deploy="surge",
    ),
    Churn(
        name="recreate_deploy",
        summary="every ten minutes all processes leave, and then all start again (strategy Recreate)",
        deploy="all_at_once",
    ),
    Churn(
        name="statefulset_deploy",
        summary="a rolling deploy of processes with instance ids: what they held waits for them",
        deploy="rolling",
        instances=True,
        startup_ms="lognormal:8000:0.5",
    ),
    Churn(
        name="autoscaled",
        summary="an autoscaler adds and takes away processes, between 2 and 12, some forty times an hour",
        joins_per_hour=20,
        leaves_per_hour=20,
        least_members=2,
        most_members=12,
    ),
    Churn(
        name="spot_instances",
        summary="machines are reclaimed, mostly with notice and sometimes without, and come back after a while",
        replacements_per_member_hour=3,
        crashes_per_member_hour=1,
        startup_ms="lognormal:40000:0.4",
        restart_ms="lognormal:60000:0.4",
    ),
    Churn(
        name="crash_loop",
        summary="processes crash every ten minutes or so and are restarted at once",
        crashes_per_member_hour=6,
        restart_ms="lognormal:2000:0.8",
    ),
    Churn(
        name="gc_pauses",
        summary="garbage collectors stop processes twice a minute for about a second, one time in two hundred for ten seconds or more",
        pauses_per_member_hour=120,
        pause_ms="lognormal:1000:0.9",
        crashes_per_member_hour=0.5,
    ),
    Churn(
        name="frozen_hosts",
        summary="machines freeze for five to forty seconds (live migration, swapping), and go on",
        pauses_per_member_hour=4,
        pause_ms="uniform:5000:40000",
    ),
    Churn(
        name="slow_handlers",
        summary="handlers take seconds, drains longer, while an autoscaler comes and goes",
        joins_per_hour=12,
        leaves_per_hour=12,
        least_members=2,
        most_members=8,
        drain_ms="lognormal:6000:1.2",
        handle_ms="lognormal:3000:1.0",
        messages_per_s=0.2,
    ),
    Churn(
        name="flaky_network",
        summary="processes cannot reach Redis for seconds, now and then, and one wake-up in ten gets lost",
        cuts_per_member_hour=6,
        cut_ms="lognormal:4000:1.0",
        hint_lost=0.1,
        latency_ms="lognormal:4:0.6",
    ),
    Churn(
        name="redis_outages",
        summary="nobody can reach Redis for some seconds, three times an hour: a failover, a restart, a network",
        outages_per_hour=3,
        crashes_per_member_hour=0.5,
    ),
    Churn(
        name="held_gil",
        summary="code that holds Python's lock stops processes for up to three seconds, every minute or so",
        pauses_per_member_hour=60,
        pause_ms="uniform:200:3000",
        crashes_per_member_hour=0.5,
    ),
    Churn(
        name="busy_machines",
        summary="machines have so much to do that each process stands still for about a second, three times a minute",
        pauses_per_member_hour=180,
        pause_ms="lognormal:800:0.6",
        crashes_per_member_hour=0.5,
    ),
    Churn(
        name="host_deaths",
        summary="machines with two processes each are gone without a word, and their processes come back elsewhere",
        host_deaths_per_hour=4,
        restart_ms="lognormal:20000:0.5",
    ),
    Churn(
        name="poison",
        summary="two resources that nobody can work, while processes are replaced and crash",
        poison=2,
        deploy="rolling",
        crashes_per_member_hour=1,
    ),
    Churn(
        name="lively",
        summary="some of everything: deploys, autoscaling, crashes, pauses and cuts",
        deploy="rolling",
        deploy_every_ms=1_200_000,
        length_ms=1_200_000,
        joins_per_hour=6,
        leaves_per_hour=6,
        least_members=2,
        most_members=12,
        crashes_per_member_hour=1,
        pauses_per_member_hour=10,
        pause_ms="lognormal:1500:1.2",
        cuts_per_member_hour=1,
        drain_ms="lognormal:800:1.2",
    ),
)

CHURNS: dict[str, Churn] = {churn.name: churn for churn in _ALL}
"""All named churns, by name."""
