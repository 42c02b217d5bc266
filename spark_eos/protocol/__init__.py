"""The commit protocol, without I/O. Each file imports only from those above it.

``names``: transactional ids · ``head``: what the ledger holds · ``ports``: what the steps need from outside ·
``head_codec``: heads as text · ``status``: what a start does with a head · ``checks``: what stops a run · ``task``:
what a task has to do, and reports · ``replay``: Spark's replay beside the decision · ``take``: the ledger is taken ·
``end``: what becomes of decided transactions · ``abort``: what becomes of the others · ``open``, ``commit``: the steps
of a run and of a micro-batch · ``commands``: what operators' commands do in the ledger.
"""
