"""``spark-eos replay``: lets a query begin again where it was before, on purpose."""
