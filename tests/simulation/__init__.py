"""The protocol in a simulated world.

``world``: time and actors · ``faults``: what may strike them · ``coordinator``, ``partition_log``, ``codes``: the
brokers · ``client``: a producer · ``ledger``: the protocol's ports over these · ``spark``: drivers, stages, tasks ·
``invariants``: what must hold · ``machine``: schedules, drawn, run and shrunk.
"""
