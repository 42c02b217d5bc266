"""``spark-eos query`` and ``spark-eos recover``: how a query is, by its checkpoint and the cluster; and doing what its
next start would do first, without Spark.
"""
