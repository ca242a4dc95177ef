"""The static look before a run, and tracebacks as programs want them."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from gateway.domain.hints import MAX_CODE, MAX_HINTS, look
from gateway.domain.image_modules import DISTRIBUTIONS
from gateway.domain.tracebacks import fold

LOCK = Path(__file__).parents[2] / "kernel-image/requirements.lock"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("x = 1\ny = (2 +\n", [("syntax", 2)]),
        ("def f():\nreturn 1", [("syntax", 2)]),
        ("import pandas as pd, json\nfrom sklearn.linear_model import Ridge\nfrom PIL import Image\nimport sandglass", []),
        ("import torch", [("import", 1)]),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", []),
        ("from . import x", []),
        ("import os\nimport urllib.request", [("network", 2)]),
        ("from urllib import request", [("network", 1)]),
        ("import requests\nrequests.get('https://a.example/x')", [("network", 1), ("network", 2)]),
        ("pd.read_csv(path='http://a.example/secret-token')", [("network", 1)]),
        ("print('https://a.example')\nurl = 'https://a.example'", []),
        ("%matplotlib inline\nfiles = !ls\nprint?\nawait x", []),
        ("%pip install torch\nx = 1", [("network", 1)]),
        ("!pip install torch", [("network", 1)]),
        ("%%bash\nls -l |", []),
        ("%time x\nx = = 1", [("syntax", 2)]),
        ("x = 1\0", [("syntax", None)]),
        ("s = '\\d'", []),
        ("", []),
    ],
)
def test_hints(code: str, found: list[tuple[str, int | None]]) -> None:
    hints, _ = look(code)
    assert [(hint["kind"], hint["line"]) for hint in hints] == found
    assert "secret" not in str(hints) and "example" not in str(hints), "what stands in the code is not told"


def test_hints_say_where_and_what_instead() -> None:
    [hint] = look("x = 1\n  y = 2")[0]
    assert hint["line"] == 2 and hint["column"] and "Python 3." in hint["detail"]
    [hint] = look("import torch.nn")[0]
    assert hint["module"] == "torch" and "not in the image" in hint["detail"]
    [hint] = look("import socket")[0]
    assert hint["module"] == "socket" and "inputs" in hint["detail"]
    assert len(look("import torch\n" * 50)[0]) == MAX_HINTS


@pytest.mark.parametrize(("code", "acts"), [("pass", False), ("x + 1", False), ("print(len([1]))", False), ("import os, numpy", False),
                                            ("df.to_csv('x')", True), ("import helper", True), ("!ls", True), ("x = (",
        True), ("with x: pass", True)])  # fmt: skip
def test_what_could_write_a_file(code: str, acts: bool) -> None:
    assert look(code)[1] is acts


@pytest.mark.parametrize(
    "code",
    [
        "(" * 10_000, "[" * 5000 + "]" * 5000, "-" * 19_000 + "1", "a" + ".a" * 9000, "not " * 4900 + "x", "lambda: " * 2400 + "1",
        "x if y else " * 1600 + "z", "1 + " * 4900 + "1", "f" + "()" * 9000, "if a:\n pass\n" + "elif b:\n pass\n" * 1300,
        "".join(" " * n + "try:\n" for n in range(99)) + " " * 99 + "import torch\n" * 50, " " * MAX_CODE, "=" * MAX_CODE, "= " * (MAX_CODE // 2),
        "a" * MAX_CODE, "f'{" * 3000, "x" * (MAX_CODE + 1), "%" + " " * 19_000 + "x", "await " * 3000 + "x", "a." * 9000 + "?", "\\\n" * 9000,
    ],
    ids=range(21),
)  # fmt: skip
def test_code_made_to_hurt_the_parser_is_survived_at_once(code: str) -> None:
    begun = time.process_time()
    hints, _ = look(code)
    assert time.process_time() - begun < 1 and len(hints) <= MAX_HINTS


def test_the_image_s_modules_are_those_of_its_lock() -> None:
    locked = set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", LOCK.read_text(), re.M))
    assert locked == set(DISTRIBUTIONS), "the image's lock changed: say in gateway/domain/image_modules.py what can be imported"


def test_frames_of_libraries_are_folded() -> None:
    site = "File /usr/local/lib/python3.13/site-packages/pandas/core/frame.py:4102, in DataFrame.__getitem__(self, key)\n   4100 x"
    frames = [
        "\x1b[0;31m---------------------------------------------------------------------------\x1b[0m",
        "\x1b[0;31mKeyError\x1b[0m                                  Traceback (most recent call last)",
        "Cell \x1b[0;32mIn[3], line 1\x1b[0m\n----> 1 df['x']",
        site, site.replace("frame.py", "indexes/base.py"),
        "File /usr/lib/python3.13/json/__init__.py:346, in loads(s)\n  code",
        "File /workspace/mine.py:3, in f()\n  code", "\x1b[0;31mKeyError\x1b[0m: 'x'",
    ]  # fmt: skip
    folded = fold(frames)
    assert folded[2:] == ["Cell In[3], line 1\n----> 1 df['x']", "[pandas: 2 frames]", "[python: 1 frame]",
                          "File /workspace/mine.py:3, in f()\n  code",
                          "KeyError: 'x'"]  # fmt: skip
    assert fold(["a" * 100_000] * 3)[-1].startswith("[the rest") and fold([]) == [] and fold([1, None])
