"""Images that the tests draw themselves."""

import csv
import struct
import zlib

import numpy as np
from PIL import Image


def draw(mode="RGB", size=(24, 18), seed=0):
    """Return noise in any of Pillow's modes that files have."""
    rng = np.random.default_rng(seed)
    width, height = size
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 65536, (height, width), dtype=np.uint16))
    colour = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
    if mode == "RGBA":
        colour.putalpha(128)
        return colour
    return colour.convert(mode)


def shade(value, size=(8, 8)):
    """Return a grey image that is darkest, `value`, in its first pixel and up to 15 lighter elsewhere."""
    width, height = size
    levels = np.minimum(value + np.arange(height * width) % 16, 255)
    return Image.fromarray(levels.astype(np.uint8).reshape(height, width))


def deep_png(pixels):
    """Return a PNG of 16 bits, which Pillow writes of grey alone, of [H, W, 1 to 4]: grey, grey and alpha, RGB, RGBA."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def deep_tiff(pixels, *, photometric=None, signed=False, planes=False):
    """Return a TIFF of 16 bits of [H, W, channels], without compression; `planes`: its channels lie one after the other."""
    height, width, channels = pixels.shape
    data = (pixels.transpose(2, 0, 1) if planes else pixels).astype("<i2" if signed else "<u2").tobytes()
    strips = channels if planes else 1
    size, first = len(data) // strips, 8 + 2 + 11 * 12 + 4
    photometric = photometric if photometric is not None else 1 if channels == 1 else 2
    tags = {
        256: [width], 257: [height], 258: [16] * channels, 259: [1], 262: [photometric], 273: None, 277: [channels], 278: [height],
        279: [size] * strips, 284: [2 if planes else 1], 339: [2 if signed else 1] * channels,
    }  # fmt: skip
    tags[273] = [first + 64 + strip * size for strip in range(strips)]
    entries, padding = b"", b""
    for tag, values in tags.items():
        raw = b"".join(struct.pack("<I", value) for value in values)
        place = raw if len(raw) == 4 else struct.pack("<I", first + len(padding))
        padding += raw if len(raw) > 4 else b""
        entries += struct.pack("<HHI", tag, 4, len(values)) + place
    assert len(padding) <= 64
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + padding.ljust(64, b"\0") + data


def fill(folder, count, *, suffix=".png", start=0):
    """Write so many images of different content; return their names without suffix."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"image{start + place:03d}" for place in range(count)]
    for place, name in enumerate(names):
        draw(seed=start + place).save(folder / f"{name}{suffix}")
    return names


def write_table(file, header, rows):
    """Write a CSV file."""
    with file.open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([header, *rows])
