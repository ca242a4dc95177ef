"""Hostile declared files, through a recycle: what is kept, what is told, and what is handed out."""

from __future__ import annotations

from tests.abuse.attacks import OUT, attack
from tests.abuse.through import Attack

TARGET = "what a link leads to"


def _plant(a: Attack, code: str) -> None:
    a.fresh()
    done = a.run(OUT + code)
    assert done["exit_reason"] == "ok", done


def _back(a: Attack, *gone: str) -> None:
    """The next sandbox starts with what was kept, and none of the names ``gone`` is there."""
    done = a.run(f"import os\nprint([n for n in {gone!r} if os.path.lexists('/workspace/out/' + n)])")
    assert done["stdout"].strip() == "[]", done


@attack
def files_links(a: Attack) -> None:
    _plant(a, f"""
open("/workspace/target", "w").write({TARGET!r}); open("/tmp/elsewhere", "w").write({TARGET!r})
os.symlink("/etc/passwd", "absolute"); os.symlink("../target", "relative"); os.symlink("/workspace", "folder"); os.symlink("/proc/self/environ", "proc")
os.symlink("loop", "loop"); os.link("/workspace/target", "hard"); os.mkdir("d"); os.symlink("/tmp", "d/up"); open("good", "w").write("good")
""")
    a.recycle()
    kept = a.kept()
    assert "out/good" in kept and set(kept) <= {"out/good", "out/hard"}, kept
    refused = {row["path"] for row in a.call("GET", "/files", expect=200).json()["refused"]}
    assert not refused & set(kept)
    _back(a, "absolute", "relative", "folder", "proc", "loop", "d/up")
    # out/ itself as a link
    _plant(a, "import shutil\nos.chdir('/workspace'); shutil.rmtree('out'); os.mkdir('/tmp/real'); open('/tmp/real/x', 'w').write('x')\nos.symlink('/tmp/real', 'out')")
    a.recycle()
    assert a.kept() == {}


@attack
def files_special(a: Attack) -> None:
    _plant(a, """
import socket
os.mkfifo("fifo"); s = socket.socket(socket.AF_UNIX); s.bind("sock"); os.mkdir("folder.csv"); open("good", "w").write("g"); open("shut", "w").write("s"); os.chmod("shut", 0)
""")  # fmt: skip
    rows = a.call("GET", "/files", expect=200).json()
    assert {row["path"]: row["reason"] for row in rows["refused"] if row["path"] in ("out/fifo", "out/sock")}.keys() == {"out/fifo", "out/sock"}, rows
    assert a.call("GET", "/files/out/fifo").status_code in (400, 404, 409, 422)
    a.recycle()
    assert set(a.kept()) <= {"out/good", "out/shut"} and "out/good" in a.kept()
    _back(a, "fifo", "sock")


@attack
def files_sparse(a: Attack) -> None:
    _plant(a, """
open("good", "w").write("g")
for name, size in (("tera", 1 << 40), ("large", 300 << 20), ("most", (1 << 63) - 4096)):
    with open(name, "wb") as f:
        try: f.truncate(size)
        except OSError: pass
""")
    a.recycle()
    assert set(a.kept()) == {"out/good"}, a.kept()


@attack
def files_swapped(a: Attack) -> None:
    """A daemon swaps while checkpoints and a recycle read; what is kept is one of the versions that were written as files."""
    _plant(a, f"""
import time
open("/workspace/target", "w").write({TARGET!r} * 1000)
if os.fork() == 0:
    os.setsid()
    n = 0
    while True:
        n += 1
        for name in ("a", "b", "c"):
            try:
                os.symlink("/workspace/target", name + ".new"); os.rename(name + ".new", name)
                with open(name + ".new", "wb") as f: f.write(bytes([65 + n % 26]) * 3_000_000)
                os.rename(name + ".new", name)
                os.rename(name, name + "x"); os.mkdir(name); os.rmdir(name); os.rename(name + "x", name)
                os.mkfifo(name + ".f"); os.rename(name + ".f", name); os.unlink(name)
            except OSError: time.sleep(0.001)
time.sleep(1)
""")
    for _ in range(3):
        a.call("GET", "/files", expect=200)
        a.call("GET", "/files/out/a")
        a.run("import time; time.sleep(0.3)")
    a.recycle()
    for path, row in a.kept().items():
        data = a.bytes_of(row)
        assert TARGET.encode() not in data and len(set(data)) <= 1, (path, data[:100])
    a.run("1")


NAMES = ("new\nline", "tab\t", "\x1b[31mred", "\u202egnp.exe", "..", "...", " ", "a" * 255, "-rf", "con", "<img src=x onerror=alert(1)>", "%2e%2e", "a;b", 'q"uote',
         "back\\slash", "\u00e4\u58f2.csv", "e\u0301", "\x7f", "*", "?", "a\u2028b", "\ufeffbom", "~", "$(id)", "`id`", "null\u0000"[:4])  # fmt: skip


@attack
def files_names(a: Attack) -> None:
    _plant(a, f"""
for name in {NAMES!r}:
    try: open(name, "w").write("n")
    except OSError: pass
open(b"bad\\xff\\xfe", "w").write("n"); open(b"\\xed\\xa0\\x80", "w").write("n")
d = "deep"
for _ in range(60):
    os.mkdir(d); d += "/d"
open("ok.csv", "w").write("a,b")
""")
    a.told()
    a.recycle()
    a.told()
    kept = a.kept()
    assert "out/ok.csv" in kept
    for path, row in kept.items():
        assert not any(ord(c) < 32 or ord(c) == 127 for c in path), repr(path)
        response = a.gateway.call("GET", f"/api/v1/artifacts/{row['artifact_id']}", user="mallory")
        header = response.headers.get("Content-Disposition", "attachment")
        assert header.startswith("attachment") and header.isascii() and "\n" not in header, header
    done = a.run(f"import os\nprint(len(os.listdir('/workspace/out')) <= {len(NAMES) + 4}, os.path.exists('/workspace/out/ok.csv'))")
    assert done["stdout"].strip() == "True True", done


@attack
def files_many(a: Attack) -> None:
    _plant(a, """
n = 0
try:
    for n in range(50_000): open(f"f{n}", "w").close()
except OSError: pass
""")
    rows = a.call("GET", "/files", expect=200)
    assert len(rows.content) < 16_000_000
    a.call("DELETE", "", expect=202)
    a.session = ""


@attack
def files_markup(a: Attack) -> None:
    _plant(a, """
page = b"<!doctype html><script>fetch('/api/v1/me')</script>"
svg = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(1)</script></svg>"
png = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c63000100000500010d0a2db40000000049454e44ae426082")
for name, data in {"page.html": page, "picture.svg": svg, "page.png": page, "polyglot.png": png + page, "gif.html": b"GIF89a/*" + page, "report.pdf": b"%PDF-1.4\\n" + page,
                   "run.png": b"\\x7fELF" + bytes(100), "run.csv": b"MZ" + bytes(100), "plain.txt": page, "both.zip": png + b"PK\\x05\\x06" + bytes(18)}.items():
    open(name, "wb").write(data)
""")
    a.recycle()
    kept = a.kept()
    assert len(kept) >= 8, kept
    for path, row in kept.items():
        data = a.bytes_of(row)  # checks the headers
        if path in ("out/run.png", "out/run.csv", "out/page.png"):
            assert not row["mime"].startswith(("image/", "text/csv")), row
            assert data[:4] not in (b"\x7fELF", b"MZ\0\0"), "a program under another kind's name was handed out"


@attack
def files_bombs(a: Attack) -> None:
    """The picture says 30,000 x 30,000 pixels; the archives unpack to some hundred megabytes, one within another."""
    _plant(a, """
import gzip, io, struct, zipfile, zlib
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = zlib.compress(bytes(20_000_000), 9)
open("bomb.png", "wb").write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
zeros = bytes(10_000_000)
with gzip.open("bomb.gz", "wb") as z:
    for _ in range(20): z.write(zeros)
inner = io.BytesIO()
with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as z: z.writestr("a", zeros * 5)
with zipfile.ZipFile("nested.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for n in range(20): z.writestr(f"{n}.zip", inner.getvalue())
with zipfile.ZipFile("climb.zip", "w") as z: z.writestr("../../x", "x")
""")
    a.recycle()
    kept = a.kept()
    for name in ("bomb.gz", "nested.zip", "climb.zip"):
        if row := kept.get("out/" + name):
            assert a.bytes_of(row) == b"", f"{name} was handed out: {row}"
    a.run("1")
