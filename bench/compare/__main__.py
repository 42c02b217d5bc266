"""``python -m bench.compare``, or ``make compare``: several systems under the same faults, judged by one reader.

Each cell is a system, a fault and a seed. Those that stand in the file of results are not run again, so a run that was
stopped goes on; ``--again`` runs what is chosen anew. ``--only copy/zombie/1`` chooses by system, fault and seed, of
which each may be left out: ``--only flink``, ``--only /kill``. The results make docs/compare.md and its
picture. Where the first runs differ, there are ten.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

from confluent_kafka import KafkaException

from bench.arguments import count
from bench.compare.cell import BROKERS, SETTINGS, Cell, run
from bench.compare.contenders import CONTENDERS, Contender
from bench.compare.faults import FAULTS, Fault
from bench.compare.judge import NoResult
from bench.compare.page import OF_CHANCE, SEEDS, cells_of, depends_on_chance, page
from bench.compare.picture import draw
from jobs.runner.session import ROOT
from spark_eos.tools.devcluster import DevCluster

RESULTS = ROOT / "docs" / "compare.json"
#: How soon a killed broker is taken for dead. Whatever the tests have, results of another day stay comparable.
SESSIONS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
PAGE, PICTURE = ROOT / "docs" / "compare.md", ROOT / "docs" / "compare.png"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 where a cell could not be run."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="SYSTEM/FAULT/SEED; may be repeated")
    parser.add_argument(
        "--seeds", type=count, default=SEEDS, help=f"how many of each ({SEEDS}; {OF_CHANCE} where they differ)"
    )
    parser.add_argument("--again", action="store_true", help="run cells that have a result, too")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # else what was started would go on
    results = load()
    failed = 0
    for contender, fault, seed in chosen(options.only, max(options.seeds, OF_CHANCE)):
        if seed > options.seeds and not depends_on_chance(cells_of(results.values(), contender, fault)):
            continue
        name = f"{contender.name}/{fault.name}/{seed}"
        if (contender.name, fault.name, seed) in results and not options.again:
            continue
        print(f"{name} …", flush=True)
        # A cluster of its own: what one contender leaves open or broken is not the next one's.
        with DevCluster(brokers=BROKERS, config=SETTINGS | SESSIONS) as cluster:
            try:
                cell = run(cluster, contender, fault, seed)
            except (TimeoutError, ChildProcessError, NoResult, KafkaException) as error:
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                failed = 1
                continue
        results = load() | {cell.key: cell}  # another run may have added some meanwhile
        save(results)
        show(results)
        print(f"{name}: {told(cell)}", flush=True)
    return failed


def chosen(only: Sequence[str], seeds: int) -> Iterator[tuple[Contender, Fault, int]]:
    """Seed by seed, so that a run that is stopped has something of each."""
    wanted = [[*text.split("/"), "", ""][:3] for text in only] or [["", "", ""]]
    for seed, fault, contender in product(range(1, seeds + 1), FAULTS, CONTENDERS):
        own = (contender.name, fault.name, str(seed))
        if fault.strikes(contender) and any(
            all(part in ("", mine) for part, mine in zip(parts, own, strict=True)) for parts in wanted
        ):
            yield contender, fault, seed


def told(cell: Cell) -> str:
    """In a line."""
    found = cell.verdict
    counts = asdict(found)
    fed = counts.pop("fed")
    numbers = ", ".join(f"{name} {count}" for name, count in counts.items())
    ends = f"; ended by {', '.join(cell.errors)}" if cell.errors else ""
    halted = "; given up" if cell.stopped else "; stood still" if cell.stuck else ""
    return f"{numbers} of {fed}; goes on after {cell.recoveries} s{ends}{halted}"


def show(results: Mapping[tuple[str, str, int], Cell]) -> None:
    """Write the page and the picture."""
    PAGE.write_text(page(results))
    draw([*results.values()], PICTURE)


def load(file: Path = RESULTS) -> dict[tuple[str, str, int], Cell]:
    """The cells that have been run, by their keys."""
    cells = map(Cell.from_json, json.loads(file.read_text()) if file.exists() else ())
    return {cell.key: cell for cell in cells}


def save(results: dict[tuple[str, str, int], Cell], file: Path = RESULTS) -> None:
    """A line for each cell."""
    lines = ",\n".join(json.dumps(results[key].as_json()) for key in sorted(results))
    file.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    sys.exit(main())
