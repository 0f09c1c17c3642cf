"""Faults of servers: single ones of each kind, or nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, TypeVar

from redis.crc import key_slot
from tests.chaos.options import SETTINGS, Servers
from tests.chaos.servers import DOWN_AFTER_MS, Alone
from tests.faults.rabbitmq_servers import Node, RabbitMQCluster
from tests.faults.redis_servers import Cluster, Watched, Wired

from cobalance import servers
from cobalance.coordinator.keys import journal_key
from cobalance.servers.redis import PrivateRedis

if TYPE_CHECKING:
    from tests.chaos.run import Performance

    Fault = Callable[[Performance, Random], None]

T = TypeVar("T")

SESSION_S = SETTINGS.session_timeout_ms / 1000
KEY_PAUSE_S = 0.15
"""A slot takes some two seconds to move, so that calls of all members fall into each state of it."""


# -- one Redis, one RabbitMQ -------------------------------------------------------------------------------------------


def redis_empty(play: Performance, random: Random) -> None:
    """Redis stops, and comes back without data."""
    del random
    with play.trouble("redis-empty"):
        play.stage.look()
        _redis(play).restart(empty=True)


def redis_stale(play: Performance, random: Random) -> None:
    """Redis is killed and comes back from a snapshot that is older than the last changes."""
    redis = _redis(play)
    redis.save()
    play.stage.start_member()
    play.settle()
    with play.trouble("redis-stale"):
        play.someone(random).leave()
        play.sleep(random.uniform(0, 1))
        play.stage.look()
        redis.kill()
        redis.start()


def redis_pause(play: Performance, random: Random) -> None:
    """Redis hangs, for less or more than a session."""
    with play.trouble("redis-pause"):
        _redis(play).pause()
        play.sleep(random.uniform(0.3, 2.5) * SESSION_S)
        _redis(play).resume()


def rabbitmq_restart(play: Performance, random: Random) -> None:
    """RabbitMQ is stopped and started; the fault ends when queues are usable, perhaps seconds after connections are."""
    del random
    server = _the(Alone, play.stage.rabbitmq).server
    with play.trouble("rabbitmq-restart"):
        server.restart()
        play.wait_until(play.stage.has_topic, "RabbitMQ has all its queues again")


# -- a RabbitMQ of three nodes -----------------------------------------------------------------------------------------


def node_kill(play: Performance, random: Random) -> None:
    """Kill -9 of the node that leads some partition's queue; it comes back."""
    node = _leader(play, random)
    with play.trouble("node-kill"):
        node.kill()
        play.sleep(random.uniform(0.5, 2) * SESSION_S)
        node.start()
        _wait_nodes(play)


def node_restart(play: Performance, random: Random) -> None:
    """A node is stopped cleanly and started, as for an upgrade."""
    node = random.choice(_nodes(play).nodes)
    with play.trouble("node-restart"):
        node.restart()
        _wait_nodes(play)


def node_freeze(play: Performance, random: Random) -> None:
    """SIGSTOP of a leader: its connections stay open and nothing is answered, until another one leads."""
    node = _leader(play, random)
    with play.trouble("node-freeze"):
        node.pause()
        play.sleep(random.uniform(1.5, 3) * SESSION_S)
        node.resume()
        _wait_nodes(play)


def node_partition(play: Performance, random: Random) -> None:
    """A leader cannot reach any other node, while clients reach it; it finds itself in a minority, and pauses."""
    node = _leader(play, random)
    with play.trouble("node-partition"):
        node.cut_off()
        play.sleep(random.uniform(1, 2.5) * SESSION_S)
        node.mend()
        _wait_nodes(play)


# -- a Redis with replicas and Sentinels -------------------------------------------------------------------------------


def master_kill(play: Performance, random: Random) -> None:
    """Kill -9 of the master; a replica, which may lack the last writes, takes over, and it comes back as a replica."""
    watched, master = _master(play)
    with play.trouble("master-kill"):
        play.stage.look()
        master.kill()
        play.wait_until(lambda: watched.present_master() is not master, "the Sentinels have a new master")
        play.sleep(random.uniform(0, 1) * SESSION_S)
        master.start()
        play.wait_until(watched.is_whole, "everybody follows the new master")


def master_freeze(play: Performance, random: Random) -> None:
    """SIGSTOP of the master until another one is appointed: it wakes up believing that it is still the master."""
    watched, master = _master(play)
    with play.trouble("master-freeze"):
        play.stage.look()
        master.pause()
        play.wait_until(lambda: watched.present_master() is not master, "the Sentinels have a new master")
        play.sleep(random.uniform(0, 1) * SESSION_S)
        master.resume()
        play.wait_until(watched.is_whole, "everybody follows the new master")


def split_brain(play: Performance, random: Random) -> None:
    """The master is cut off from replicas and Sentinels, which appoint another one, while members still reach it."""
    watched, master = _master(play)
    with play.trouble("split-brain"):
        play.stage.look()
        master.wire.black_hole()
        play.sleep(random.uniform(0, 3) * SESSION_S + DOWN_AFTER_MS / 1000)
        play.wait_until(lambda: watched.present_master() is not master, "the Sentinels have a new master")
        master.wire.heal()
        play.wait_until(watched.is_whole, "everybody follows the new master")


# -- a Redis Cluster ---------------------------------------------------------------------------------------------------


def slot_kill(play: Performance, random: Random) -> None:
    """Kill -9 of the node in charge of the group; its replica takes over."""
    cluster, master = _in_charge(play)
    with play.trouble("slot-kill"):
        play.stage.look()
        master.kill()
        play.wait_until(lambda: _in_charge(play)[1] is not master, "another node is in charge")
        play.sleep(random.uniform(0, 1) * SESSION_S)
        master.start()
        play.wait_until(cluster.is_whole, "the cluster is whole again")


def slot_freeze(play: Performance, random: Random) -> None:
    """SIGSTOP of the node in charge until its replica has taken over."""
    cluster, master = _in_charge(play)
    with play.trouble("slot-freeze"):
        play.stage.look()
        master.pause()
        play.wait_until(lambda: _in_charge(play)[1] is not master, "another node is in charge")
        play.sleep(random.uniform(0, 1) * SESSION_S)
        master.resume()
        play.wait_until(cluster.is_whole, "the cluster is whole again")


def slot_move(play: Performance, random: Random) -> None:
    """The group's slot moves to another node, a key at a time."""
    cluster, source = _in_charge(play)
    target = random.choice([it for it in cluster.masters() if it is not source])
    with play.trouble("slot-move"):
        cluster.move_slot(_slot(play), source.port, target.port, pause_s=KEY_PAUSE_S)
        play.wait_until(cluster.is_whole, "the cluster is whole again")


FAULTS: dict[Servers, dict[str, Fault]] = {
    "alone": {
        "redis-empty": redis_empty,
        "redis-stale": redis_stale,
        "redis-pause": redis_pause,
        "rabbitmq-restart": rabbitmq_restart,
    },
    "rabbitmq-cluster": {
        "node-kill": node_kill,
        "node-restart": node_restart,
        "node-freeze": node_freeze,
        "node-partition": node_partition,
    },
    "redis-sentinel": {"master-kill": master_kill, "master-freeze": master_freeze, "split-brain": split_brain},
    "redis-cluster": {"slot-kill": slot_kill, "slot-freeze": slot_freeze, "slot-move": slot_move},
}


def _the(kind: type[T], found: object) -> T:
    assert isinstance(found, kind)
    return found


def _redis(play: Performance) -> servers.OwnRedis:
    server = _the(Alone, play.stage.redis).server
    assert isinstance(server, servers.OwnRedis)
    return server


def _nodes(play: Performance) -> RabbitMQCluster:
    return _the(RabbitMQCluster, play.stage.rabbitmq)


def _leader(play: Performance, random: Random) -> Node:
    return _nodes(play).leader_of(random.choice(play.stage.topic.queue_names))


def _wait_nodes(play: Performance) -> None:
    play.wait_until(_nodes(play).is_whole, "all nodes serve")
    play.wait_until(play.stage.has_topic, "RabbitMQ has all its queues again")


def _master(play: Performance) -> tuple[Watched, Wired]:
    watched = _the(Watched, play.stage.redis)
    return watched, watched.present_master()


def _in_charge(play: Performance) -> tuple[Cluster, PrivateRedis]:
    cluster = _the(Cluster, play.stage.redis)
    return cluster, cluster.master_of(_key(play))


def _slot(play: Performance) -> int:
    return int(key_slot(_key(play).encode()))


def _key(play: Performance) -> str:
    return journal_key(play.stage.coordinator.group)
