"""The commit protocol, without I/O. Each file imports only from files that are named before it.

``names``: transactional ids · ``head``: the ledger's records · ``head_codec``: heads as text · ``status``: a start's
action, by the head · ``checks``: reasons to stop a run · ``extra``: bytes of a feature in a decision · ``ports``:
interfaces to Kafka and the clock · ``task``: a task's work and report · ``replay``: compares Spark's replay with the
decision · ``take``: acquires the ledger · ``verify``: checks that committed rows are visible · ``end``: commits decided
transactions · ``age``: their age before the decision · ``abort``: aborts the others · ``open``, ``commit``: the steps
of a run and of a micro-batch · ``commands``: operators' commands on the ledger.
"""
