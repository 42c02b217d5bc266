"""Flame graphs: stacks that were sampled, as a picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

#: Frames from the outermost to the innermost.
Stack = tuple[str, ...]

_WIDTH, _ROW = 16.0, 0.19
_DEEPEST = 48
#: Frames below this share of all samples are left out, and have no text below the other.
_LEAST, _LEAST_TEXT = 0.002, 0.02
_COLOURS = (
    (re.compile(r"spark_eos|sink/|source/|kafka/|copy/"), "#e4572e"),
    (re.compile(r"arrow|pyarrow|Arrow", re.I), "#f3a712"),
    (re.compile(r"numpy|crc32|lz4|zlib", re.I), "#a8c686"),
    (re.compile(r"pyspark|serializers|worker\.py|daemon\.py"), "#669bbc"),
)
_OTHER = "#d8d8d8"
#: Innermost frames of a thread that waits, though the system may call it busy.
_WAITS = re.compile(r"^(poll|epoll_wait|accept4?|pthread_cond_\w+|PyThread_acquire_lock\w*|sem_\w+|select)\b")
_WAITS_FOR_WORK = re.compile(r"^(read_int|worker|manager|_serve) ")


def draw_flames(stacks: Mapping[Stack, int], title: str, file: Path) -> None:
    """Width: share of the samples. Frames stand on those that called them. A PNG; needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import PatchCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    total = sum(stacks.values())
    boxes = [box for box in _boxes(stacks, total) if box[1] < _DEEPEST]
    height = 1 + max((depth for _, depth, _, _ in boxes), default=0)
    figure = Figure(figsize=(_WIDTH, _ROW * height + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shapes = [Rectangle((at, depth), width, 0.94) for at, depth, width, _ in boxes]
    axes.add_collection(PatchCollection(shapes, facecolors=[_colour(name) for *_, name in boxes]))
    for at, depth, width, name in boxes:
        if width >= _LEAST_TEXT:
            letters = int(width * _WIDTH * 15)
            text = name[:letters].replace("$", r"\$")  # which begins a formula else
            axes.text(at + 0.001, depth + 0.45, text, fontsize=6, va="center", clip_on=True)
    axes.set(xlim=(0, 1), ylim=(0, height), yticks=[], xlabel="share of samples", title=f"{title} ({total:,} samples)")
    figure.savefig(file, dpi=110)


def _boxes(stacks: Mapping[Stack, int], total: int) -> list[tuple[float, int, float, str]]:
    """(left edge, depth, width, frame) of every frame that is wide enough; the same callers lie together."""
    boxes: list[tuple[float, int, float, str]] = []

    def place(level: Mapping[Stack, int], depth: int, at: float) -> None:
        below: dict[str, Counter[Stack]] = {}
        for stack, count in level.items():
            if stack:
                below.setdefault(stack[0], Counter())[stack[1:]] += count
        for name, rest in sorted(below.items(), key=lambda item: -item[1].total()):
            width = rest.total() / total
            if width >= _LEAST:
                boxes.append((at, depth, width, name))
                place(rest, depth + 1, at)
            at += width

    place(stacks, 0, 0.0)
    return boxes


def _colour(name: str) -> str:
    return next((colour for pattern, colour in _COLOURS if pattern.search(name)), _OTHER)


def from_py_spy(texts: Iterable[str]) -> Counter[Stack]:
    """Files of ``py-spy record --format raw``: frames, semicolons between them, and a count in each line."""
    stacks: Counter[Stack] = Counter()
    for text in texts:
        for line in text.splitlines():
            frames, _, count = line.rpartition(" ")
            kept = [_python_frame(frame) for frame in frames.split(";") if not frame.startswith("process ")]
            stack = _from_work_on(tuple(filter(None, kept)))
            if stack and not _waits(stack):
                stacks[stack] += int(count)
    return stacks


def _waits(stack: Stack) -> bool:
    """For an answer, or for the JVM to give it work."""
    asks = stack[-1].startswith(("read ", "recv ")) and any(_WAITS_FOR_WORK.match(frame) for frame in stack[-8:])
    return asks or _WAITS.match(stack[-1]) is not None


def _python_frame(frame: str) -> str:
    """Without the line's number and the way to the file; nothing for code without a name."""
    if frame.startswith("0x"):
        return ""
    name, bracket, place = frame.partition(" (")
    file = re.search(r"(spark_eos/[^:)]*|[^/:)]*)(:\d+)?\)$", place)
    return f"{name} ({file[1]})" if bracket and file else name


def _from_work_on(stack: Stack) -> Stack:
    """Without how a worker process came about, which is the same in all of them."""
    for i, frame in enumerate(stack):
        if frame.startswith(("main.<locals>.process", "Thread.run")):
            return stack[i:]
    return stack


def from_jfr(text: str) -> Counter[Stack]:
    """What ``jfr print --stack-depth 64 --events jdk.ExecutionSample`` prints: Java code that ran, by thread."""
    stacks: Counter[Stack] = Counter()
    for event in re.split(r"^jdk\.\w+ \{$", text, flags=re.M)[1:]:
        thread = re.search(r'sampledThread = "([^"]*)"', event)
        trace = re.search(r"stackTrace = \[\n(.*?)\n\s*\]", event, flags=re.S)
        if thread is None or trace is None:
            continue
        kind = re.sub(r"[\d.:#/-]+.*", "", thread[1]).strip() or thread[1]
        frames = [re.sub(r"\(.*|line:.*", "", line).strip() for line in trace[1].splitlines()]
        stacks[(kind, *(_java_frame(frame) for frame in reversed(frames) if frame and frame != "..."))] += 1
    return stacks


def _java_frame(frame: str) -> str:
    """``o.a.s.sql.Some.method`` of the whole name."""
    *packages, owner, method = frame.split(".") if frame.count(".") else ("", frame)
    return ".".join([*(p[:1] if i < 3 else p for i, p in enumerate(packages)), owner, method])
