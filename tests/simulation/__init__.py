"""The protocol in a simulated world.

``world``: time and actors · ``faults``: what may strike them · ``coordinator``, ``partition_log``, ``codes``: the
brokers, with ``leaders``, ``end_txn`` and ``implicit`` · ``client``: a producer · ``ledger``, ``ledger_log``: the
protocol's ports over these · ``spark``, ``checkpoint``, ``driver``, ``stage``, ``task``, ``processes``: the
query's starts, stages, tasks and the Python processes that they run in · ``topics``, ``operator``: who does what to
topics and to transactions · ``invariants``: what must hold · ``neighbours``: several queries · ``scenes``: what is
known to be hard · ``schedule``: schedules, drawn · ``machine``: run and shrunk, by the thousand in ``__main__``.
"""
