"""The weights that training starts from: a file below the data root, or pretrained ones by name from the folder that ``fedctl weights`` fills."""

import hashlib
import shlex
import shutil
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from anchorage.api.base import Document
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import DATA_MISSING, WEIGHTS_UNUSABLE
from anchorage.api.federation import FederationSpec
from anchorage.api.mistakes import without_password
from anchorage.api.model import REGISTERED, WEIGHTS_CLAIM, WeightsName
from anchorage.api.regular_files import read_regular, regular_opener
from anchorage.engine.store.durable import storage_errors
from anchorage.transport.files import replacing, write_atomically

_INDEX = "index.json"
_MOST = 1000

Text = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1024)]


class PretrainedWeights(Document):
    """One entry of the folder; its safetensors file is named by its digest."""

    network: Text = Field(description="Network that they are for, as `spec.model.network` calls it.")
    name: WeightsName = Field(description="Name that `spec.model.weights` gives.")
    source: Text = Field(description="Where they came from: an address, a file's name, or a registered version.")
    digest: Annotated[str, StringConstraints(strict=True, pattern="^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the file."
    )

    def __str__(self) -> str:
        """Say which weights these are."""
        return f"{self.name} of {self.network} from {self.source} (SHA-256 {self.digest})"


class _Index(Document):
    weights: Annotated[tuple[PretrainedWeights, ...], Field(max_length=_MOST)] = ()


class WeightsFolder:
    """Pretrained weights below a data root, in a folder that is a claim of its own on a cluster.

    Parameters
    ----------
    data_root : Path
        The data root.
    """

    def __init__(self, data_root: Path) -> None:
        self.folder = data_root / WEIGHTS_CLAIM

    def entries(self) -> tuple[PretrainedWeights, ...]:
        """Return what is there, in the order of its networks and names.

        Raises
        ------
        AnchorageError
            WEIGHTS_UNUSABLE: the index cannot be understood.
        """
        index = self.folder / _INDEX
        with storage_errors("read the list of weights", self.folder):
            content = read_regular(index) if index.exists() else b"{}"
        try:
            return _Index.model_validate_json(content).weights
        except ValidationError as error:
            detail = (
                f"{index} is not as fedctl weights wrote it ({error.error_count()} mistakes); remove it and pull again"
            )
            raise AnchorageError(WEIGHTS_UNUSABLE, detail) from error

    def file_of(self, weights: PretrainedWeights) -> Path:
        """Return where the file of an entry lies."""
        return self.folder / f"{weights.digest}.safetensors"

    def find(self, network: str, name: str) -> PretrainedWeights:
        """Return the entry of a network's weights; its file is not looked at.

        Raises
        ------
        AnchorageError
            WEIGHTS_UNUSABLE: there are none of this name.
        """
        for entry in self.entries():
            if (entry.network, entry.name) == (network, name):
                return entry
        detail = f"{self.folder} has no weights {name} of {network}"
        raise AnchorageError(WEIGHTS_UNUSABLE, f"{detail}; {self._get(network, name)}")

    def verify(self, entry: PretrainedWeights) -> Path:
        """Return the file of an entry, which was found to have its digest.

        Raises
        ------
        AnchorageError
            WEIGHTS_UNUSABLE: it is missing or damaged.
        """
        file = self.file_of(entry)
        if not file.is_file() or digest_of(file) != entry.digest:
            detail = f"{file} is missing or not as it was stored"
            raise AnchorageError(WEIGHTS_UNUSABLE, f"{detail}; {self._get(entry.network, entry.name)}")
        return file

    def _get(self, network: str, name: str) -> str:
        wanted = shlex.join([network, name, "--data-root", str(self.folder.parent)])
        return f"get them with: fedctl weights pull {wanted}" + " --tracking-uri URI" * name.startswith(REGISTERED)

    def add(self, file: Path, network: str, name: str, source: str) -> PretrainedWeights:
        """Keep a safetensors file's weights; those of the same network and name are replaced.

        Raises
        ------
        AnchorageError
            The folder cannot be written, or its index cannot be understood.
        """
        entry = PretrainedWeights(network=network, name=name, source=source, digest=digest_of(file))
        others = [one for one in self.entries() if (one.network, one.name) != (network, name)]
        entries = sorted([*others, entry], key=lambda one: (one.network, one.name))
        with storage_errors("keep the weights", self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self.file_of(entry).exists():
                with replacing(self.file_of(entry)) as partial:
                    shutil.copyfile(file, partial)
            index = _Index(weights=tuple(entries)).model_dump_json(by_alias=True, indent=2)
            write_atomically(self.folder / _INDEX, index.encode())
        return entry


def not_fetched(source: str, error: Exception) -> AnchorageError:
    """Return the failure of weights that their source does not give, with the first line of why."""
    first = without_password(next(iter(str(error).splitlines()), type(error).__name__))[:200]
    way = "pull on a machine that reaches it and copy the folder `weights`, or take a file: `fedctl weights import`"
    message = f"{source} cannot be fetched: {first}; {way}"
    return AnchorageError(WEIGHTS_UNUSABLE, message)


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with storage_errors("read the weights", file), open(file, "rb", opener=regular_opener) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def initial_of(spec: FederationSpec, data_root: Path) -> Path | None:
    """Return the file of the weights to start from; None where they are random.

    Raises
    ------
    AnchorageError
        DATA_MISSING, WEIGHTS_UNUSABLE: there is none, or it is not as it was stored.
    """
    if spec.model.weights is not None:
        folder = WeightsFolder(data_root)
        return folder.verify(folder.find(spec.model.network, spec.model.weights))
    if spec.model.initial is None:
        return None
    file = data_root / spec.model.initial
    if not file.is_file():
        raise AnchorageError(DATA_MISSING, f"{file} is no file; check spec.model.initial and the data root")
    return file


def initial_source(spec: FederationSpec, data_root: Path) -> str:
    """Return which weights these are, with their digest, for the model card; empty for random ones.

    Those of `spec.model.weights` are not read again: `initial_of` checks them. Raises as that does.
    """
    if spec.model.weights is not None:
        return str(WeightsFolder(data_root).find(spec.model.network, spec.model.weights))
    file = initial_of(spec, data_root)
    return "" if file is None else f"{spec.model.initial} (SHA-256 {digest_of(file)})"
