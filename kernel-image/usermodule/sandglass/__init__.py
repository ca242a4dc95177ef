"""Talk to Sandglass from a cell.

    import sandglass
    sandglass.keep("out/report.xlsx", "models/**")   # these files survive the sandbox
    sandglass.result({"rows": 1200})                 # a typed result for the program that runs this cell

Everything under ``out/`` is kept without asking. Variables are never kept: a sandbox runs out, and its variables with it.
"""

import json as _json

__all__ = ["keep", "result"]

MAX_PATTERNS = 32
MAX_PATTERN = 500
MAX_RESULT_BYTES = 1024 * 1024
MAX_DEPTH = 24


def keep(*patterns):
    """Declare files that are to survive this sandbox.

    ``patterns``: paths relative to the workspace; ``*`` stands for anything within a name, ``**`` for any directories. The files
    may be written later. Raises TypeError or ValueError for a pattern that could never name a file in the workspace.
    """
    if not patterns:
        raise ValueError("keep() needs at least one pattern, e.g. keep('out/report.xlsx')")
    if len(patterns) > MAX_PATTERNS:
        raise ValueError(f"keep() takes at most {MAX_PATTERNS} patterns at a time")
    cleaned = []
    for pattern in patterns:
        if hasattr(pattern, "__fspath__"):
            pattern = pattern.__fspath__()
        if not isinstance(pattern, str):
            raise TypeError(f"a pattern is a text, not {type(pattern).__name__}")
        pattern = pattern.removeprefix("/workspace/").removeprefix("./")
        if not pattern or len(pattern) > MAX_PATTERN or "\0" in pattern:
            raise ValueError(f"a pattern has 1 to {MAX_PATTERN} characters")
        if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
            raise ValueError(f"{pattern!r} lies outside the workspace")
        cleaned.append(pattern)
    _publish("sandglass_keep", {"patterns": cleaned})


def result(value):
    """Hand a result to the program that asked for this cell to be run.

    ``value``: what JSON can say (dict with text keys, list, tuple, text, finite numbers, True, False, None), at most 1 MiB. The last
    call of a cell counts. Raises TypeError or ValueError that names the place of what does not fit.
    """
    _check(value, "result", 0)
    text = _json.dumps(value, ensure_ascii=False)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_RESULT_BYTES:
        raise ValueError("a result has at most 1 MiB as JSON; write larger ones to a file below out/")
    _publish("sandglass_result", {"value": _json.loads(text)})


def _check(value, where, depth):
    if depth > MAX_DEPTH:
        raise ValueError(f"{where} is nested more than {MAX_DEPTH} levels deep")
    if value is None or isinstance(value, (bool, int)):
        return
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where} holds half of a surrogate pair, which UTF-8 cannot say") from None
        return
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError(f"{where} is {value}, which JSON cannot say; use None")
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r:.80}; keys are texts")
            _check(item, f"{where}[{key!r:.80}]", depth + 1)
        return
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _check(item, f"{where}[{i}]", depth + 1)
        return
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    hint = ""
    if hasattr(value, "to_dict"):
        hint = "; .to_dict('records') makes a list of a table"
    elif hasattr(value, "tolist"):
        hint = "; .tolist() makes plain numbers of it"
    raise TypeError(f"{where} is a {kind}, which JSON cannot say{hint}")


def _publish(msg_type, content):
    try:
        from IPython import get_ipython

        kernel = get_ipython().kernel
    except (ImportError, AttributeError):
        raise RuntimeError("sandglass works in a kernel of Sandglass only, in the kernel's own process") from None
    parent = kernel.get_parent("shell")
    kernel.session.send(kernel.iopub_socket, msg_type, content, parent=parent, ident=kernel._topic(msg_type))
