"""What a limit leaves behind, on both runtimes, with the real engine's evidence (``test_words.py`` has one cell for each word)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_gateway import Gateway

PROFILES = ("container", "gvisor")
Json = dict[str, Any]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose limits are quickly reached."""
    gateway = Gateway(
        tmp_path_factory.mktemp("small"),
        {
            "SANDGLASS_MEMORY": "768MiB",
            "SANDGLASS_WORKSPACE": "32MiB",
            "SANDGLASS_INPUTS": "32MiB",
            "SANDGLASS_TMP": "16MiB",
            "SANDGLASS_SHM": "16MiB",
            "SANDGLASS_OUTPUT": "1MiB",
        },
    ).start()
    yield gateway
    assert gateway.stop() == 0, gateway.tail()


@pytest.fixture(params=PROFILES)
def session(request: pytest.FixtureRequest, small: Gateway) -> Iterator[str]:
    if request.param not in small.available():
        pytest.skip(f"the profile {request.param} is not available here")
    made = small.call("POST", "/api/v1/sessions", {"profile": request.param}, expect=201).json()["session_id"]
    yield made
    small.call("DELETE", f"/api/v1/sessions/{made}")


def ends(gateway: Gateway, session: str, code: str, **body: Any) -> tuple[str, Json]:
    done = gateway.run_code(session, code, **body)
    return done["exit_reason"], done


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("import socket\nsocket.create_connection(('10.0.0.1', 80), timeout=5)", "network_denied"),
        ("open('big', 'wb').write(b'x' * (64 << 20))", "disk_limit"),
        ("for n in range(200): print('x' * 20000, flush=True)", "output_limit"),
    ],
)
def test_the_word_of_a_cell_that_comes_to_its_end(small: Gateway, session: str, code: str, word: str) -> None:
    reason, done = ends(small, session, code)
    assert reason == word, done
    assert done["generation"] == 1
    assert ends(small, session, "print('still here')")[1]["stdout"].strip() == "still here"


def test_a_timeout_is_interrupted_and_the_variables_stay(small: Gateway, session: str) -> None:
    small.run_code(session, "kept = 1")
    begun = time.monotonic()
    reason, done = ends(small, session, "while True: pass", timeout_s=1)
    assert (reason, done["status"]) == ("timeout", "timeout") and time.monotonic() - begun < 20
    assert ends(small, session, "print(kept)")[1]["stdout"].strip() == "1"


def test_what_ignores_the_interrupt_is_killed(small: Gateway, session: str) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    try: time.sleep(60)\n    except BaseException: pass"
    reason, _ = ends(small, session, code, timeout_s=1)
    assert reason == "timeout"
    view = small.call("GET", f"/api/v1/sessions/{session}", expect=200).json()
    assert view["generation"] == 2
    assert ends(small, session, "print('new')")[1]["stdout"].strip() == "new"
