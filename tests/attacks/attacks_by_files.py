"""Files that a hospital or a user is handed: small ones that are huge when they are decoded, pipes, and pickles in the place of weights."""

import gzip
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np
from attack_scripts import Place, held, refused, script
from attacked_federation import DEFECTS, command
from drawn_scans import deflated_zeros, write_dicom
from federation_documents import null_study
from federation_processes import Site

from anchorage.api.errors import commands, data, storage
from fedctl.configurations import write_server_config

MODEL = Path(__file__).parents[1] / "golden" / "model"
MOST_MEMORY = 200
"""MB that a process may need for all bombs together, above what it needs for one picture."""
FRAMES = 100_000
UNUSABLE = storage.TENSOR_FILE_UNUSABLE.code
_MOST_SECONDS = 120
_WATCHED = f"""
import resource, subprocess, sys
status = subprocess.run(sys.argv[2:], timeout={_MOST_SECONDS}).returncode
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
"""
"""Runs a command from a process that is small itself: what its child needs at most is not less than what it needed when it began it."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status, what it printed, and the most memory that it had, MB."""

    status: int
    printed: str
    errors: str
    memory: float


def watched(folder: Path, *arguments: object) -> Ended:
    """Run a command of fedctl to its end, and see that it has no defect."""
    file = folder / "memory"
    done = subprocess.run(
        [sys.executable, "-S", "-c", _WATCHED, file, sys.executable, "-m", "fedctl.main", *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    held(not any(defect in done.stderr for defect in DEFECTS), "the command has no defect", done.stderr[-500:])
    return Ended(done.returncode, done.stdout, done.stderr, int(file.read_text()) / 1024)


def _png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _huge_png(file: Path) -> None:
    """65,535 by 65,535 pixels, of which a few are there."""
    head = struct.pack(">IIBBBBB", 65535, 65535, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(1 << 20))), (b"IEND", b""))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(*part) for part in parts))


def _nifti_head(side: int) -> bytes:
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.float32)
    header.set_data_shape((side, side, side))
    header.set_sform(np.eye(4), 1)
    header["vox_offset"], header["magic"] = 352, b"n+1"
    return bytes(header.binaryblock) + bytes(4)


def _huge_nifti(file: Path) -> None:
    """32,767 voxels along each axis, of which none is there."""
    file.write_bytes(_nifti_head(32767))


def _zeros(file: Path, head: bytes = b"") -> None:
    """1 GiB of zeros, inflated from a megabyte."""
    with gzip.open(file, "wb", 1) as packed:
        packed.write(head)
        for _ in range(64):
            packed.write(bytes(16 << 20))


def _huge_gzip(file: Path) -> None:
    """The same behind the header of 32,767 voxels along each axis."""
    _zeros(file, _nifti_head(32767))


def _many_frames(file: Path) -> None:
    """A DICOM object that says to have 10^5 frames, and has one."""
    write_dicom(file, np.zeros((64, 64), np.uint16), NumberOfFrames=FRAMES)


def _deflated_dicom(file: Path) -> None:
    """1 GiB of zeros as a DICOM file that is deflated as a whole, and says so far behind its beginning."""
    syntax = b"1.2.840.10008.1.2.1.99"
    elements = ((3, b"1." * 2000), (0x10, syntax))
    meta = b"".join(struct.pack("<HH2sH", 2, number, b"UI", len(uid)) + uid for number, uid in elements)
    file.write_bytes(bytes(128) + b"DICM" + meta + deflated_zeros(1 << 30))


BOMBS: dict[str, Callable[[Path], None]] = {  # and a pipe, which never ends where somebody reads it
    "side.png": _huge_png,
    "sides.nii": _huge_nifti,
    "zeros.nii.gz": _zeros,
    "sides.nii.gz": _huge_gzip,
    "frames.dcm": _many_frames,
    "deflated.dcm": _deflated_dicom,
    "pipe.png": os.mkfifo,
}


def _good_picture(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return Path(shutil.copy(MODEL / "images" / "zero.png", folder / "good.png"))


def _within(ended: Ended, base: Ended) -> str:
    """Check the memory of a command on bombs, and return it in words."""
    beyond = ended.memory - base.memory
    held(
        beyond < MOST_MEMORY,
        f"all take less than {MOST_MEMORY} MB above the {base.memory:.0f} MB of one picture",
        beyond,
    )
    return f"{max(beyond, 0):.0f} MB above {base.memory:.0f} MB"


@script(quick=False, place=Place.SEPARATE)
def bombs_to_predict(folder: Path) -> str:
    """In a folder for `fedctl predict` they are named, and the good picture is predicted."""
    images = folder / "images"
    good = _good_picture(images)
    base = watched(folder, "predict", "-m", MODEL, good, "-o", "json")
    held(base.status == 0, "one picture is predicted", base.errors)
    for name, put in BOMBS.items():
        put(images / name)
    ended = watched(folder, "predict", "-m", MODEL, images, "-o", "json")
    answer = json.loads(ended.printed)
    held(
        [Path(each["image"]).name for each in answer["predictions"]] == [good.name], "the picture is predicted", answer
    )
    reasons = {Path(each["image"]).name: each["reason"] for each in answer["unusable"]}
    held(reasons.keys() == BOMBS.keys(), "each is named", reasons)
    held(ended.status == commands.IMAGES_UNUSABLE.exit_code, "the command says so", ended.errors)
    return f"{len(reasons)} named, the picture is predicted; {_within(ended, base)}"


SITE = """
kind: Federation
metadata: {name: tiny}
spec:
  rounds: 1
  task: {classification: {classes: [a, b]}}
  model: {network: LeafCnn, imageSize: 8, channels: 1}
  method: {name: FedAvg}
---
kind: Silo
metadata: {name: first}
spec: {federation: tiny, labels: All, managed: {data: {format: ImageFolder, claimName: first}}}
"""


@script(place=Place.SEPARATE)
def bombs_at_a_site(folder: Path) -> str:
    """In a hospital's folder they are counted and named by `fedctl data check`."""
    (folder / "site.yaml").write_text(SITE)
    for name in "ab":
        _good_picture(folder / "first" / name)
    base = watched(folder, "data", "check", "-f", "site.yaml", "-o", "json")
    for name, put in BOMBS.items():
        put(folder / "first" / "b" / name)
    ended = watched(folder, "data", "check", "-f", "site.yaml", "-o", "json")
    held(ended.status == data.BAD_IMAGES.exit_code, "the command says so", ended.errors)
    (report,) = json.loads(ended.printed).values()
    reasons = {Path(each["id"]).name: each["reason"] for each in report["bad"]}
    held(reasons.keys() == BOMBS.keys(), "each is named", reasons)
    held(report["usable"] == 2, "the pictures are of use", report["usable"])
    return f"{len(reasons)} named; {_within(ended, base)}"


@dataclass(frozen=True)
class Payload:
    """Unpickled, it makes a folder."""

    mark: Path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def _payload(folder: Path) -> tuple[bytes, Path]:
    """Return a pickle and the folder that is there once somebody has unpickled it."""
    mark = folder / "unpickled"
    content = pickle.dumps(Payload(mark))
    pickle.loads(content)  # noqa: S301 - its own
    held(mark.is_dir(), "the pickle does what it is for", content)
    mark.rmdir()
    return content, mark


def _refused_by(folder: Path, *arguments: object) -> str:
    """Return the code with which a command ends."""
    done = command("fedctl.main", *arguments, folder=folder)
    held(done.returncode not in (0, 1), "it ends with a code", done.stderr)
    return next((line.partition(" ")[0] for line in done.stderr.splitlines() if line.startswith("ANC-")), "none")


@script(place=Place.SEPARATE)
def pickles_to_commands(folder: Path) -> str:
    """Pickles in the place of a model's weights, of weights to import and of arrays: none is unpickled."""
    content, mark = _payload(folder)
    model = Path(shutil.copytree(MODEL, folder / "model"))
    (model / "model.safetensors").write_bytes(content)
    (folder / "weights.pt").write_bytes(content)
    defects = [
        _refused_by(folder, "predict", "-m", model, MODEL / "images"),
        _refused_by(folder, "weights", "import", "weights.pt", "LeafCnn", "own", "--data-root", folder),
    ]
    held(not mark.exists(), "nothing is unpickled", mark)
    held(set(defects) == {UNUSABLE}, f"each is refused with {UNUSABLE}", defects)
    return f"{UNUSABLE} each; not unpickled"


@script(place=Place.SEPARATE)
def pickle_for_the_initial_model(folder: Path) -> str:
    """The file that spec.model.initial names is a pickle: the server ends before it listens."""
    content, mark = _payload(folder)
    with Site(null_study(folder / "federation")) as site:
        (site.root / "initial.safetensors").write_bytes(content)
        process = site.start("anchorage_server", write_server_config(site.workdir, site.root, None), ())
        process.end()
        code = process.last_line.partition(" ")[0]
    held(not mark.exists(), "nothing is unpickled", mark)
    return f"{refused(code, UNUSABLE)}; not unpickled"
