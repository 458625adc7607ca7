"""Decoding of DICOM and NIfTI beside the libraries alone: ``make bench-scans``.

Decodes the real files of ANCHORAGE_DATA (dicom, hippocampus) once by pydicom and nibabel alone, to values in memory, and once as a trainer does, to
224 pixels by the model's intensity; in turn, the best of several times each. Then it reads the headers of `--exported` copies of the DICOM files, as
a silo does at its first start and, with the store of the first, at its second.
"""

import argparse
import gzip
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from pydicom.pixels import pixel_array

from anchorage.learning.data.decoders import decode_content, decoder_for, decoders
from anchorage.learning.data.decoding import Input, RefusedImageError
from anchorage.learning.data.intensity import intensity_of

DATA = Path(os.environ.get("ANCHORAGE_DATA", "../shared/data"))
SIDE = 224
SHADES = intensity_of({"percentiles": {"low": "0.5", "high": "99.5"}})


def product(contents: dict[str, bytes]) -> None:
    """Decode the first frame or slice of each file, to the values that an intensity shows."""
    for name, content in contents.items():
        decoders()[decoder_for(content, name) or ""].picture(content, Input(SIDE, 1), 0)


def trainer(contents: dict[str, bytes]) -> None:
    """Decode each file as a trainer does: shown by an intensity, and resized."""
    for name, content in contents.items():
        decode_content(content, name, Input(SIDE, 1, SHADES))


def by_pydicom(contents: dict[str, bytes]) -> None:
    """Decode the first frame of each file by pydicom."""
    for content in contents.values():
        pixel_array(io.BytesIO(content), index=0)


def by_nibabel(contents: dict[str, bytes]) -> None:
    """Read each volume by nibabel."""
    for content in contents.values():
        np.asanyarray(nibabel.Nifti1Image.from_bytes(gzip.decompress(content)).dataobj)


def in_turn(one: Callable[[], None], other: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Return the least seconds of two calls that are made in turn; GDCM's process counts, so it is no processor time."""
    seconds: tuple[list[float], list[float]] = [], []
    for _ in range(repeats):
        for work, durations in zip((one, other), seconds, strict=True):
            start = time.perf_counter()
            work()
            durations.append(time.perf_counter() - start)
    return min(seconds[0]), min(seconds[1])


def usable(files: list[Path]) -> dict[str, bytes]:
    """Return the files that are images which are read."""
    contents = {}
    for file in files:
        try:
            trainer({file.name: file.read_bytes()})
        except RefusedImageError:
            continue
        contents[file.name] = file.read_bytes()
    return contents


START = """
import sys, time
from pathlib import Path
from anchorage.learning.data.headers import read_headers
from anchorage.learning.data.stored_headers import headers_stored_in
files = sorted(Path(sys.argv[1]).iterdir())
start = time.perf_counter()
with headers_stored_in(Path(sys.argv[2])):
    read = list(read_headers(files))
print(time.perf_counter() - start)
assert len(read) == len(files) and all(read)
"""


def starts(contents: dict[str, bytes], count: int) -> list[float]:
    """Return the seconds in which each of two processes, one after the other, has the headers of so many files."""
    with tempfile.TemporaryDirectory(prefix="anchorage-bench-") as folder:
        exported = Path(folder) / "exported"
        exported.mkdir()
        for row, content in zip(range(count), itertools.cycle(contents.values())):
            (exported / f"I{row:07d}").write_bytes(content)
        command = [sys.executable, "-c", START, str(exported), str(Path(folder) / "headers")]
        return [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(2)]


def main() -> None:
    """Print files per second and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--exported", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not (DATA / "dicom").is_dir():
        raise SystemExit(f"{DATA / 'dicom'} is not there: set ANCHORAGE_DATA")
    warnings.simplefilter("ignore")
    dicom = usable(sorted((DATA / "dicom").glob("*.dcm")))
    volumes = usable(sorted((DATA / "hippocampus" / "images").glob("*.nii.gz"))[:100])
    report: dict[str, dict[str, Any]] = {}
    for name, contents, alone in (("DICOM", dicom, by_pydicom), ("NIfTI", volumes, by_nibabel)):
        library, values = in_turn(partial(alone, contents), partial(product, contents), arguments.repeats)
        _, network_input = in_turn(partial(alone, contents), partial(trainer, contents), arguments.repeats)
        figures = {"library": library, "to_values": values, "to_network_input": network_input}
        report[name] = {
            "files": len(contents),
            "per_second": {of: len(contents) / took for of, took in figures.items()},
        }
        print(
            f"{name}: {len(contents)} files; per second {len(contents) / library:.0f} by the library alone, {len(contents) / values:.0f} decoded to "
            f"values ({library / values:.2f}), {len(contents) / network_input:.0f} shown and resized to {SIDE} pixels ({library / network_input:.2f})"
        )
    first, second = starts(
        {name: content for name, content in dicom.items() if len(content) < 200_000}, arguments.exported
    )
    report["headers"] = {"files": arguments.exported, "first_start_s": first, "second_start_s": second}
    print(f"headers of {arguments.exported} files: {first:.1f} s at the first start, {second:.2f} s at the second")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
