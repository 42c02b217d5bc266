"""A real Apache Kafka on this machine, as a context manager.

::

    with DevCluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=4)
        print(cluster.bootstrap_servers)

Every broker is a controller, too (KRaft, combined mode), and listens on 127.0.0.1 only.
"""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from spark_eos.errors import DevClusterError, stop
from spark_eos.tools.devcluster import tools
from spark_eos.tools.devcluster.broker import Broker
from spark_eos.tools.devcluster.jars import KAFKA_VERSION, tools_version
from spark_eos.tools.devcluster.ports import check_free, free_ports, is_free
from spark_eos.tools.devcluster.runtime import JVM_FLAGS, LOG_LEVEL, Runtime, kafka_runtime, with_class_archive
from spark_eos.tools.devcluster.settings import Listener, broker_settings, check, properties
from spark_eos.tools.devcluster.storage import (
    format_storage,
    formatted_files,
    lock_folder,
    new_id,
    unusable,
    write_whole,
)
from spark_eos.tools.devcluster.tools import HANG_S, ConsoleRecord
from spark_eos.tools.devcluster.topics import create_topic

#: To stop one broker in good order, and all of them at once.
STOP_S, CLOSE_S = 60.0, 20.0
_PORT_ATTEMPTS = 5


class DevCluster:
    """Kafka brokers on this machine, numbered from 0: up on entry and gone on exit, or when this process dies.

    `version`: of Apache Kafka, from 3.7 on. `data_dir`: a folder for data that stays; a later cluster on it has the
    same id, data and, where they are free, ports. `port`: broker i listens on port + i; picked when not given.
    `config`: broker settings, in whose values ``{broker}`` is a broker's number. `features`: feature levels to format
    the storage with, such as {"transaction.version": 1}. `jvm_flags`: of the brokers' JVMs. `proxies`: for each broker
    the loopback port of a proxy to it, to which a second listener, on `broker(i).proxied_port`, sends the clients that
    bootstrap there. `listeners`: more, by name, with their security protocols, such as {"SECURE": "SASL_SSL"}; their
    settings, such as `listener.name.secure.ssl.keystore.location`, are in `config`.

    Starting it raises DevClusterError (EOS_JAVA_NOT_FOUND, EOS_DEVCLUSTER_DOWNLOAD, EOS_DEVCLUSTER_CONFIG,
    EOS_DEVCLUSTER_FAILED).
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        version: str = KAFKA_VERSION,
        data_dir: str | Path | None = None,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        jvm_flags: Sequence[str] = JVM_FLAGS,
        proxies: Sequence[int] = (),
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster needs a broker, not {brokers}")
        if proxies and len(proxies) != brokers:
            raise ValueError(f"{brokers} brokers need {brokers} proxies, not {len(proxies)}")
        self.size = brokers
        self.version = version
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._port = port
        self._config = dict(config or {})
        self._features = dict(features or {})
        self._jvm_flags = tuple(jvm_flags)
        self._proxies = tuple(proxies)
        self._listeners = dict(listeners or {})
        self._brokers: list[Broker] = []
        self._on_close = contextlib.ExitStack()
        check(self._config)

    # The whole cluster

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Brings the cluster up, for where a `with` cannot be, as in a notebook; `close` ends it."""
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.close)
            try:
                self._runtime = self._runtime_of(self.version)
                self._folder = self._open_folder()
                self._state = self._read_state()
                self._start_on_free_ports()
            except OSError as error:
                raise unusable(error) from error
            on_error.pop_all()
        return self

    def close(self) -> None:
        """Ends every broker, in good order where the data stays. Safe to call again."""
        deadline = time.monotonic() + CLOSE_S
        if self._data_dir is not None:
            # All at once: one that stops after the others would wait for them.
            for broker in self._brokers:
                broker.send(signal.SIGCONT)
                broker.send(signal.SIGTERM)
            for broker in self._brokers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    broker.wait(max(0.0, deadline - time.monotonic()))
        for broker in self._brokers:
            broker.kill()
        self._on_close.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_server for broker in self._brokers)

    def servers(self, listener: str) -> str:
        """Return the bootstrap servers of this listener."""
        return ",".join(f"127.0.0.1:{broker.ports[listener]}" for broker in self._brokers)

    @property
    def cluster_id(self) -> str:
        return str(self._state["cluster_id"])

    def join(self) -> Broker:
        """Returns when a broker's process has ended by itself: that broker."""
        ended, _, _ = select.select([broker.lifeline for broker in self._brokers], [], [])
        return next(broker for broker in self._brokers if broker.lifeline in ended)

    # One broker

    def broker(self, i: int) -> Broker:
        """Return broker i, from 0; its node id is i, too."""
        return self._brokers[i]

    def kill(self, i: int) -> None:
        """Send SIGKILL; returns when the process is gone."""
        self._brokers[i].kill()

    def stop(self, i: int, timeout_s: float = STOP_S) -> None:
        """Send SIGTERM, and SIGKILL after `timeout_s` seconds; returns when the process is gone."""
        self._brokers[i].terminate(timeout_s)

    def pause(self, i: int) -> None:
        """Send SIGSTOP: the broker freezes; its connections stay open without answers."""
        self._brokers[i].send(signal.SIGSTOP)

    def resume(self, i: int) -> None:
        """Send SIGCONT. Does not wait: a broker that slept long first has to register again, see `wait_ready`."""
        self._brokers[i].send(signal.SIGCONT)

    def start(self, i: int, *, wait: bool = True) -> None:
        """Starts broker i again, on the same port and data; with `wait`, returns when all running brokers know it."""
        if not self._brokers[i].running:
            self._brokers[i].launch()
        if wait:
            self.wait_ready()

    def replace(self, i: int, version: str) -> None:
        """Stops broker i and starts it as another version of Kafka, on the same port and data; returns as `start`."""
        runtime = self._runtime_of(version)
        self.stop(i)
        self._brokers[i].command = self._command(i, runtime)
        self.version = version  # of the tools, which newer brokers need
        self.start(i)

    def wait_ready(self) -> None:
        """Returns when each running broker answers and knows all the running ones; paused ones do not count.

        Raises DevClusterError EOS_DEVCLUSTER_FAILED, with the end of the log, when one exits or after 4 minutes.
        """
        watched = self._awake()
        expected = {broker.id for broker in watched}

        def ready(broker: Broker) -> bool:
            for other in watched:
                if not other.running:
                    raise other.trouble("has ended")
            answer = broker.ask()
            # Another process that got hold of the port is another cluster.
            return answer is not None and answer.cluster_id == self.cluster_id and expected <= answer.brokers

        for broker in watched:
            if not _poll(partial(ready, broker)):
                raise broker.trouble(f"was not ready within {HANG_S:.0f} s")

    def _awake(self) -> list[Broker]:
        return [broker for broker in self._brokers if broker.running and not broker.paused]

    # Topics and records

    def create_topic(self, name: str, partitions: int = 1, *, replication: int | None = None, **config: object) -> None:
        """Creates a topic; returns when every running broker knows a leader for every partition.

        `replication`: 3, or the number of brokers when there are fewer, unless given. `config`: topic settings, with
        underscores or dots: cleanup_policy="compact". Raises confluent_kafka.KafkaException as the broker refuses.
        """
        create_topic(self.bootstrap_servers, name, partitions, replication=replication or min(3, self.size), **config)
        self.wait_for_leaders(name, partitions)

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        """Returns when each running broker knows all leaders; EOS_DEVCLUSTER_FAILED after 4 minutes."""

        def led(broker: Broker) -> bool:
            answer = broker.ask(topic)
            return answer is not None and len(answer.leaders) == partitions and min(answer.leaders.values()) >= 0

        for broker in self._awake():
            if not _poll(partial(led, broker)):
                raise broker.trouble(f"knows no leader for every partition of {topic} after {HANG_S:.0f} s")

    def java_tool(self, main_class: str, *arguments: str, timeout_s: float = HANG_S) -> str:
        """Runs a Java program from the broker's jars, such as org.apache.kafka.tools.TopicCommand; returns its stdout.

        It may take `timeout_s` seconds. Raises DevClusterError when it fails.
        """
        runtime = kafka_runtime(tools_version(self.version))
        command = runtime.command(main_class, *arguments, flags=[*JVM_FLAGS, f"-D{LOG_LEVEL}=WARN"])
        return tools.run(command, main_class, timeout_s=timeout_s)

    def console_consume(self, topic: str, *, max_messages: int, partition: int | None = None) -> list[ConsoleRecord]:
        """Return the first `max_messages` committed records that the Java console consumer reads, in offset order
        within each partition. Fewer after 4 minutes without one."""
        version = tools_version(self.version)
        arguments = tools.console_consumer_arguments(
            self.bootstrap_servers, topic, version=version, partition=partition, count=max_messages
        )
        main_class = tools.console_consumer(version)
        return tools.parse_records(self.java_tool(main_class, *arguments, timeout_s=2 * HANG_S))

    # Coming up

    def _runtime_of(self, version: str) -> Runtime:
        runtime = kafka_runtime(version)
        own_archive = any("Archive" in flag for flag in self._jvm_flags)
        return runtime if own_archive else with_class_archive(runtime, partial(_train, version))

    def _command(self, i: int, runtime: Runtime) -> list[str]:
        server_properties = self._folder / f"broker-{i}" / "server.properties"
        return runtime.command("kafka.Kafka", str(server_properties), flags=self._jvm_flags)

    def _open_folder(self) -> Path:
        """Return the folder of the data, ours alone until the end."""
        if self._data_dir is None:
            folder = Path(tempfile.mkdtemp(prefix="spark-eos-devcluster-"))
            self._on_close.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder
        self._data_dir.mkdir(parents=True, exist_ok=True)
        lock_folder(self._on_close.enter_context((self._data_dir / ".lock").open("w")), self._data_dir)
        return self._data_dir.resolve()

    def _start_on_free_ports(self) -> None:
        """Start on free ports. Another process may take a port before a broker listens on it; then others are
        picked."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._prepare()
            try:
                for broker in self._brokers:
                    broker.launch()
                self.wait_ready()
                return
            except DevClusterError:
                taken = any("Address already in use" in broker.log_tail(200) for broker in self._brokers)
                for broker in self._brokers:
                    broker.kill()
                if not taken or self._port is not None or attempt == _PORT_ATTEMPTS:
                    raise

    def _prepare(self) -> None:
        """Writes each broker's settings and formats its storage, where that is still to be done."""
        ports, controller_ports, others = self._pick_ports(self._state["ports"])
        if self._data_dir is not None:
            write_whole(self._folder / "cluster.json", json.dumps(self._state | {"ports": ports}))
        files = formatted_files(self._runtime, self._config, self._features)
        self._brokers = []
        for i in range(self.size):
            home = self._folder / f"broker-{i}"
            home.mkdir(exist_ok=True)
            broker = Broker(i, ports[i], home, self._command(i, self._runtime), keep_home=self._data_dir is not None)
            server_properties = home / "server.properties"
            listeners = self._listeners_of(i, others)
            settings = broker_settings(i, ports, controller_ports, broker.data, listeners)
            settings |= {key: value.replace("{broker}", str(i)) for key, value in self._config.items()}
            server_properties.write_text(properties(settings))
            broker.ports = {name: listener.port for name, listener in listeners.items()}
            self._brokers.append(broker)
            format_storage(broker.data, files, cluster_id=self.cluster_id, node_id=i)

    def _listeners_of(self, i: int, ports: list[int]) -> dict[str, Listener]:
        """Return the other listeners of broker i, which take their ports from the list."""
        listeners = {}
        if self._proxies:
            listeners["PROXIED"] = Listener("PLAINTEXT", ports.pop(), self._proxies[i])
        for name, protocol in self._listeners.items():
            port = ports.pop()
            listeners[name] = Listener(protocol, port, port)
        return listeners

    def _read_state(self) -> dict[str, Any]:
        """Return the content of cluster.json, which stays between runs: sizes, features, and the ports of the last
        run."""
        asked = {"brokers": self.size, "features": self._features}
        file = self._folder / "cluster.json"
        if not file.exists():
            return asked | {"cluster_id": new_id(), "ports": []}
        state = _parsed(file)
        for setting, wanted in asked.items():
            if state[setting] != wanted:
                why = f"{self._folder}: its cluster was created with {setting}={state[setting]}, not {wanted}"
                raise stop("EOS_DEVCLUSTER_CONFIG.folder", data_dir=str(self._folder), why=why)
        return state

    def _pick_ports(self, last: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Return ports of the brokers (those of the last run, if free), of the controllers, and of all other
        listeners."""
        picked = free_ports((4 + len(self._listeners)) * self.size)
        if self._port is not None:
            ports = [self._port + i for i in range(self.size)]
            for port in ports:
                check_free(port)
        else:
            ports = last if last and all(map(is_free, last)) else picked[: self.size]
        others = [port for port in picked if port not in ports]
        return ports, others[: self.size], others[self.size :]


def _parsed(file: Path) -> dict[str, Any]:
    """Return the content of cluster.json. Raises DevClusterError where the file is damaged."""
    try:
        state: dict[str, Any] = json.loads(file.read_text())
        kinds = {"cluster_id": str, "brokers": int, "features": dict, "ports": list}
        whole = all(isinstance(state[name], kind) for name, kind in kinds.items())
        whole = whole and len(state["ports"]) in (0, state["brokers"])
        whole = whole and all(isinstance(port, int) and 0 < port < 65_536 for port in state["ports"])
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise stop("EOS_DEVCLUSTER_CONFIG.damaged", file=file)
    return state


def _train(version: str, class_archive: Path) -> None:
    """Runs a broker through its usual work, for an archive of the classes that this takes."""
    from confluent_kafka import Consumer, Producer

    print(f"spark-eos: preparing Kafka {version} for faster starts, once …", file=sys.stderr, flush=True)
    with DevCluster(version=version, jvm_flags=[*JVM_FLAGS, f"-XX:ArchiveClassesAtExit={class_archive}"]) as cluster:
        cluster.create_topic("training")
        client = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        producer = Producer(client | {"transactional.id": "training"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("training", "value")
        producer.commit_transaction()
        consumer = Consumer(client | {"group.id": "training", "auto.offset.reset": "earliest"})
        consumer.subscribe(["training"])
        consumer.consume(timeout=10)
        consumer.close()
        cluster.stop(0, timeout_s=HANG_S)


def _poll(condition: Callable[[], bool]) -> bool:
    """Wait for a condition; False if it did not hold within `HANG_S` seconds."""
    deadline = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
