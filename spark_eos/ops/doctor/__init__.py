"""``spark-eos doctor``: do this cluster, these topics and this user meet the exactly-once requirements?

``facts.py`` asks, ``trial.py`` tries; ``topics.py`` and ``cluster.py`` judge, without asking anybody; ``rules.py`` lets
the sink's own checks judge.
"""
