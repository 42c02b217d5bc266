"""docs/compare.png: a square for each system and fault, with what became of the rows, and when it went on."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.compare.cell import Cell
from bench.compare.contenders import CONTENDERS
from bench.compare.faults import FAULTS
from bench.compare.page import cells_of, goes_on, is_open, rows, square

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Also told apart where red and green are not: the texts say the same.
_CLEAN, _STOPPED, _WRONG, _NOT_RUN = "#bfe3d0", "#f6dfa4", "#f2a58e", "#eeeeee"
#: The most characters of a line in a square.
_LINE = 20
#: Inches.
_SQUARE, _LEFT, _TOP = (1.32, 0.85), 1.5, 0.75


def draw(cells: Sequence[Cell], file: Path) -> None:
    """A PNG. Needs matplotlib (the extra ``bench``)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = _LEFT + _SQUARE[0] * len(FAULTS), _TOP + _SQUARE[1] * len(CONTENDERS)
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    left, top = _LEFT / size[0], _TOP / size[1]
    axes = figure.add_axes((left, 0.01, 0.99 - left, 0.99 - top))
    axes.set_xlim(0, len(FAULTS))
    axes.set_ylim(len(CONTENDERS), 0)
    for y, contender in enumerate(CONTENDERS):
        for x, fault in enumerate(FAULTS):
            own = cells_of(cells, contender, fault)
            told = dict.fromkeys(square(cells, contender, fault, tell) for tell in (rows, goes_on))
            text = "\n".join(map(_folded, told))
            _draw_square(axes, x, y, own, text)
    axes.set_xticks([x + 0.5 for x in range(len(FAULTS))], [_folded(fault.label) for fault in FAULTS], fontsize=8)
    axes.set_yticks([y + 0.5 for y in range(len(CONTENDERS))], [one.label for one in CONTENDERS], fontsize=9)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.savefig(file, dpi=130)


def _draw_square(axes: Axes, x: int, y: int, cells: Sequence[Cell], text: str) -> None:
    from matplotlib.patches import Rectangle

    colour = _NOT_RUN
    if cells and not is_open(cells):
        stopped = any(cell.has_halted or cell.verdict.missing for cell in cells)
        colour = _WRONG if any(cell.verdict.is_wrong for cell in cells) else _STOPPED if stopped else _CLEAN
    axes.add_patch(Rectangle((x + 0.02, y + 0.03), 0.96, 0.94, color=colour))
    axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8)


def _folded(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _LINE))
