"""Rows: what was measured of each subject, what it is compared with, as a table and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]
GATEWAY = "gateway"


@dataclass
class Figure:
    """Of one subject: ``values`` as measured, their median and quartiles; ``note``: what was lost, or why there is none."""

    median: float | None
    low: float | None
    high: float | None
    values: list[float]
    note: str = ""

    @classmethod
    def of(cls, values: Sequence[float], note: str = "") -> Figure:
        if not values:
            return cls(None, None, None, [], note or "nothing measured")
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
        return cls(middle, low, high, [round(v, 6) for v in values], note)

    @classmethod
    def failed(cls, error: Exception) -> Figure:
        return cls.of([], f"failed: {type(error).__name__} {error}".strip()[:200])

    def shown(self) -> str:
        if self.median is None:
            return self.note
        spread = f" ({short(self.low)}-{short(self.high)})" if len(self.values) > 1 else ""
        return f"{short(self.median)}{spread}{' ' + self.note if self.note else ''}"


@dataclass
class Row:
    """``against``: subject -> the gateway's figure to that one's; ``target``: words, ``reached``: None where nothing is to reach."""

    what: str
    profile: str
    unit: str
    figures: dict[str, Figure]
    target: str = ""
    reached: bool | None = None
    against: dict[str, str] = field(default_factory=dict)


def short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


class Report:
    def __init__(self, head: Json) -> None:
        self.head = head
        self.rows: list[Row] = []

    def add(
        self, what: str, profile: str, unit: str, figures: dict[str, Figure], *, compare: Sequence[str] | None = None,
        under: float | None = None, ratio: tuple[str, str, float] | None = None, over: tuple[str, float] | None = None,
    ) -> Row:  # fmt: skip
        """What is to be reached, by the median of the row's first subject: ``under`` a figure; a ``ratio`` (subject, ``>=`` or ``<=``, bound);
        at most so much ``over`` a subject. ``compare``: with these subjects only (with all)."""
        row = Row(what, profile, unit, figures)
        first = next(iter(figures))
        mine = figures[first].median
        for name, figure in figures.items():
            if name != first and mine is not None and figure.median and (compare is None or name in compare):
                row.against[name] = f"{mine / figure.median:.2f}x" + (f" {mine - figure.median:+.2f}" if unit == "ms" else "")
        if under is not None:
            row.target, row.reached = f"under {short(under)} {unit}", None if mine is None else mine < under
        elif ratio is not None:
            name, sign, bound = ratio
            row.target = f"{sign} {bound}x {name}"
            other = figures[name].median if name in figures else None
            if mine is not None and other:
                row.reached = mine / other >= bound if sign == ">=" else mine / other <= bound
        elif over is not None:
            name, bound = over
            row.target = f"at most {bound:+g} {unit} over {name}"
            other = figures[name].median if name in figures else None
            if mine is not None and other is not None:
                row.reached = mine - other <= bound
        self.rows.append(row)
        print(self._lines(row), flush=True)
        return row

    @staticmethod
    def _lines(row: Row) -> str:
        verdict = "" if not row.target else f"   [{row.target}: {'?' if row.reached is None else 'yes' if row.reached else 'NO'}]"
        lines = [f"{row.profile + ': ' if row.profile else ''}{row.what}, {row.unit}{verdict}"]
        lines += [f"    {name:<28} {figure.shown():<34} {row.against.get(name, '')}".rstrip() for name, figure in row.figures.items()]
        return "\n".join(lines)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({**self.head, "rows": [asdict(row) for row in self.rows]}, indent=1) + "\n")

    def markdown(self) -> str:
        """A line a row, for a README or an issue."""
        lines = ["| what | profile | gateway | against | to reach |", "|---|---|---|---|---|"]
        for row in self.rows:
            first, *others = row.figures.items()
            beside = "; ".join(f"{name} {figure.shown()}" + (f" = {row.against[name]}" if name in row.against else "") for name, figure in others)
            verdict = {None: "", True: " (yes)", False: " (**no**)"}[row.reached] if row.target else ""
            lines.append(f"| {row.what}, {row.unit} | {row.profile} | {first[1].shown()} | {beside} | {row.target}{verdict} |")
        return "\n".join(lines)
