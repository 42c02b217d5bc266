"""Counts how many of a sample of small mistakes the tests without Java and brokers notice: ``python -m tests.mutants``.

A mistake (a mutant) is one change in a function of `ROOMS`: another comparison, `and` for `or`, another number, a call
or a value that is left out. The tests run once under coverage, which tells who runs each line; each mutant is then put
into a copy of the checkout, where the tests of its line run until one fails. Mutants that nobody noticed are printed:
each is a fact that no test shows, or a change without an effect. The seed and the code determine the sample. Rooms and
tests may be named: ``python -m tests.mutants --count 60 spark_eos/protocol --tests tests/unit/protocol``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from coverage import CoverageData

from tests.cells import ROOT

ROOMS = (
    *("spark_eos/protocol", "spark_eos/sink", "spark_eos/source", "spark_eos/ledger", "spark_eos/kafka"),
    *("spark_eos/pipelines/copy", "spark_eos/pipelines/tables"),
)
#: What needs neither Java nor a broker.
TESTS = ("tests/unit", "tests/contract", "tests/simulation", "tests/wire")
_TESTS_OF_A_LINE = 150
_TIME_LIMIT_S = 180
_MEMORY = 8 << 30
#: So few that a mutant of a line that each schedule runs takes seconds.
_SCHEDULES = {"SPARK_EOS_SIMULATION_SCHEDULES": "40", "SPARK_EOS_WIRE_SCHEDULES": "10"}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[], ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}


@dataclass(frozen=True)
class Mutant:
    """A change of one file: the text of the changed module, and the line that it is in."""

    path: str
    line: int
    change: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code, 0; the last line that is printed has the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--coverage", type=Path, help="measured earlier, and kept here, so that the tests need not run")
    parser.add_argument("rooms", nargs="*", default=ROOMS)
    parser.add_argument("--tests", nargs="+", default=TESTS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="spark-eos-mutants-") as folder:
        measured = options.coverage or Path(folder) / "coverage"
        if not measured.exists():
            measure(measured, options.rooms, options.tests)
        tests = CoverageData(str(measured))
        tests.read()
        chosen = sample(options.rooms, options.count, options.seed)
        copies: Queue[Path] = Queue()
        for number in range(os.cpu_count() or 1):
            copies.put(copy_of_checkout(Path(folder) / str(number)))
        with ThreadPoolExecutor(copies.qsize()) as pool:
            verdicts = list(pool.map(lambda mutant: verdict(mutant, copies, tests_of(tests, mutant)), chosen))
    for mutant, seen in zip(chosen, verdicts, strict=True):
        if seen != "noticed":
            print(f"{seen}: {mutant}")
    print(json.dumps({seen: verdicts.count(seen) for seen in sorted(set(verdicts))}))
    return 0


def measure(target: Path, rooms: Sequence[str], tests: Sequence[str]) -> None:
    """Run the tests once, and write who runs each line of the rooms."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not chaos", "-n", "3", "--dist", "worksteal", *tests]
    command += [*(f"--cov={room}" for room in rooms), "--cov-context=test", "--cov-report=", "--cov-fail-under=0"]
    subprocess.run(command, cwd=ROOT, env=os.environ | _SCHEDULES | {"COVERAGE_FILE": str(target)}, check=True)


def copy_of_checkout(target: Path) -> Path:
    """A copy of the files that git tracks."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target / name)
    return target


def sample(rooms: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """So many of all mutants of these rooms, in an order that the seed determines."""
    files = sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))
    candidates = [(path, number) for path in files for number, _ in enumerate(changes(ast.parse(path.read_text())))]
    return [mutant(*chosen) for chosen in random.Random(seed).sample(candidates, min(count, len(candidates)))]


def mutant(path: Path, number: int) -> Mutant:
    """Make the mutant with this number among those of a file."""
    tree = ast.parse(path.read_text())
    line, change, apply = next(found for at, found in enumerate(changes(tree)) if at == number)
    apply()
    return Mutant(str(path.relative_to(ROOT)), line, change, ast.unparse(ast.fix_missing_locations(tree)))


def changes(tree: ast.Module) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """Yield the line, the text and the making of each change in a function of a module."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    nested = {id(node) for function in functions for node in ast.walk(function) if node is not function}
    for function in functions:
        if id(function) not in nested:
            for statement in function.body:
                for node in ast.walk(statement):
                    for change, apply in changes_of(node):
                        yield node.lineno, change, apply


def changes_of(node: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the text and the making of each change of one node of a syntax tree."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        other = _COMPARISONS[type(node.ops[0])]()
        yield f"{ast.unparse(node)}: {type(other).__name__}", lambda: node.ops.__setitem__(0, other)
    elif isinstance(node, ast.BoolOp):
        connective = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{ast.unparse(node)}: {type(connective).__name__}", lambda: setattr(node, "op", connective)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        operation = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield f"{ast.unparse(node)}: {type(operation).__name__}", lambda: setattr(node, "op", operation)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield f"{node.value}: {value}", lambda: setattr(node, "value", value)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield f"without {ast.unparse(node)}", lambda: setattr(node, "value", ast.Constant(None))
    elif isinstance(node, ast.If):
        yield f"if not {ast.unparse(node.test)}", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield f"return None for {ast.unparse(node.value)}", lambda: setattr(node, "value", ast.Constant(None))


def tests_of(measured: CoverageData, mutant: Mutant) -> list[str]:
    """Return the test functions that run a mutant's line, in an order of chance."""
    contexts = measured.contexts_by_lineno(str(ROOT / mutant.path)).get(mutant.line, [])
    names = sorted({context.split("|")[0].split("[")[0] for context in contexts if context})
    random.Random(str(mutant)).shuffle(names)
    return names[:_TESTS_OF_A_LINE]


def verdict(mutant: Mutant, copies: Queue[Path], tests: Sequence[str]) -> str:
    """Run the tests of a mutant in one of the copies: noticed, not noticed, or run by no test."""
    if not tests:
        return "not run"
    copy = copies.get()
    target = copy / mutant.path
    original = target.read_text()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not chaos", "-p", "no:cacheprovider", "-n0", *tests]
    environment = os.environ | _SCHEDULES | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    target.write_text(mutant.text)
    tests_run = subprocess.Popen(
        ["prlimit", f"--as={_MEMORY}", *command],
        **{"cwd": copy, "env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL},
        start_new_session=True,
    )
    try:
        return "noticed" if tests_run.wait(_TIME_LIMIT_S) else "not noticed"
    except subprocess.TimeoutExpired:
        return "noticed"  # it hangs, as its tests take seconds
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(tests_run.pid, signal.SIGKILL)
        tests_run.wait()
        target.write_text(original)
        copies.put(copy)


if __name__ == "__main__":
    sys.exit(main())
