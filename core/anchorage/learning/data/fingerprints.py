"""What a site's images were when training began, so that a site whose images changed since is named."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from blake3 import blake3

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import IMAGES_CHANGED
from anchorage.api.regular_files import read_regular
from anchorage.learning.data.images import ImageSet
from anchorage.transport.files import write_atomically


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A site's images: how many of which class, which of them nobody drew, and a digest over their contents and labels."""

    run: str
    """Which run they are trained on in; another run's are not compared."""
    digest: str
    """Keyed BLAKE3, hex, of every image's digest with its label; names and order do not count."""
    classes: dict[str, int]
    """Images of each class."""
    unlabelled: int
    """Images without a label."""
    unannotated: list[int] = field(default_factory=list)
    """Classes that nobody drew in the masks, whose background therefore means something else; ascending."""

    @classmethod
    def of(cls, images: ImageSet, key: bytes) -> "Fingerprint":
        """Take the fingerprint of images; `key` has 32 bytes, and is the run's."""
        counts = {name: int((images.strata == c).sum()) for c, name in enumerate(images.stratum_names)}
        unlabelled, unannotated = int((images.strata < 0).sum()), sorted(images.unannotated)
        return cls(blake3(key).hexdigest(16), images.fingerprint(key), counts, unlabelled, unannotated)

    def keep(self, file: Path) -> None:
        """Write it.

        Raises
        ------
        OSError
            It cannot be written.
        """
        write_atomically(file, json.dumps(asdict(self)).encode())

    def compare(self, file: Path, owner: str, *, remedy: str) -> None:
        """Compare with what `keep` wrote for the same run, if anything.

        Parameters
        ----------
        file : Path
            Where it was written.
        owner : str
            Whose images they are, for messages.
        remedy : str
            What to do, for messages.

        Raises
        ------
        AnchorageError
            IMAGES_CHANGED: they are others than when training began.
        """
        before = _read(file)
        if before is None or before.run != self.run:
            return
        same_images = before.digest == self.digest
        if same_images and before.unannotated == self.unannotated:
            return
        counts = {**before.classes, "without label": before.unlabelled}
        now = {**self.classes, "without label": self.unlabelled}
        changed = [
            f"{name} {now.get(name, 0)} (were {count})" for name, count in counts.items() if now.get(name, 0) != count
        ]
        what = ", ".join(changed) or "as many of each class, but others"
        if same_images:
            what = "unannotated names other classes"
        raise AnchorageError(IMAGES_CHANGED, f"{owner} changed since training began: {what}; {remedy}")


def _read(file: Path) -> Fingerprint | None:
    try:
        return Fingerprint(**json.loads(read_regular(file)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise AnchorageError(IMAGES_CHANGED, f"{file} is not as it was written ({error}); remove it") from error
