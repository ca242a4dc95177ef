"""Every exit reason and every end of a sandbox, provoked on real sandboxes of both runtimes; and the tables have every word."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from e2e_gateway import ROOT, Gateway
from words_rig import BREAK, END, LEAK, Hold, engine, image, order, taken_away, token

from gateway.domain.advice import Retry, advise
from gateway.domain.execution import next_action, status
from gateway.domain.model import EndReason, ExitReason

Json = dict[str, Any]
PROFILES = ("container", "gvisor")
LIMITS = {
    "SANDGLASS_MEMORY": "768MiB", "SANDGLASS_WORKSPACE": "32MiB", "SANDGLASS_INPUTS": "16MiB", "SANDGLASS_TMP": "16MiB", "SANDGLASS_SHM": "16MiB",
    "SANDGLASS_OUTPUT": "1MiB", "SANDGLASS_CPU_TIME": "6s", "SANDGLASS_USER_SANDBOXES": "1", "SANDGLASS_DRAIN_GRACE": "1s",
}  # fmt: skip
CELLS: dict[ExitReason, str] = {
    ExitReason.OK: "1 + 1",
    ExitReason.CODE_ERROR: "1 / 0",
    ExitReason.SYNTAX_ERROR: "def f(:",
    ExitReason.DEPENDENCY_MISSING: "import panda",
    ExitReason.NETWORK_DENIED: "import urllib.request\nurllib.request.urlopen('http://192.0.2.1/', timeout=5)",
    ExitReason.DISK_LIMIT: "open('big', 'wb').write(b'x' * (64 << 20))",
    ExitReason.OUTPUT_LIMIT: "print('x' * (4 << 20))",
    ExitReason.MEMORY_LIMIT: "x = bytearray(3 << 30)\nfor n in range(0, len(x), 4096): x[n] = 1",
    ExitReason.PROCESS_LIMIT: "import subprocess\nkept = []\nfor n in range(2000): kept.append(subprocess.Popen(['sleep', '60']))",
    ExitReason.KERNEL_DIED: "import os\nos._exit(3)",
    ExitReason.CPU_LIMIT: "while True: pass",
}
"""What code alone brings about. ``TIMEOUT`` needs a limit as well."""
ACTS = {
    ExitReason.TIMEOUT, ExitReason.INTERRUPTED, ExitReason.SANDBOX_ENDED, ExitReason.GENERATION_MISMATCH, ExitReason.ARTIFACT_REJECTED,
    ExitReason.CAPACITY_EXHAUSTED, ExitReason.IMAGE_UNAVAILABLE, ExitReason.PLATFORM_FAULT, ExitReason.POLICY_DENIED,
}  # fmt: skip
"""What it takes more for: see ``Story``."""
REFUSALS = {ExitReason.GENERATION_MISMATCH: 409, ExitReason.ARTIFACT_REJECTED: 422}
"""Those that come in the place of an execution."""
NOT_YET = {ExitReason.APPROVAL_REQUIRED: "nothing can be approved yet (P30)"}
ENDS = set(EndReason)
CONTAINER_ONLY = {ExitReason.POLICY_DENIED, EndReason.POLICY}
"""The policy that there is so far forbids plain containers; it can forbid nothing else."""


class Story:
    """What happens to the sessions of one profile, in three lives of the gateway. ``seen``: word -> execution, problem or session."""

    def __init__(self, gateway: Gateway, profile: str, reference: str) -> None:
        self.gateway, self.profile, self.reference = gateway, profile, reference
        self.seen: dict[str, Any] = {}
        self.main = Hold(gateway, f"main-{profile}", profile)
        self.other = Hold(gateway, f"main-{profile}", profile)
        self.slept, self.busy, self.barred = (Hold(gateway, f"{name}-{profile}", profile) for name in ("slept", "busy", "barred"))

    def step(self, word: str, act: Callable[[], Any]) -> None:
        """A step that fails is the failure of its own word, and of those that need what it leaves behind."""
        try:
            self.seen[word] = act()
        except Exception as error:
            self.seen.setdefault(word, error)

    def first(self) -> None:
        main = self.main.open()
        for word, code in CELLS.items():
            self.step(word, lambda code=code: main.run(code))  # type: ignore[misc]
            if word is ExitReason.PROCESS_LIMIT:
                main.call("POST", "/restart", {}, expect=200)
        self.step(ExitReason.TIMEOUT, lambda: main.run("import time\ntime.sleep(60)", timeout_s=0.5))
        self.step(ExitReason.INTERRUPTED, self.interrupted)
        self.step(ExitReason.ARTIFACT_REJECTED, lambda: main.call("PUT", "/files/in/x.png", b"no picture", expect=422).json())
        for word, what in ((EndReason.PROTOCOL_VIOLATION, BREAK), (EndReason.CRASH, END), (EndReason.OUT_OF_MEMORY, LEAK)):
            self.step(word, lambda what=what: self.ordered(what))  # type: ignore[misc]
        main.run("import os\nos.makedirs('out', exist_ok=True)\nopen('out/kept.txt', 'w').write('kept')")
        self.step(ExitReason.SANDBOX_ENDED, self.recycled_at_work)
        self.step(EndReason.USER, lambda: main.state("dormant"))
        stale = {"code": "1", "expect_generation": 1}
        self.step(ExitReason.GENERATION_MISMATCH, lambda: main.call("POST", "/executions", stale, expect=409).json())
        self.step(EndReason.ADMIN, self.capacity)
        self.barred.open()
        main.run("1")  # active, so that the stop ends it

    def interrupted(self) -> Json:
        running = self.main.begin("import time\ntime.sleep(60)")
        self.main.call("POST", "/interrupt", {}, expect=204)
        return self.main.finished(running)

    def ordered(self, what: str) -> Json:
        running = self.main.begin(order(what))
        self.main.finished(running)
        return self.main.state("dormant")

    def recycled_at_work(self) -> Json:
        running = self.main.begin("import time\ntime.sleep(60)")
        self.main.recycled()
        return self.main.finished(running)

    def capacity(self) -> Json:
        """The one sandbox that the user may have is another session's, until an admin ends that."""
        other = self.other.open()
        self.step(ExitReason.CAPACITY_EXHAUSTED, lambda: self.main.run("1"))
        root = token(self.gateway, "root", "admin")
        self.gateway.call("POST", f"/api/v1/admin/sessions/{other.session_id}/end", {"reason_text": "to see"}, token=root, expect=202)
        return other.state("ended")

    def second(self) -> None:
        """With short lifetimes for new sessions, and no warm sandboxes."""
        self.step(EndReason.UPGRADE, lambda: self.main.state("dormant"))
        busy = self.busy.open()
        running = busy.begin("import time\ntime.sleep(60)")
        slept = self.slept.open()
        self.step(EndReason.IDLE_TIMEOUT, lambda: slept.state("dormant"))
        self.step(EndReason.MAX_LIFETIME, lambda: busy.state("dormant"))
        self.seen["cut by the maximum"] = busy.finished(running)

    def without_image(self) -> None:
        self.step(ExitReason.IMAGE_UNAVAILABLE, lambda: self.main.run("1"))

    def without_store(self) -> None:
        self.step(ExitReason.PLATFORM_FAULT, lambda: self.main.run("1"))

    def between(self) -> None:
        """The gateway is dead: the container of one session goes, another slept for long."""
        engine().remove_container(self.doomed, force=True)
        with sqlite3.connect(self.gateway.state / "records.sqlite") as db:
            db.execute("UPDATE sessions SET last_activity = last_activity - 864000 WHERE session_id = ?", (self.slept.session_id,))

    def before(self) -> None:
        self.barred.run("1")
        self.main.run("1")
        self.doomed = self.main.container()

    def third(self) -> None:
        self.step(EndReason.HOST_LOST, lambda: self.main.state("dormant"))
        self.step(EndReason.RETENTION, lambda: self.slept.state("ended"))
        if self.profile == "container":
            self.step(EndReason.POLICY, lambda: self.barred.state("dormant"))
            self.step(ExitReason.POLICY_DENIED, lambda: self.barred.run("1"))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    with image() as reference, ThreadPoolExecutor(len(PROFILES)) as threads:
        gateway = Gateway(tmp_path_factory.mktemp("words"), LIMITS | {"SANDGLASS_IMAGE": reference}).start()
        stories = [Story(gateway, profile, reference) for profile in PROFILES if profile in gateway.available()]

        def all_do(act: Callable[[Story], None]) -> None:
            list(threads.map(act, stories))

        all_do(Story.first)
        assert gateway.stop() == 0, gateway.tail()
        gateway.env |= {"SANDGLASS_IDLE_TIMEOUT": "2s", "SANDGLASS_MAX_LIFETIME": "8s", "SANDGLASS_POOL_TARGET": "0", "SANDGLASS_ON_STOP": "keep"}
        gateway.start()
        all_do(Story.second)
        with taken_away(reference):
            all_do(Story.without_image)
        with Broken(gateway.state / "store"):
            all_do(Story.without_store)
        all_do(Story.before)
        gateway.kill()
        for story in stories:
            story.between()
        gateway.env |= {"SANDGLASS_ALLOW_CONTAINER": "no", "SANDGLASS_RETAIN_DORMANT": "1s", "SANDGLASS_ON_STOP": "recycle"}
        gateway.start()
        all_do(Story.third)
        yield {story.profile: story.seen for story in stories}
        assert gateway.stop() == 0, gateway.tail()


class Broken:
    """Nothing that is in this store can be read meanwhile, and it says so."""

    def __init__(self, store: Path) -> None:
        self._files = [path for path in store.rglob("*") if path.is_file()]

    def __enter__(self) -> None:
        for path in self._files:
            path.rename(path.with_name(path.name + ".aside"))
            path.mkdir()

    def __exit__(self, *error: object) -> None:
        for path in self._files:
            path.rmdir()
            path.with_name(path.name + ".aside").rename(path)


def found(seen: dict[str, dict[str, Any]], profile: str, word: str) -> Json:
    if profile not in seen:
        pytest.skip(f"the profile {profile} is not available here")
    what = seen[profile].get(word, AssertionError("nothing came so far"))
    if isinstance(what, Exception):
        raise what
    return dict(what)


def test_the_tables_have_every_word_of_the_vocabularies() -> None:
    assert set(CELLS) | ACTS | set(NOT_YET) == set(ExitReason) and not (set(CELLS) & ACTS or ACTS & set(NOT_YET))
    source = "".join(p.read_text() for p in (ROOT / "gateway").rglob("*.py") if p.name not in ("model.py", "execution.py", "advice.py"))
    for word in NOT_YET:
        assert f"ExitReason.{word.name}" not in source and f'code = "{word}"' not in source, f"{word} is used now: give it a row"


@pytest.mark.parametrize("word", sorted(set(CELLS) | ACTS))
@pytest.mark.parametrize("profile", PROFILES)
def test_exit_reason(seen: dict[str, dict[str, Any]], profile: str, word: ExitReason) -> None:
    if word in CONTAINER_ONLY and profile != "container":
        pytest.skip("no policy forbids this profile")
    what = found(seen, profile, word)
    if word in REFUSALS:
        assert (what["code"], what["status"]) == (word, REFUSALS[word]), what
    else:
        assert (what["exit_reason"], what["status"], what["state"]) == (word, status(word), "finished"), what
        assert what["reason_text"], "a sentence for a person"
    action, advice = next_action(word), what.get("advice")
    assert what.get("next_action") == action, what
    if word is ExitReason.OK:
        assert advice is None
        return
    general = advise(word)
    assert general is not None and advice["retry"] in list(Retry) and advice["text"].endswith(general["text"])
    if word is ExitReason.DEPENDENCY_MISSING:
        assert advice["missing"] == "panda" and advice["similar"] == ["pandas"] and {"numpy", "pandas", "polars"} <= set(advice["offered"])
    if word is ExitReason.NETWORK_DENIED:
        assert advice["tool"] == "upload"
    if word is ExitReason.GENERATION_MISMATCH:
        assert what["generation"] > 1 and what["lost_because"]
    if word in (ExitReason.CAPACITY_EXHAUSTED, ExitReason.PLATFORM_FAULT):
        assert advice["retry_after_s"] > 0


@pytest.mark.parametrize("word", sorted(ENDS))
@pytest.mark.parametrize("profile", PROFILES)
def test_end_of_a_sandbox(seen: dict[str, dict[str, Any]], profile: str, word: EndReason) -> None:
    if word in CONTAINER_ONLY and profile != "container":
        pytest.skip("no policy forbids this profile")
    what = found(seen, profile, word)
    assert what["reason"] == word, what
    assert what["state"] == ("ended" if word in (EndReason.ADMIN, EndReason.RETENTION) else "dormant")


def test_what_ran_when_the_maximum_came_is_told(seen: dict[str, dict[str, Any]]) -> None:
    for profile in seen:
        assert found(seen, profile, "cut by the maximum")["exit_reason"] == "sandbox_ended"
