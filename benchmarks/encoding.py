"""Bytes and speed of the encodings of updates (``make bench-encoding``).

A change of the parameters of ResNet18 (44.7 MB), of the size that a round's training makes, is rounded, encoded and decoded, chunk by chunk, in one
thread. GB/s are of float32 bytes. Floor: a copy of the same bytes in the same run.
"""

import argparse
import json
import statistics
import sys
from collections import deque
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from time import process_time

import numpy as np
from numpy.typing import NDArray

from anchorage.transport.tensors.chunks import spans
from anchorage.transport.tensors.codings import BFloat16Coding, BlockCoding, Coding, TopCoding
from anchorage.transport.tensors.encoded import Encoding
from anchorage.transport.tensors.layout import Layout

REPETITIONS = 5
CODINGS = {
    "bFloat16": BFloat16Coding(),
    "int8": BlockCoding(bits=8),
    "int4": BlockCoding(bits=4),
    "topK 0.01": TopCoding(share=Fraction(1, 100)),
}


def layout() -> Layout:
    """Return the layout of torchvision's ResNet18 with ten classes."""
    import torchvision

    model = torchvision.models.resnet18(num_classes=10)
    return Layout.of([(name, "F32", tuple(tensor.shape)) for name, tensor in model.named_parameters()])


def seconds(work: Callable[[], object]) -> float:
    """Return the median CPU time of a call: what else the machine does counts little."""
    times = []
    for _ in range(REPETITIONS):
        start = process_time()
        work()
        times.append(process_time() - start)
    return statistics.median(times)


def measure(coding: Coding, tensors: Layout, base: NDArray[np.uint8], update: NDArray[np.uint8]) -> dict[str, float]:
    """Return share of the bytes, and GB/s of rounding at the silo, encoding, and decoding at the server."""
    encoding, all_spans = Encoding(coding, tensors, tensors), spans(tensors.nbytes)
    encoding.round_update(update, base)
    rounding = seconds(lambda: encoding.round_update(update, base))  # rounding twice is rounding once
    codes = [encoding.encode(i, update[a:b].data, base[a:b].data) or b"" for i, (a, b) in enumerate(all_spans)]
    if update.tobytes() != b"".join(decoded(encoding, codes, base)):
        raise SystemExit(f"{coding}: what was decoded is not what was rounded")
    encoded = seconds(
        lambda: [encoding.encode(i, update[a:b].data, base[a:b].data) for i, (a, b) in enumerate(all_spans)]
    )
    back = seconds(lambda: deque(decoded(encoding, codes, base), maxlen=0))  # a chunk is written away before the next
    gigabytes = tensors.nbytes / 1e9
    return {
        "share": sum(map(len, codes)) / tensors.nbytes,
        "round_gb_s": gigabytes / rounding,
        "encode_gb_s": gigabytes / encoded,
        "decode_gb_s": gigabytes / back,
    }


def decoded(encoding: Encoding, codes: list[bytes], base: NDArray[np.uint8]) -> Iterator[bytes]:
    """Yield the chunks that encoded ones stand for."""
    return (encoding.decode(i, codes[i], base[a:b].data) for i, (a, b) in enumerate(spans(encoding.up.nbytes)))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    tensors, draw = layout(), np.random.default_rng(0)
    values = draw.standard_normal(tensors.nbytes // 4, np.float32) * np.float32(0.05)
    change = draw.standard_normal(len(values), np.float32) * np.float32(0.002)
    base, update = values.view(np.uint8), (values + change).view(np.uint8)
    floor = tensors.nbytes / 1e9 / seconds(update.copy)
    rows = {name: measure(coding, tensors, base, update.copy()) for name, coding in CODINGS.items()}
    print(f"{tensors.nbytes / 1e6:.1f} MB; a copy: {floor:.1f} GB/s")
    for name, row in rows.items():
        speeds = ", ".join(f"{key.removesuffix('_gb_s')} {row[key]:.2f} GB/s" for key in row if key != "share")
        print(f"{name}: {row['share']:.1%} of the bytes, {speeds}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"floor_gb_s": floor, **rows}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
