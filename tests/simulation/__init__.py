"""The protocol in a simulated world.

``world``: time and actors · ``faults``: what may strike them · ``coordinator``, ``partition_log``, ``codes``: the
brokers, with ``leaders`` · ``client``: a producer · ``ledger``, ``ledger_log``: the protocol's ports over these ·
``spark``, ``checkpoint``, ``driver``, ``stage``, ``task``, ``processes``: the query's starts, stages, tasks and the
Python processes that they run in · ``topics``, ``operator``: who does what to topics and to transactions ·
``invariants``: what must hold · ``neighbours``: several queries · ``situations``: what is known to be hard ·
``schedule``: schedules, drawn · ``play``: run, by the thousand in ``__main__`` · ``breaking``: what they break ·
``by_hand``: steps that a test takes one by one, in ``scenarios``.
"""
