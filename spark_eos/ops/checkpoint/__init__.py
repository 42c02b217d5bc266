"""``spark-eos checkpoint``: what a checkpoint and its heads in the ledger hold; and taking over one of another sink."""
