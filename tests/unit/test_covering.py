"""The share of the kills that `make chaos` runs has every value of every parameter, whatever the seed."""

from __future__ import annotations

import pytest

from tests.support.runs.case_cover import covering, one_for_every_day, values

CASES = """
import pytest

@pytest.mark.parametrize("a", range(5))
@pytest.mark.parametrize(("b", "c"), [(1, [2]), (1, [3]), (4, [3])])
@pytest.mark.parametrize("d", "xyz")
def test_many(a, b, c, d): ...

def test_one(): ...
"""


@pytest.fixture(scope="module")
def items(tmp_path_factory) -> list[pytest.Item]:
    folder = tmp_path_factory.mktemp("cases")

    class Collected:
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            self.items = session.items

    (folder / "test_cases.py").write_text(CASES)
    collected = Collected()
    options = [
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        "--rootdir",
        str(folder),
        "-c",
        "/dev/null",
    ]
    assert pytest.main([*options, str(folder)], plugins=[collected]) == 0
    return collected.items


@pytest.mark.parametrize("seed", range(5))
def test_every_value_is_there_and_few_cases_are(items, seed):
    """A test without parameters is one of them; the cases keep their order."""
    kept = covering(items, seed)
    many = [item for item in kept if item.name.startswith("test_many")]
    assert set().union(*map(values, kept)) == set().union(*map(values, items))
    assert 5 <= len(many) <= 7 < len(items)
    assert [item.name for item in kept if item not in many] == ["test_one"]
    assert kept == [item for item in items if item in kept]


def test_seeds_take_turns(items):
    """Another seed chooses other cases, and one seed always the same."""
    assert len({tuple(item.name for item in covering(items, seed)) for seed in range(5)}) > 1
    assert covering(items, 7) == covering(items, 7)


def test_one_case_is_for_every_day_and_the_others_are_for_chaos(monkeypatch):
    """Another seed may take another one; none is lost."""
    cases = ["a", ("b", 1), "c"]
    by_chaos = [pytest.param(*case, marks=pytest.mark.chaos) for case in (("a",), ("b", 1), ("c",))]
    taken = set()
    for seed in range(30):
        monkeypatch.setenv("SPARK_EOS_SEED", str(seed))
        made = one_for_every_day("a test", cases)
        (daily,) = (n for n, case in enumerate(made) if case == cases[n])
        assert made == [*by_chaos[:daily], cases[daily], *by_chaos[daily + 1 :]]
        taken.add(daily)
    assert taken == {0, 1, 2}
