"""A transcript as a notebook file (nbformat 4.5). Pure: values in, JSON-ready values out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .cell_outputs import count
from .model import NoticeKind
from .transcript import Cell

Json = dict[str, Any]
METADATA: Json = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
}
LOSSES = (NoticeKind.VARIABLES_LOST, NoticeKind.RECYCLED, NoticeKind.KERNEL_DIED, NoticeKind.KERNEL_RESTARTED)


def code_cell(cell: Cell) -> Json:
    """Where no code is kept, words that say so: nobody should take them for something to run."""
    about: Json = {"execution_id": cell.execution_id, "generation": cell.generation, "exit_reason": cell.exit_reason}
    if cell.left_out:
        about["output_bytes_left_out"] = cell.left_out
    if cell.code is None:
        return markdown(cell.execution_id, f"*Code and output were not kept. SHA-256 of the code: {cell.code_sha256}*", {"sandglass": about})
    return {
        "cell_type": "code", "id": cell.execution_id, "metadata": {"sandglass": about}, "execution_count": count(cell.execution_count),
        "source": cell.code, "outputs": cell.outputs,
    }  # fmt: skip


def markdown(cell_id: str, text: str, metadata: Json | None = None) -> Json:
    return {"cell_type": "markdown", "id": cell_id, "metadata": metadata or {}, "source": text}


def divider(before: int, after: int, told: Iterable[tuple[str, int, str]]) -> Json:
    """Where variables were lost between two cells. ``told``: kind, generation and text of the session's notices."""
    texts = dict.fromkeys(text for kind, generation, text in told if kind in LOSSES and before < generation <= after and text)
    words = " ".join(_escaped(text) for text in texts) or "The variables were lost."
    return markdown(f"generation-{after}", f"---\n\n**Generation {after}.** {words}")


def with_dividers(cells: Iterable[Cell], told: list[tuple[str, int, str]], before: int | None = None) -> Iterator[Json]:
    """``before``: the generation of the cell that went before these."""
    for cell in cells:
        if before is not None and cell.generation > before:
            yield divider(before, cell.generation, told)
        before = cell.generation
        yield code_cell(cell)


def _escaped(text: str) -> str:
    """Names of variables and files are the user's code's: no markup comes of them."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>()#+-!|$" else c for c in text)
