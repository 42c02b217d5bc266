"""The source's decisions in a simulated cluster: no row is lost without a loss that is reported, none is read twice.

``cluster``: topics, their logs and leaders, and what may happen to them · ``admin``: what brokers answer, in place of
`spark_eos.kafka.admin` · ``query``: a query's starts on one checkpoint, by Spark's rules, with the library's own reader
· ``judge``: what must hold · ``schedule``: schedules, drawn · ``play``: run and shrunk · ``mistakes``: what must be
noticed.
"""
