"""``spark-eos doctor``: does this cluster, do these topics, does this user keep the promise?

``facts.py`` asks, ``trial.py`` tries; ``topics.py`` and ``cluster.py`` judge, without asking anybody; ``rules.py`` lets
the sink's own checks judge.
"""
