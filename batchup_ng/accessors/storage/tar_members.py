"""The members of a tar file, found by reading its headers.

Formats: ustar (POSIX.1-1988), pax (POSIX.1-2001), and GNU tar's extensions: names of any length, numbers in base 256.
The headers are described in the manual of GNU tar, "Basic Tar Format", and in POSIX under "pax".
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator

BLOCK_BYTES = 512

MAX_NAME_HEADER_BYTES = 1 << 20
"""Bytes of a header with the name of the next member, at most."""

FILE_TYPES = (b"0", b"\0", b"7")
NAME_TYPES = (b"x", b"X", b"L")
"""Headers for the next member: of pax, of Solaris, of GNU."""

MAX_PADDING_BYTES = 1 << 24
"""Zeros behind the end of a tar, at most. Writers fill up to a whole record, 10 kB unless another size is given."""

PADDING_STEP = 1 << 16
"""Bytes of the padding that are read at once."""

TYPES_WITHOUT_DATA = (b"1", b"2", b"3", b"4", b"5", b"6")
"""Links, devices, folders, pipes: they have no data, whichever size their header claims."""

PAX_RECORD = re.compile(rb"(\d{1,9}) ([^=]+)=")

COMPRESSED_TAR_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def members(read: Callable[[int, int], bytes], size: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield each plain file in a tar of `size` bytes: its name, its first byte, its number of bytes.

    Args:
        read: ``read(offset, n)`` returns `n` bytes at `offset`, fewer at the end of the tar.
        size: Bytes of the tar.

    Raises:
        ValueError: the file is not a tar, is compressed, claims more than there is, or holds a sparse file; or
            something follows its end.
    """
    position, name, length = 0, None, None
    while (header := read(position, BLOCK_BYTES)) and header.strip(b"\0"):
        _check(header, position)
        kind, start = header[156:157], position + BLOCK_BYTES
        nbytes = 0 if kind in TYPES_WITHOUT_DATA else _number(header[124:136])
        if length is not None and kind in FILE_TYPES:
            nbytes = length
        if not 0 <= nbytes <= size - start:
            raise ValueError(f"the member at byte {position} claims {nbytes} bytes, and {size - start} are left")
        position = start + (nbytes + BLOCK_BYTES - 1) // BLOCK_BYTES * BLOCK_BYTES
        if kind in NAME_TYPES:
            if nbytes > MAX_NAME_HEADER_BYTES:
                raise ValueError(
                    f"the header at byte {start - BLOCK_BYTES} has {nbytes} bytes, more than any name needs"
                )
            text = read(start, nbytes)
            fields = {b"path": text} if kind == b"L" else _records(text)
            name = fields.get(b"path", name)
            length = int(fields[b"size"]) if b"size" in fields else length
            sparse = any(field.startswith(b"GNU.sparse") for field in fields)
        else:
            sparse = kind == b"S"
            if kind in FILE_TYPES:
                yield (_name(header) if name is None else name).partition(b"\0")[0], start, nbytes
            if kind not in (b"g", b"K"):  # these headers are not the next member
                name = length = None
        if sparse:
            raise ValueError(
                f"the member at byte {start - BLOCK_BYTES} is a sparse file; write the tar without --sparse"
            )
    if not header:
        raise ValueError(f"it ends at byte {position}, without the zeros that end a tar: it is empty, or was cut short")
    _check_end(read, position, size)


def _check_end(read: Callable[[int, int], bytes], end: int, size: int) -> None:
    """Refuse a tar of `size` bytes if anything but a few zeros follows its end."""
    for start in range(end, min(size, end + MAX_PADDING_BYTES), PADDING_STEP):
        if (found := read(start, min(size - start, PADDING_STEP))).strip(b"\0"):
            behind = start + len(found) - len(found.lstrip(b"\0"))
            raise ValueError(
                f"it ends at byte {end}, and goes on at byte {behind}: it is damaged, or tars were joined, as by cat; "
                f"keep them as several files, or join them by tar --concatenate"
            )
    if size - end > MAX_PADDING_BYTES:
        raise ValueError(
            f"it ends at byte {end}, and {size - end} bytes follow: its download was not finished; fetch it again, or "
            f"cut it off at byte {end + 2 * BLOCK_BYTES} if it is whole"
        )


def _check(header: bytes, position: int) -> None:
    """Refuse a block that is not a header, by its checksum. For this sum, its own eight bytes count as spaces."""
    # The lower half of an Adler-32 is the sum of the bytes modulo 65,521. 256 bytes add up to less (RFC 1950).
    total = sum(zlib.adler32(part, 0) & 0xFFFF for part in (header[:148], header[156:256], header[256:])) + 8 * 32
    try:
        if len(header) == BLOCK_BYTES and _number(header[148:156]) == total:
            return
    except ValueError:
        pass
    found = [how for magic, how in COMPRESSED_TAR_MAGIC.items() if header.startswith(magic) and position == 0]
    if found:
        raise ValueError(f"it is compressed by {found[0]}, and members cannot be read in place; decompress it")
    raise ValueError(f"there is no header at byte {position}: it is no tar, is damaged, or was cut short")


def _number(field: bytes) -> int:
    """Return a number: octal digits, or base 256 if its first bit is set."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    return int(field.partition(b"\0")[0].strip() or b"0", 8)


def _name(header: bytes) -> bytes:
    name, prefix = header[:100].partition(b"\0")[0], b""
    if header[257:263] == b"ustar\0":  # GNU tar writes "ustar  ", and has other fields there
        prefix = header[345:500].partition(b"\0")[0]
    return prefix + b"/" + name if prefix else name


def _records(text: bytes) -> dict[bytes, bytes]:
    """Return the fields of a pax header: ``b"30 path=..."`` and a line end. The length counts the whole record."""
    fields, start = {}, 0
    while start < len(text):
        found = PAX_RECORD.match(text, start)
        end = start + int(found[1]) if found else 0
        if found is None or not found.end() < end <= len(text):
            raise ValueError("a pax header is damaged")
        fields[found[2]] = text[found.end() : end - 1]
        start = end
    return fields
