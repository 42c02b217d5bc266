"""What speaks to brokers takes sockets and clocks by the seam alone: else schedules would not be what they say."""

from __future__ import annotations

import re
from pathlib import Path

import spark_eos

ROOT = Path(spark_eos.__file__).parent
PAST_THE_SEAM = re.compile(
    r"\b(time\.(monotonic|sleep|time|clock_gettime)|select\.(poll|select)|socket\.(socket|getaddrinfo|create_connection))\("
)
#: Tokens have their own connections; the others tell people how old a transaction is.
ELSEWHERE = {
    "kafka/config/tokens.py",
    "kafka/admin/open_transactions.py",
    "ledger/owners.py",
}


def test_nothing_of_the_connections_goes_past_the_seam() -> None:
    """Neither a clock, nor a wait, nor a socket."""
    files = [*(ROOT / "kafka").rglob("*.py"), *(ROOT / "ledger").rglob("*.py"), ROOT / "base" / "retry.py"]
    assert len(files) > 30
    past = {str(file.relative_to(ROOT)) for file in files if PAST_THE_SEAM.search(file.read_text())}
    assert past <= ELSEWHERE
