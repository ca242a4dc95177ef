"""What the kernel tells about itself after a cell: its variables, and of what kind an error was. Advisory: user code can say the same.

Nothing here calls into a user's types: no ``repr``, no ``__sizeof__``, no attribute of theirs. Sizes are told for exactly known
types only, and shallow, so that a list of three million objects costs no more than one of three. Bounded in names and in time.
"""

import contextlib
import errno
import socket
import sys
import types
from itertools import islice
from time import perf_counter

from ipykernel.iostream import OutStream

MAX_NAMES = 200
MAX_SCANNED = 5000
MAX_TEXT = 80
BUDGET_S = 0.005
_NAME = type.__dict__["__name__"].__get__
_MRO = type.__dict__["__mro__"].__get__
_ERRNO = OSError.__dict__["errno"].__get__
_CAUSE = BaseException.__dict__["__cause__"].__get__
_CONTEXT = BaseException.__dict__["__context__"].__get__
_BUILTIN = frozenset({
    int, float, bool, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice, type(None),
})  # fmt: skip


class Stream(OutStream):
    """Standard output in messages of a bounded size.

    ipykernel gathers what is printed and sends it five times a second: a loop that prints much faster than that becomes one giant
    message, held several times in memory and too large to be carried. Here the writer waits now and then until what it wrote is gone.
    """

    PIECE = 1024 * 1024
    _gathered = 0

    def write(self, string):
        if isinstance(string, str) and len(string) > self.PIECE:
            for start in range(0, len(string), self.PIECE):
                super().write(string[start : start + self.PIECE])
                self.flush()
            return len(string)
        written = super().write(string)
        self._gathered += len(string)
        if self._gathered > self.PIECE:
            self._gathered = 0
            self.flush()
        return written


def type_name(kind):
    return _NAME(kind)[:MAX_TEXT]


class Sizes:
    """Bytes of a value of a known type, or None. Libraries are known once the user has imported them."""

    def __init__(self):
        self._known = dict.fromkeys(_BUILTIN, lambda value: type(value).__sizeof__(value))
        self._seen = set()

    def learn(self):
        for name, teach in (("numpy", self._numpy), ("pandas", self._pandas), ("pyarrow", self._pyarrow), ("polars", self._polars)):
            module = sys.modules.get(name)
            if name not in self._seen and module is not None and not getattr(module.__spec__, "_initializing", False):
                self._seen.add(name)
                try:
                    teach(module)
                except (AttributeError, ImportError):
                    pass  # another version of it: its sizes stay unknown

    def _numpy(self, numpy):
        self._known[numpy.ndarray] = lambda value: value.nbytes
        scalar = numpy.generic.nbytes.__get__
        self._known |= dict.fromkeys(set(numpy.sctypeDict.values()), scalar)

    def _pandas(self, pandas):
        from pandas.core import arrays
        from pandas.core.internals import BlockManager, SingleBlockManager

        one = {sys.modules["numpy"].ndarray: lambda a: a.nbytes}
        for name in ("DatetimeArray", "TimedeltaArray", "NumpyExtensionArray", "Categorical", "PeriodArray"):
            one[getattr(arrays, name)] = lambda a: a._ndarray.nbytes
        for name in ("IntegerArray", "FloatingArray", "BooleanArray"):
            one[getattr(arrays, name)] = lambda a: a._data.nbytes + a._mask.nbytes
        for name in ("ArrowExtensionArray", "ArrowStringArray"):
            one[getattr(arrays, name)] = lambda a: a._pa_array.nbytes

        def of_blocks(value):
            manager = value._mgr
            if type(manager) not in (BlockManager, SingleBlockManager):
                return None
            # a column of an unknown kind counts as nothing rather than asking it
            return sum(one.get(type(array := block.values), lambda a: 0)(array) for block in manager.blocks)

        self._known[pandas.DataFrame] = self._known[pandas.Series] = of_blocks

    def _pyarrow(self, pyarrow):
        self._known |= dict.fromkeys((pyarrow.Table, pyarrow.RecordBatch, pyarrow.ChunkedArray), lambda value: value.nbytes)

    def _polars(self, polars):
        self._known |= dict.fromkeys((polars.DataFrame, polars.Series), lambda value: value.estimated_size())

    def of(self, value):
        known = self._known.get(type(value))
        if known is None:
            return None
        try:
            size = known(value)
        except Exception:  # it is being built or taken apart by another thread
            return None
        return size if type(size) is int and size >= 0 else None


class Variables:
    """The namespace's summary, told only when it has changed."""

    def __init__(self, shell, publish):
        self._shell, self._publish = shell, publish
        self._sizes = Sizes()
        self._told = ([], 0)

    def summary(self):
        """(names with type and size, how many more there are)"""
        end = perf_counter() + BUDGET_S
        self._sizes.learn()
        namespace, hidden = self._shell.user_ns, self._shell.user_ns_hidden
        nothing = object()
        found, more = [], max(0, len(namespace) - MAX_SCANNED)
        for i, (name, value) in enumerate(list(islice(namespace.items(), MAX_SCANNED))):
            if type(name) is not str or name.startswith("_") or type(value) is types.ModuleType:
                continue
            if hidden.get(name, nothing) is value:
                continue
            if len(found) >= MAX_NAMES or (i % 16 == 15 and perf_counter() > end):
                more += 1
                continue
            found.append({"name": name[:MAX_TEXT], "type": type_name(type(value)), "size": self._sizes.of(value)})
        return found, more

    def after_cell(self, result):
        try:
            summary = self.summary()
        except RuntimeError:
            return  # the namespace changed under way; the next cell will tell
        if summary != self._told:
            self._told = summary
            self._publish("sandglass_variables", {"variables": summary[0], "more": summary[1]})


def describe_error(error):
    """Type names and errno: evidence of what kind of failure it was, without its text."""
    number = None
    names = [type_name(kind) for kind in _MRO(type(error))[:16]]
    # libraries wrap what the system said (urllib, requests): the first errno in the chain is what happened
    for cause in chain(error):
        if isinstance(cause, OSError):
            number = _ERRNO(cause)
            if isinstance(cause, socket.gaierror):
                names.append("gaierror")
        elif type(cause) is RuntimeError and cause.args == ("can't start new thread",):
            number = errno.EAGAIN  # the interpreter's own words for it; it keeps no errno
        if type(number) is int:
            break
        number = None
    return {"mro": names, "errno": number}


def chain(error):
    """The exception and what it was raised from or while handling, at most eight."""
    for _ in range(8):
        if error is None:
            return
        yield error
        error = _CAUSE(error) or _CONTEXT(error)


class Forgotten(dict):
    """In the place of IPython's own record of every output, which it keeps for ``%notebook`` and never lets go: a cell that prints
    a gigabyte would need a gigabyte. Clients have the outputs."""

    def __missing__(self, key):
        return []


def install(app):
    """Register everything in a kernel that has been initialized and not started yet."""
    shell, kernel = app.shell, app.kernel

    def publish(msg_type, content):
        parent = kernel.get_parent("shell")
        kernel.session.send(kernel.iopub_socket, msg_type, content, parent=parent, ident=kernel._topic(msg_type))

    shell.history_manager.outputs = Forgotten()
    shell._tee = lambda channel: contextlib.nullcontext()

    variables = Variables(shell, publish)

    def after_cell(result):
        error = getattr(result, "error_before_exec", None) or getattr(result, "error_in_exec", None)
        if error is not None:
            publish("sandglass_error", describe_error(error))
        variables.after_cell(result)

    shell.events.register("post_run_cell", after_cell)
    # the backend registers itself with IPython when it is imported; in the zygote there was no IPython yet
    backend = sys.modules.get("matplotlib_inline.backend_inline")
    if backend is not None:
        backend._enable_matplotlib_integration()
