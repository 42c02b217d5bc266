"""The commit protocol, without I/O.

``names``: transactional ids · ``head``: what the ledger holds · ``ports``: what the steps need from outside ·
``verdicts``: what became of a transaction · ``run``: open · ``task``: what a task has to do · ``batch``: commit,
abort.
"""
