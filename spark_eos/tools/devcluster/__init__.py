"""A real Apache Kafka for demos and tests: jars resolved once, KRaft, 1..n brokers on loopback ports.

::

    from spark_eos.tools.devcluster import DevCluster

    with DevCluster() as cluster:
        ...  # cluster.bootstrap_servers
"""

from spark_eos.tools.devcluster.broker import Broker
from spark_eos.tools.devcluster.cluster import DevCluster
from spark_eos.tools.devcluster.tools import ConsoleRecord

__all__ = ["Broker", "ConsoleRecord", "DevCluster"]
