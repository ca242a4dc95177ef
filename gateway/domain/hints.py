"""A static look at code before it runs: what will most likely fail, and what to do instead. Advice only; nothing is refused. Pure.

The code comes from anybody and this runs on everybody's loop, so what is looked at is bounded: longer code, and code that nests
deeper than the parser likes, goes without advice. The gateway's own parser may be older than the image's, so a syntax error that
it sees says whose it is. What is told names lines and modules, and quotes nothing else of the code.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from .image_modules import MODULES

MAX_CODE = 20_000
"""Characters that are looked at: the parser holds up the loop for a few milliseconds."""
MAX_HINTS = 10
MAX_DEPTH = 60
"""Brackets within brackets, and indents: far more than anybody writes, far less than what a parser minds."""
Json = dict[str, Any]

_OFFERED = MODULES | sys.stdlib_module_names
_NETWORK_MODULES = frozenset(
    {"requests", "httpx", "aiohttp", "urllib3", "urllib.request", "http.client", "socket", "ftplib", "smtplib", "imaplib", "poplib", "telnetlib",
     "paramiko", "boto3", "websocket", "websockets", "grpc", "xmlrpc.client", "yfinance", "openai", "anthropic"}
)  # fmt: skip
_URL = re.compile(r"(https?|ftp|s3|gs)://", re.I)
# possessive throughout: whatever a line holds, it is looked at once
_MAGIC = re.compile(r"^(\s*+)(?:[%!].*|[\w\s,.\[\]]*+=\s*+[%!].*|[A-Za-z_][\w.]*+\?{1,2}\s*+|\?{1,2}\s*+[A-Za-z_][\w.]*+\s*+)$")
_INSTALL = re.compile(r"^\s*+[%!]++\s*+(?:pip3?|conda|mamba|uv|python3?\s++-m\s++pip|apt(?:-get)?)\b")
_HARMLESS = frozenset({"abs", "bool", "dict", "enumerate", "float", "int", "len", "list", "max", "min", "print", "range", "round", "set", "sorted"})
"""Called by its name, none of these writes a file."""
_INSTEAD = "The sandbox has no network. Have the data fetched outside and handed over as a file: upload it, or name an artifact in inputs."


def look(code: str) -> tuple[list[Json], bool]:
    """``[{"kind": "syntax"|"import"|"network", "detail", "line", "column", "module"?}]``, in the order of lines, a few at the most.

    And whether it may write files: False only where it is plain that nothing in it could.
    """
    if len(code) > MAX_CODE or not _shallow(code):
        return [], True
    lines = code.split("\n")
    if lines[0].lstrip().startswith("%%"):
        return [], True  # a cell magic: what follows need not be Python
    found = [_hint("network", f"Nothing can be installed from a cell. {_INSTEAD}", n + 1, 1) for n, line in enumerate(lines) if _INSTALL.match(line)]
    magics = [n for n, line in enumerate(lines) if _MAGIC.match(line)]
    tree = _parsed(code)
    if isinstance(tree, _Broken) and magics:
        # IPython's own lines are no Python; without them it may be fine, and an error elsewhere is one
        tree = _parsed("\n".join(_MAGIC.sub(r"\1pass", line) if n in magics else line for n, line in enumerate(lines)))
    if isinstance(tree, _Broken):
        found.append(_hint("syntax", f"Python {sys.version_info[0]}.{sys.version_info[1]} cannot parse this: {tree.why}.", tree.line, tree.column))
    elif tree is not None:
        found += _of_tree(tree)
    acts = bool(magics) or not isinstance(tree, ast.Module) or any(_acts(node) for node in ast.walk(tree))
    return sorted(found, key=lambda hint: (hint["line"] or 0, hint["column"] or 0))[:MAX_HINTS], acts


def _hint(kind: str, detail: str, line: int | None, column: int | None, **more: Any) -> Json:
    return {"kind": kind, "detail": detail, "line": line, "column": column, **more}


class _Broken:
    def __init__(self, why: str, line: int | None, column: int | None) -> None:
        self.why, self.line, self.column = why, line, column


def _parsed(code: str) -> ast.Module | _Broken | None:
    """None where nothing can be said."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = compile(code, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        return _Broken(re.sub(r"'[^']*'|\"[^\"]*\"", "...", error.msg)[:200], error.lineno, error.offset)
    except ValueError:
        return _Broken("it holds a null character", None, None)
    except (RecursionError, MemoryError):
        return None
    return tree if isinstance(tree, ast.Module) else None


def _shallow(code: str) -> bool:
    """Whether nothing nests, or chains, deeper than ``MAX_DEPTH``; counts brackets and operators, in strings too: a bound needs no more."""
    depth = chain = 0
    for char in code:
        if char in "([{":
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif char in ")]}":
            depth -= 1
        if char in _CHAINING:
            chain += 1
            if chain > MAX_CHAIN:
                return False
        elif char in "\n,;:":
            chain = 0
    return True


_CHAINING = frozenset("+-*/%@&|^~<>=.([!")
MAX_CHAIN = 400
"""Operators, dots and calls behind one another without a comma or a new line: each is one level of the tree."""


def _of_tree(tree: ast.Module) -> Iterator[Json]:
    for node, guarded in _walk(tree):
        if isinstance(node, ast.Import):
            yield from _of_import(node, [alias.name for alias in node.names], guarded)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            base = node.module or ""
            below = [f"{base}.{alias.name}" for alias in node.names]
            yield from _of_import(node, [base, *(name for name in below if name in _NETWORK_MODULES)], guarded)
        elif isinstance(node, ast.Call) and (url := _url_of(node)) is not None:
            yield _hint("network", f"A call is given an address on the network. {_INSTEAD}", url.lineno, url.col_offset + 1)


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it stands in a try: such an import is expected to fail. Without recursion."""
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, guarded = stack.pop()
        yield node, guarded
        body = {id(each) for each in node.body} if isinstance(node, ast.Try) else ()
        stack += [(each, guarded or id(each) in body) for each in ast.iter_child_nodes(node)]


def _of_import(node: ast.Import | ast.ImportFrom, names: list[str], guarded: bool) -> Iterator[Json]:
    for name in names:
        top = name.partition(".")[0]
        if name in _NETWORK_MODULES or top in _NETWORK_MODULES:
            yield _hint("network", f"{name} reaches out to the network. {_INSTEAD}", node.lineno, node.col_offset + 1, module=name)
            return
        if top not in _OFFERED and not guarded:
            detail = f"{top[:80]} is not in the image, and nothing can be installed; unless a file of the workspace is meant, use what the image has."
            yield _hint("import", detail, node.lineno, node.col_offset + 1, module=top[:80])


def _acts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return not (isinstance(node.func, ast.Name) and node.func.id in _HARMLESS)
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] not in _OFFERED for alias in node.names)
    return isinstance(node, ast.Await | ast.With | ast.AsyncWith | ast.ImportFrom)


def _url_of(call: ast.Call) -> ast.Constant | None:
    """An argument that is a network address, of a call that is no output."""
    if isinstance(call.func, ast.Name) and call.func.id in ("print", "display", "len", "str", "repr"):
        return None
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and _URL.match(argument.value):
            return argument
    return None
