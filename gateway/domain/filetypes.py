"""What a file is by its first bytes, and whether its name says so. Pure.

``gateway.service.sniffing`` asks a library first; here stand the formats of data work that it does not know, the one thing
that it cannot know (whether bytes are text), and the rule that holds a name to a type. The rule is strict where a format
has an unmistakable beginning and lenient elsewhere: text in any encoding may carry any text's name, and a name without a
known ending may hold anything.
"""

from __future__ import annotations

import codecs
import mimetypes
from collections.abc import Mapping

SNIFF_BYTES = 4096
"""The beginning of a file that is looked at."""
UNKNOWN = "application/octet-stream"
TEXT = "text/plain"
EMPTY = "inode/x-empty"
ZIP, GZIP, BZIP2, XZ, TAR = "application/zip", "application/gzip", "application/x-bzip2", "application/x-xz", "application/x-tar"
SEVEN_ZIP, RAR, ZSTD, LZ4 = "application/x-7z-compressed", "application/vnd.rar", "application/zstd", "application/x-lz4"
OLE = "application/x-ole-storage"
PROGRAM = "application/x-executable"

CHECKABLE = frozenset((ZIP, GZIP, BZIP2, XZ, TAR))
"""Archives and compressed files that ``domain.archives`` can look into."""
ARCHIVES = CHECKABLE | {SEVEN_ZIP, RAR, ZSTD, LZ4}

_BEGINNINGS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", ZIP), (0, b"PK\x05\x06", ZIP), (0, b"\x1f\x8b", GZIP), (0, b"BZh", BZIP2), (0, b"\xfd7zXZ\0", XZ),
    (257, b"ustar", TAR), (0, b"7z\xbc\xaf\x27\x1c", SEVEN_ZIP), (0, b"Rar!\x1a\x07", RAR), (0, b"\x28\xb5\x2f\xfd", ZSTD),
    (0, b"\x04\x22\x4d\x18", LZ4), (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),
    (0, b"\x7fELF", PROGRAM), (0, b"MZ", PROGRAM), (0, b"\xcf\xfa\xed\xfe", PROGRAM), (0, b"\xce\xfa\xed\xfe", PROGRAM),
    (0, b"\xca\xfe\xba\xbe", PROGRAM), (0, b"\0asm", "application/wasm"),
    (0, b"PAR1", "application/vnd.apache.parquet"), (0, b"ARROW1", "application/vnd.apache.arrow.file"),
    (0, b"FEA1", "application/vnd.apache.arrow.file"), (0, b"Obj\x01", "application/avro"),
    (0, b"\x93NUMPY", "application/x-npy"), (0, b"\x89HDF\r\n\x1a\n", "application/x-hdf5"),
    (0, b"SQLite format 3\0", "application/vnd.sqlite3"), (0, b"BM", "image/bmp"), (4, b"ftypavif", "image/avif"),
)  # fmt: skip
"""Place, bytes, type; only for what is not text. The library knows some of them, under other names or several at once."""
_ALIASES: Mapping[str, str] = {
    "application/x-gzip": GZIP, "image/x-ms-bmp": "image/bmp", "application/x-sqlite3": "application/vnd.sqlite3",
    "application/vnd.microsoft.portable-executable": PROGRAM, "application/java": PROGRAM, "audio/x-wav": "audio/wave",
    "application/x-rar-compressed": RAR,
}  # fmt: skip
_TEXT_FORMATS = frozenset(("application/pdf", "application/postscript", "application/rtf", "text/html", "image/svg+xml", "application/xml"))
"""Formats that begin as text does, and are more than text; of anything else the library may only have guessed a word."""
_TAGS = ((b"<!doctype html", "text/html"), (b"<html", "text/html"), (b"<script", "text/html"), (b"<svg", "image/svg+xml"))
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
          (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))  # fmt: skip
_NOT_IN_TEXT = frozenset(range(32)) - frozenset(b"\t\n\r\f\b\x1b") | {0x7F}

_OFFICE = ("xlsx", "xlsm", "xlsb", "docx", "docm", "pptx", "pptm", "odt", "ods", "odp", "npz", "whl", "jar", "egg", "kmz", "epub")
_BY_NAME = mimetypes.MimeTypes()
"""Python's own table: what a host's ``/etc/mime.types`` says must not change a record."""
_OOXML, _ODF = "application/vnd.openxmlformats-officedocument", "application/vnd.oasis.opendocument"
for _ending, _mime in (
    ("md", "text/markdown"), ("yaml", "application/yaml"), ("yml", "application/yaml"), ("toml", "application/toml"),
    ("ipynb", "application/x-ipynb+json"), ("jsonl", "application/jsonl"), ("geojson", "application/geo+json"),
    ("parquet", "application/vnd.apache.parquet"), ("xlsx", f"{_OOXML}.spreadsheetml.sheet"), ("docx", f"{_OOXML}.wordprocessingml.document"),
    ("pptx", f"{_OOXML}.presentationml.presentation"), ("odt", f"{_ODF}.text"), ("ods", f"{_ODF}.spreadsheet"),
    ("odp", f"{_ODF}.presentation"), ("xls", "application/vnd.ms-excel"), ("doc", "application/msword"), ("ppt", "application/vnd.ms-powerpoint"),
    ("csv", "text/csv"), ("py", "text/x-python"), ("js", "text/javascript"),
):  # fmt: skip
    _BY_NAME.add_type(_mime, f".{_ending}")
_TEXT_NAMES = (
    "txt", "csv", "tsv", "md", "rst", "json", "jsonl", "ndjson", "geojson", "ipynb", "py", "r", "jl", "sql", "yaml", "yml", "toml", "ini",
    "cfg", "log", "xml", "html", "htm", "css", "js", "sh", "tex", "bib",
)  # fmt: skip
_NAMES: dict[str, frozenset[str]] = {
    "png": frozenset({"image/png"}), "gif": frozenset({"image/gif"}), "bmp": frozenset({"image/bmp"}), "webp": frozenset({"image/webp"}),
    "avif": frozenset({"image/avif"}), "pdf": frozenset({"application/pdf"}), "zip": frozenset({ZIP}), "tar": frozenset({TAR}),
    "7z": frozenset({SEVEN_ZIP}), "rar": frozenset({RAR}), "zst": frozenset({ZSTD}), "lz4": frozenset({LZ4}),
    "parquet": frozenset({"application/vnd.apache.parquet"}), "npy": frozenset({"application/x-npy"}),
    "avro": frozenset({"application/avro"}), "arrow": frozenset({"application/vnd.apache.arrow.file", UNKNOWN}),
    "feather": frozenset({"application/vnd.apache.arrow.file"}), "sqlite": frozenset({"application/vnd.sqlite3"}),
    "svg": frozenset({"image/svg+xml", "application/xml", TEXT, "text/html"}),
    # what many programs call a workbook or a document is a table of HTML, or text
    "xls": frozenset({OLE, ZIP, "text/html", TEXT, "application/xml"}),
    "doc": frozenset({OLE, ZIP, "text/html", TEXT, "application/rtf", "application/xml"}),
    "ppt": frozenset({OLE, ZIP}),
    **dict.fromkeys(("jpg", "jpeg"), frozenset({"image/jpeg"})), **dict.fromkeys(("tif", "tiff"), frozenset({"image/tiff"})),
    **dict.fromkeys(("gz", "tgz"), frozenset({GZIP})), **dict.fromkeys(("bz2", "tbz2"), frozenset({BZIP2})),
    **dict.fromkeys(("xz", "txz"), frozenset({XZ})),
    # an office file under a password is an OLE one
    **dict.fromkeys(_OFFICE, frozenset({ZIP, OLE})),
}  # fmt: skip


def is_text(head: bytes) -> bool:
    """Whether this beginning of a file is text: UTF-8 without odd control characters (cut anywhere), or marked as UTF-16 or -32."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return _decodes(head, encoding)
    return not _NOT_IN_TEXT.intersection(head) and _decodes(head, "utf-8")


def _decodes(head: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def ending_of(path: str) -> str:
    """The name's last ending, in lower case; empty when it has none: ``out/A.tar.GZ`` -> ``gz``."""
    name = path.rpartition("/")[2].lstrip(".")
    return name.rpartition(".")[2].lower() if "." in name else ""


def type_of(head: bytes, path: str, known: str = "") -> str:
    """The file's MIME type by its content; its name only says which one of a family it is.

    ``known``: what the library makes of ``head``, or empty. A workbook is a ZIP by its content, and is named as a workbook
    where its name says so; a CSV is text. An empty file is what its name says.
    """
    known, named, ending = _ALIASES.get(known, known), _named(path), ending_of(path)
    if not head:
        return named or EMPTY
    if is_text(head):
        if found := _markup(head):
            return found
        if known in _TEXT_FORMATS:
            return known
        return named if ending in _TEXT_NAMES and named else TEXT
    found = is_kind(head) or known or UNKNOWN
    if found == UNKNOWN and ending in _TEXT_NAMES and not _NOT_IN_TEXT.intersection(head):
        return named or TEXT  # some older encoding
    return named if named and found in (ZIP, OLE) and found in _NAMES.get(ending, ()) else found


def _markup(head: bytes) -> str:
    """HTML or SVG, whatever comes before its first tag; empty for anything else."""
    low = head.removeprefix(codecs.BOM_UTF8).lstrip().lower()
    if not low.startswith(b"<"):
        return ""
    found = [(low.find(mark), mime) for mark, mime in _TAGS if mark in low]
    return min(found)[1] if found else ""


def is_kind(head: bytes) -> str:
    """The type that an unmistakable beginning gives away, whatever the name; empty when there is none."""
    return next((mime for place, mark, mime in _BEGINNINGS if head.startswith(mark, place)), "")


def fits(mime: str, path: str) -> bool:
    """Whether a file of this type (as ``type_of`` names it) may have this name. Names without a known ending fit everything."""
    ending = ending_of(path)
    if mime == EMPTY:
        return True
    if ending in _TEXT_NAMES:
        return mime.startswith("text/") or mime in _TEXT_FORMATS or mime in (UNKNOWN, _named(path))
    expected = _NAMES.get(ending)
    return expected is None or mime in expected or (not expected.isdisjoint((ZIP, OLE)) and mime == _named(path))


def _named(path: str) -> str:
    named, packed = _BY_NAME.guess_type(path.rpartition("/")[2], strict=False)
    return "" if packed else named or ""
