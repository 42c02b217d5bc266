"""``spark-eos doctor``: do this cluster, these topics and this user meet the exactly-once requirements?

`checkup.py` runs all checks; `brokers.py` and `topics.py` judge settings and states that brokers report,
`sink_checks.py` runs the sink's own checks; `findings.py` prints.
"""
