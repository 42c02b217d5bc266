"""The real connections, senders and ports against brokers that answer in bytes, on a clock that nobody waits for.

`world` has clock, sockets' seam and the order of events; `sockets` what our code takes for sockets; `codec` Kafka's
messages, by kio; `partition`, `transactions` and `cluster` the brokers; `faults` what happens to them and between; and
`scenarios` what our code is asked to do, with the judge of each.
"""
