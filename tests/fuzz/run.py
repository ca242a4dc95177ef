"""``python -m tests.fuzz.run TARGET [--seconds N] [--corpus DIR]``: coverage-guided fuzzing of one target with atheris.

A file that broke a promise is left in the corpus directory as ``crash-*``; ``--replay FILE`` runs the target on it once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

NAMES = ("frames", "websocket", "archives")
_ARCHIVES = ("archive_streams", "archive_tar", "archive_zip", "archives")
MODULES = ("gateway.protocol", *(f"gateway.domain.{name}" for name in _ARCHIVES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("--seconds", type=int, default=10, help="how long; 0: until Ctrl-C")
    parser.add_argument("--corpus", type=Path, help="directory that keeps what was found to be interesting (default: a new one)")
    parser.add_argument("--replay", type=Path)
    options = parser.parse_args()
    with atheris.instrument_imports(include=list(MODULES), enable_loader_override=False):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[options.target]
    if options.replay:
        target.run(options.replay.read_bytes())
        print(f"{options.target}: held")
        return
    corpus = options.corpus or Path(tempfile.mkdtemp(prefix=f"sandglass-fuzz-{options.target}-"))
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (corpus / f"seed-{number:02d}").write_bytes(seed)
    arguments = [
        sys.argv[0], f"-max_total_time={options.seconds}", f"-max_len={target.max_len}", "-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1",
        f"-artifact_prefix={corpus}/", str(corpus),
    ]  # fmt: skip
    atheris.Setup(arguments, target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
