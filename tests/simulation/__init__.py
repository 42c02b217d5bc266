"""The protocol in a simulated world.

``world``: time, actors, faults · ``coordinator``: Kafka's transaction coordinator and partition logs · ``client``: a
producer · ``ledger``: the protocol's ports over these · ``spark``: drivers, stages, tasks · ``invariants``: what must
hold · ``machine``: schedules, drawn, run and shrunk.
"""
