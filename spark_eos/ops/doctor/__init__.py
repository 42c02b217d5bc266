"""``spark-eos doctor``: do this cluster, these topics and this user meet the exactly-once requirements?

`checkup.py` goes through everything; `brokers.py` and `topics.py` judge by what brokers report, `sink_checks.py` by the
sink's own checks; `findings.py` prints.
"""
