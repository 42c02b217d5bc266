"""``spark-eos ledger``: the heads of all queries in a ledger topic."""
