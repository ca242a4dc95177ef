"""Where the S3 store is and how long it is waited for; without the client library, for the settings are read everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1024**2


@dataclass(frozen=True, slots=True)
class S3Settings:
    """``endpoint``: host and port; empty means that there is no S3 store. ``ca_file``: empty takes the system's authorities."""

    endpoint: str = ""
    bucket: str = ""
    region: str = "us-east-1"
    prefix: str = "sandglass"
    access_key: bytes = field(default=b"", repr=False)
    secret_key: bytes = field(default=b"", repr=False)
    secure: bool = True
    ca_file: str = ""
    create_bucket: bool = False
    encryption: str = "none"

    def key(self, folder: str, name: str) -> str:
        return f"{self.prefix}/{folder}/{name}"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. ``connect_s``, ``read_s``: one silence on the connection. ``deadline_s``: one call of ours with all its repetitions.

    Between two tries: a random time below ``first_s``, doubled each time up to ``most_s`` (full jitter). ``leftover_s``: an
    upload as old as that was left by a gateway that was killed. ``copied_a_s``: bytes a second that a server copies at the least.
    """

    connect_s: float = 5.0
    read_s: float = 20.0
    deadline_s: float = 30.0
    first_s: float = 0.1
    most_s: float = 5.0
    leftover_s: float = 86400.0
    copied_a_s: float = 8 * MIB

    def pause(self, tries: int, random: float) -> float:
        """Before the next one after so many; ``random`` in [0, 1)."""
        return random * min(self.most_s, self.first_s * 2.0 ** min(tries, 32))
