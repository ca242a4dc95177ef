"""``list_files``, ``upload``, ``download``, ``declare_files``."""

from __future__ import annotations

import base64
import binascii
import mimetypes
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from ..errors import BadRequest
from .answers import PICTURE_TYPES, Answer
from .arguments import DeclareFiles, Download, ListFiles, Upload
from .call import Call

Json = dict[str, Any]
MOST_FILES = 300
MOST_PICTURE_BYTES = 1024**2
_CHUNK = 64 * 1024


async def list_files(call: Call, args: ListFiles) -> Answer:
    session = await call.find(args.session)
    listed = await session.list_files()
    files = [f for f in listed["files"] if f["path"].startswith(args.under)]
    shown = files[:MOST_FILES]
    names = ("path", "size", "declared", "stored", "held_back")
    fields: Json = {
        "files": [{n: f[n] for n in names if n in f} for f in shown],
        "refused": listed["refused"][:MOST_FILES],
        "live": listed["live"],
        "truncated": listed["truncated"] or len(files) > len(shown),
    }
    where = "" if listed["live"] else ", stored ones: there is no sandbox now"
    lines = [f"{len(files)} files{where}.{' The list is cut.' if fields['truncated'] else ''}"]
    table = [f"{f['size']:>12} {'kept' if f['declared'] else 'lost with the sandbox':<21} {f['path']!r}" for f in shown]
    return Answer(fields, lines, "\n".join(table))


async def upload(call: Call, args: Upload) -> Answer:
    data = args.text.encode("utf-8", "surrogatepass") if args.text is not None else _decoded(args.base64 or "")
    session = await call.obtain(args.session)
    stored = await session.write_file(args.path, len(data), _chunks(data), overwrite=args.overwrite)
    return Answer({"file": stored}, [f"Stored {stored['path']}: {stored['size']} bytes, {stored['mime']}, sha256 {stored['sha256']}."])


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("The arguments are not right: base64: this is not base64.") from None


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), _CHUNK):
        yield data[at : at + _CHUNK]


async def download(call: Call, args: Download) -> Answer:
    session = await call.find(args.session)
    data, more = await _read(session.read_file(args.path), args.offset, args.max_bytes)
    mime = mimetypes.guess_type(args.path)[0] or "application/octet-stream"
    url = f"{call.service.url}/api/v1/sessions/{session.session_id}/files/{quote(args.path)}"
    fields: Json = {"path": args.path, "offset": args.offset, "bytes": len(data), "more": more, "mime": mime, "url": url}
    lines = [f"{len(data)} bytes of {args.path!r} from byte {args.offset}."]
    if more:
        lines.append(f"There is more: go on with offset {args.offset + len(data)}, or GET {url} with your token.")
    answer = Answer(fields, lines)
    whole = not more and args.offset == 0
    if whole and mime in PICTURE_TYPES and len(data) <= MOST_PICTURE_BYTES:
        answer.pictures.append((mime, base64.b64encode(data).decode()))
        return answer
    text = _text(data, begins=args.offset == 0, ends=not more)
    if text is not None:
        fields["text"] = answer.output = text
    else:
        fields["base64"] = base64.b64encode(data).decode()
        lines.append("It is not text: the structured content has it in base64.")
    return answer


async def _read(chunks: AsyncIterator[bytes], offset: int, most: int) -> tuple[bytes, bool]:
    """``most`` bytes from ``offset``, and whether there are more; what lies beyond is not read."""
    found = bytearray()
    skip = offset
    try:
        async for chunk in chunks:
            part = chunk[skip:]
            skip = max(0, skip - len(chunk))
            found += part
            if len(found) > most:
                return bytes(found[:most]), True
        return bytes(found), False
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


def _text(data: bytes, *, begins: bool, ends: bool) -> str | None:
    """The bytes as text where they are text; a character that the part's ends cut does not count against it."""
    for head in range(1 if begins else 4):
        for tail in range(1 if ends else 4):
            try:
                text = data[head : len(data) - tail].decode("utf-8")
            except UnicodeDecodeError:
                continue
            return None if "\0" in text else text
    return None


async def declare_files(call: Call, args: DeclareFiles) -> Answer:
    session = await call.obtain(args.session)
    declared = [await session.declare(pattern, args.keep, "agent") for pattern in args.patterns]
    word = "kept when the sandbox ends" if args.keep else "not kept"
    return Answer({"declarations": declared}, [f"Files that match {', '.join(repr(p) for p in args.patterns)} are {word}."])
