"""Three RabbitMQ nodes that form a cluster, on this machine only; all gone afterwards."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager

from cobalance.servers import OwnRabbitMQ
from cobalance.servers.find import find_rabbitmq
from cobalance.servers.ports import HOST
from cobalance.servers.rabbitmq import PrivateRabbitMQ
from cobalance.servers.ready import amqp_answers
from cobalance.servers.unavailable import ServerUnavailable

COOKIE, WRONG_COOKIE = "cobalance", "cut"
PEERS = "rabbit_mnesia:cluster_nodes(all) -- [node()]"

LEADER = """
{ok, Queue} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)),
case amqqueue:get_pid(Queue) of {_, Leader} -> Leader; Pid -> node(Pid) end.
"""
"""The leader of a quorum queue, or of a stream."""

ANSWER_S = 30.0


class Node(PrivateRabbitMQ):
    """One node. All but the first join it as they start; a minority pauses, as is recommended for quorum queues."""

    def __init__(self, first: Node | None = None) -> None:
        program = find_rabbitmq()
        if program is None:
            raise ServerUnavailable("A RabbitMQ cluster needs a rabbitmq-server on this machine, and there is none.")
        self._first = first
        settings = {"cluster_partition_handling": "pause_minority", "queue_leader_locator": "balanced"}
        if first is not None:
            settings["cluster_formation.peer_discovery_backend"] = "classic_config"
            settings["cluster_formation.classic_config.nodes.1"] = first.name
        super().__init__(program, settings=settings)

    @property
    def name(self) -> str:
        """The name by which nodes know each other."""
        return self.environment()["RABBITMQ_NODENAME"]

    @property
    def port(self) -> int:
        """The port for clients."""
        return self.ports.amqp

    def answers(self) -> bool:
        """Whether clients are served; a node in a minority closes its port."""
        return amqp_answers(self.port)

    def cut_off(self) -> None:
        """Cuts all connections between this node and the others; clients are not affected."""
        self.evaluate(f"[begin erlang:set_cookie(N, {WRONG_COOKIE}), erlang:disconnect_node(N) end || N <- {PEERS}].")

    def mend(self) -> None:
        """Lets the nodes connect again."""
        self.evaluate(f"[erlang:set_cookie(N, {COOKIE}) || N <- {PEERS}].")

    def evaluate(self, expression: str) -> str:
        """Evaluates an Erlang expression on this node. `rabbitmqctl eval` takes seconds to start another Erlang."""
        done = subprocess.run(
            ["erl_call", "-address", f"{HOST}:{self.ports.distribution}", "-c", COOKIE, "-e"],
            check=True,
            input=expression + "\n",
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
        )
        if not done.stdout.startswith("{ok, "):
            raise ServerUnavailable(f"{self.name} says: {done.stdout}{done.stderr}")
        return done.stdout.removeprefix("{ok, ").removesuffix("}")

    def environment(self) -> dict[str, str]:
        """One port mapper for all, and no more of two cores than is needed."""
        found = super().environment()
        found["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"] += " +S 1:1 +sbwt none"
        if self._first is not None:
            found["ERL_EPMD_PORT"] = str(self._first.ports.mapper)
        return found

    def _write_files(self) -> None:
        super()._write_files()
        cookie = self.process.folder / ".erlang.cookie"
        cookie.write_text(COOKIE)
        cookie.chmod(0o400)


class RabbitMQCluster:
    def __init__(self, stack: ExitStack) -> None:
        first = stack.enter_context(Node())
        with ThreadPoolExecutor() as threads:
            others = list(threads.map(Node, (first, first)))
        self.nodes = [first, *(stack.enter_context(it) for it in others)]

    @property
    def url(self) -> str:
        """For clients: any of the nodes will do."""
        hosts = ",".join(f"{HOST}:{node.port}" for node in self.nodes)
        return f"amqp://guest:guest@{hosts}/%2F"

    @property
    def ports(self) -> dict[int, int]:
        """The ports that the URL names, which are the real ones."""
        return {node.port: node.port for node in self.nodes}

    def is_whole(self) -> bool:
        """Whether every node serves."""
        return all(node.answers() for node in self.nodes)

    def leader_of(self, queue: str) -> Node:
        """The node that leads a quorum queue or a stream."""
        leader = self.nodes[0].evaluate(LEADER % queue)
        return next(node for node in self.nodes if node.name == leader.strip("'"))


@contextmanager
def rabbitmq_cluster() -> Iterator[RabbitMQCluster]:
    """A cluster for the length of the block."""
    with ExitStack() as stack:
        yield RabbitMQCluster(stack)


class Leader:
    """The process of a queue, or of a quorum queue's leader, inside RabbitMQ."""

    def __init__(self, server: OwnRabbitMQ, queue: str) -> None:
        self._server, self._queue = server, queue

    def silent(self) -> AbstractContextManager[None]:
        """It answers nobody, as while it is busy."""
        return self._meanwhile("sys:suspend(Name)", "sys:resume(Name)")

    def gone(self) -> AbstractContextManager[None]:
        """There is none, as after a crash of its node."""
        return self._meanwhile("ra:stop_server(quorum_queues, It)", "ra:restart_server(quorum_queues, It)")

    @contextmanager
    def _meanwhile(self, begin: str, end: str) -> Iterator[None]:
        self._do(begin)
        try:
            yield
        finally:
            self._do(end)

    def _do(self, what: str) -> None:
        found = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"{self._queue}">>))'
        name = "Name = case It of {Registered, _} -> Registered; _ -> It end"
        self._server.control("eval", f"{found}, It = amqqueue:get_pid(Q), {name}, {what}.")
