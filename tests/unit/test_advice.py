"""Advice for every exit reason; a missing module is named, and what the image offers instead."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from gateway.domain.advice import ADVICE, Retry, advise
from gateway.domain.execution import SENTENCES, next_action, status
from gateway.domain.model import EndReason, ExitReason, NextAction
from gateway.domain.texts import WHY_ENDED
from gateway.local import ROOT, image_packages

PACKAGES = ("numpy", "pandas", "pillow", "scikit-learn")


def test_every_word_has_a_sentence_a_status_an_action_and_advice() -> None:
    assert set(SENTENCES) == set(ExitReason) and set(ADVICE) == set(ExitReason) - {ExitReason.OK} and set(WHY_ENDED) == set(EndReason)
    for reason in ExitReason:
        found, action = advise(reason), next_action(reason)
        if reason is ExitReason.OK:
            assert found is None and action is None and status(reason) == "ok"
            continue
        assert found is not None and isinstance(action, NextAction)
        assert isinstance(found["retry"], Retry) and found["text"].endswith(".")
        assert ("retry_after_s" in found) == (action is NextAction.RETRY_AFTER), reason
        assert (found["retry"] is Retry.REBUILT) == (action is NextAction.REBUILD), reason
        assert next_action(reason, 3) is NextAction.STOP
    assert {next_action(r) for r in ExitReason} == set(NextAction) | {None}


@pytest.mark.parametrize(
    ("said", "missing", "similar"),
    [
        ("No module named 'tensorflow'", "tensorflow", []),
        ("No module named 'panda'", "panda", ["pandas"]),
        ("No module named 'sklearns'", "sklearns", ["scikit-learn"]),
        ("No module named 'PIL2'", "PIL2", ["pillow"]),
        ("No module named 'numpy.wrong'; 'numpy' is not a package", "numpy.wrong", ["numpy"]),
        ("No module named ''", None, []),
        ("something else <script>", None, []),
        ("No module named '" + "x" * 5000, None, []),
    ],
)
def test_a_missing_module_is_named(said: str, missing: str | None, similar: list[str]) -> None:
    found = advise(ExitReason.DEPENDENCY_MISSING, said, PACKAGES)
    assert found is not None
    assert (found["missing"], found["similar"], found["offered"]) == (missing, similar, list(PACKAGES))
    if missing:
        assert found["text"].startswith(f"{missing} is not in the image; it offers numpy, pandas")
    unknown = advise(ExitReason.DEPENDENCY_MISSING, said)
    assert unknown is not None and unknown["offered"] == [] and "offers" not in unknown["text"].split(". ")[0]


def test_no_network_names_what_to_use_instead() -> None:
    found = advise(ExitReason.NETWORK_DENIED)
    assert found is not None and found["tool"] == "upload" and "/files/in/" in found["text"]


def test_the_images_packages_are_known_by_its_lock(tmp_path: Path) -> None:
    loader = SourceFileLoader("kernel_image_build", str(ROOT / "kernel-image" / "build"))
    spec = importlib.util.spec_from_loader("kernel_image_build", loader)
    assert spec is not None
    build = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = build
    try:
        loader.exec_module(build)
        lock = build.digest(build.named("requirements.lock"))
    finally:
        del sys.modules[spec.name]
    found = image_packages(lock)
    assert {"numpy", "pandas", "scikit-learn"} <= set(found) and list(found) == sorted(found)
    assert image_packages("another") == ()
    assert image_packages(lock, tmp_path / "requirements.in") == (), "a gateway without the image's sources says nothing"
