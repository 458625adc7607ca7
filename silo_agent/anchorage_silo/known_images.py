"""What fingerprints of images stand for: a file in the trainer's folder, and the key by which they are made. Neither leaves the hospital."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from anchorage.api.errors import AnchorageError, silo
from anchorage.api.regular_files import open_regular, read_regular
from anchorage.api.text import printable
from anchorage.learning.data.pseudonyms import KnownImage, Pseudonyms
from anchorage.transport.files import write_atomically, write_once
from anchorage_silo.files import state_unusable, trainer_folder

KEY_FILE = "image-names.key"
_KEY_BYTES = 32
TABLE_FILE = "image-names.jsonl"
"""A JSON object per line: ``fingerprint, place, of, id, reason, detail`` of an image, or a ``remark``."""
_MOST_BYTES = 64 << 20
_MOST_REMARKS, _LONGEST_REMARK = 100, 4000


def image_key(folder: Path) -> bytes:
    """Return the key of a trainer's folder, of 32 bytes, which is made once.

    Raises
    ------
    AnchorageError
        STATE_UNUSABLE: it cannot be read or written.
    """
    file = folder / KEY_FILE
    try:
        if not file.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # the process of another device made it
                write_once(file, os.urandom(_KEY_BYTES))
        key = read_regular(file)
    except OSError as error:
        raise state_unusable(file, error) from error
    if len(key) != _KEY_BYTES:
        raise AnchorageError(silo.STATE_UNUSABLE, f"{file} has {len(key)} bytes, not {_KEY_BYTES}; remove it")
    return key


def keep_known_images(folder: Path, pseudonyms: Pseudonyms) -> None:
    """Write what fingerprints of images stand for, in the place of what was known before, with mode 0600.

    Raises
    ------
    AnchorageError
        STATE_UNUSABLE: it cannot be written.
    """
    lines: list[dict[str, Any]] = [asdict(image) for image in pseudonyms.images]
    lines += [{"remark": remark[:_LONGEST_REMARK]} for remark in pseudonyms.remarks[:_MOST_REMARKS]]
    file = folder / TABLE_FILE
    try:
        write_atomically(file, "".join(f"{json.dumps(line)}\n" for line in lines).encode(), mode=0o600)
    except OSError as error:
        raise state_unusable(file, error) from error


@dataclass(frozen=True, slots=True)
class KnownImages:
    """Images that messages and logs of an agent may speak of, and what is known besides."""

    images: tuple[KnownImage, ...]
    remarks: tuple[str, ...]

    @classmethod
    def read(cls, state: Path) -> "KnownImages":
        """Read what the trainer of an agent's state folder wrote when it read its images last.

        Raises
        ------
        AnchorageError
            FINGERPRINT_UNKNOWN: it has read none yet. STATE_UNUSABLE: the file cannot be read, or is not as it was written.
        """
        file = trainer_folder(state) / TABLE_FILE
        try:
            with open_regular(file) as content:
                text = content.read(_MOST_BYTES)
            lines = [json.loads(line) for line in text.splitlines()]
            images = tuple(_image(line) for line in lines if "remark" not in line)
            return cls(images, tuple(str(line["remark"]) for line in lines if "remark" in line))
        except FileNotFoundError:
            detail = f"{file} is not there: the agent has read no images yet; start it, and ask again"
            raise AnchorageError(silo.FINGERPRINT_UNKNOWN, detail) from None
        except OSError as error:
            raise state_unusable(file, error) from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            detail = f"{file} is not as it was written ({type(error).__name__}); remove it and start the agent"
            raise AnchorageError(silo.STATE_UNUSABLE, detail) from error

    def of(self, fingerprint: str) -> "KnownImages":
        """Return the images whose fingerprints begin like this.

        Raises
        ------
        AnchorageError
            FINGERPRINT_UNKNOWN: there is none.
        """
        beginning = fingerprint.strip().casefold()
        matches = tuple(image for image in self.images if beginning and image.fingerprint.startswith(beginning))
        if not matches:
            message = f"none of the {len(self.images)} images that are known has a fingerprint that begins with {printable(fingerprint)[:80]!r}; "
            message += "without a fingerprint the command shows them all"
            raise AnchorageError(silo.FINGERPRINT_UNKNOWN, message)
        return KnownImages(matches, ())

    def words(self) -> Sequence[str]:
        """Return a line for each image, then each remark."""
        lines = [
            f"{each.fingerprint}  image {each.place} of {each.of}  {each.reason}  {each.id}: {each.detail}"
            for each in self.images
        ]
        return [printable(line) for line in (*lines, *self.remarks)] or ["no image that messages or logs speak of"]

    def to_json(self) -> str:
        """Return the same for programs."""
        return json.dumps({"images": [asdict(each) for each in self.images], "remarks": self.remarks}, indent=2)


def _image(line: Any) -> KnownImage:
    image = KnownImage(**line)
    if any(not isinstance(getattr(image, field.name), str if field.type is str else int) for field in fields(image)):
        raise ValueError
    return image
