"""The checks of a job's function before Spark starts: what is there, what is not, and what cannot be known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jobs.runner.functions import check_function, imported
from jobs.runner.values import Rejected, check_interval, seconds_of
from spark_eos.errors import EosError

MODULE = """
from os import path as imported
if True:
    def guarded(rows): return rows
else:
    other = None
try:
    assigned, (pair, *rest) = 1, (2, 3)
except ImportError as error:
    in_handler = None
with open(__file__) as file:
    def within(rows): return rows
match 1:
    case 1: in_case = 1
class Callable:
    def method(self): local = 1
def plain(rows):
    inside = rows
    return inside
raise RuntimeError("it is read, not imported")
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, environ, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    environ(PYTHONPATH=None)
    (tmp_path / "job_function.py").write_text(MODULE)
    return tmp_path


BOUND = ["imported", "guarded", "other", "assigned", "pair", "rest", "in_handler", "file", "in_case", "within"]


@pytest.mark.parametrize("name", [*BOUND, "Callable", "plain"])
def test_whatever_a_module_binds_is_there(name):
    """Without running the module."""
    check_function(f"job_function:{name}")
    assert "job_function" not in sys.modules


@pytest.mark.parametrize("name", ["plian", "inside", "method", "local", "path"])
def test_a_name_that_the_module_does_not_bind_is_refused(name):
    """Names in functions, classes and imported modules are not the module's own."""
    with pytest.raises(Rejected, match=f"the function {name}, which module 'job_function' does not"):
        check_function(f"job_function:{name}")


@pytest.mark.parametrize(
    "text",
    [
        "from os import *",
        "def __getattr__(name): return print",
        "def f():\n    global anything",
        "globals()['anything'] = print",
    ],
)
def test_a_module_whose_names_cannot_be_known_is_left_to_the_import(modules, text):
    """A star import, names made at run time, or a module without source text, prevent the check from refusing."""
    (modules / "job_star.py").write_text(text)
    check_function("job_star:anything")
    check_function("math:whatever")


def test_a_module_that_is_not_there_is_refused_with_where_it_was_looked_for(modules):
    """The hint has the search path, PYTHONPATH included."""
    with pytest.raises(Rejected, match=r"cannot be imported, 'no_such\.module'") as caught:
        check_function("no_such.module:f")
    assert "PYTHONPATH (which is not set)" in caught.value.hint and str(modules) in caught.value.hint


def test_a_package_that_ends_the_process_when_it_is_imported_is_left_to_the_import(modules):
    """Which names it, as it names every error of the user's code."""
    (modules / "job_package").mkdir()
    (modules / "job_package" / "__init__.py").write_text("import sys\nsys.exit('of the package')\n")
    (modules / "job_package" / "module.py").write_text("def f(rows): return rows\n")
    check_function("job_package.module:f")
    with pytest.raises(EosError, match=r"EOS_CONFIG_FUNCTION.*SystemExit: of the package \(.*__init__.py, line 2\)"):
        imported("job_package.module:f", "transform.function")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"x = 1\ndef f(:\n", "line 2: "),
        (b"# caf\xe9\ndef f(rows): return rows\n", "invalid or missing encoding"),
        (b"# -*- coding: nothing -*-\ndef f(rows): return rows\n", "unknown encoding"),
        (b"# -*- coding: ascii -*-\n# caf\xe9\ndef f(rows): return rows\n", "codec can't decode"),
        (b"def f(rows): return rows\n\0\n", "null bytes"),
    ],
)
def test_a_module_that_is_not_python_is_refused(modules, content, why):
    """By its file and the line, or without a line where nobody can tell it."""
    (modules / "job_encoded.py").write_bytes(content)
    with pytest.raises(Rejected, match=rf"not valid Python: \S+job_encoded.py[:,] .*{why}") as caught:
        check_function("job_encoded:f")
    assert "None" not in str(caught.value)


@pytest.mark.parametrize("name", ["f", ":f", "m:", "a.b.c", "a b:c", "a..b:c", "a:b:c"])
def test_what_is_not_module_and_function_is_refused(name):
    """The text must be of the form module:function."""
    with pytest.raises(Rejected, match="not module:function"):
        check_function(name)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10 seconds", 10), ("INTERVAL 1 minute 30.5 seconds", 90.5), ("2 hours", 7200), ("250 milliseconds", 0.25)],
)
def test_the_length_of_an_interval(text, seconds):
    """All units of a text count."""
    check_interval(text)
    assert seconds_of(text) == seconds
