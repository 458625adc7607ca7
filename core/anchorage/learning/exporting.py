"""A trained model as a program that needs no Anchorage: uint8 pixels [n, channels, size, size] in, probabilities [n, C] out, for any n; of volumes
patches of float32 values in 0 … 1, over which it is to slide as ``model.json`` says.

Every program is loaded again and compared with the model before its file gets its name.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import EXPORT_FAILED, PACKAGE_MISSING
from anchorage.api.inference import DESCRIPTION, description_of, read_inference
from anchorage.learning.inference import ImageModel, read_weights
from anchorage.transport.files import replacing

INPUT, OUTPUT = "images", "probabilities"
"""Names of an ONNX program's input and output."""
TOLERANCE = 1e-4
"""Largest difference of a probability: other kernels add in another order."""

Program = Callable[[Tensor], Tensor]
_TROUBLE = (RuntimeError, TypeError, ValueError, AttributeError, LookupError, AssertionError, ArithmeticError)
"""What torch raises where a network cannot be recorded."""


def save_program(model: ImageModel, path: Path, description: str) -> None:
    """Write a program of `torch.export`; ``torch.export.load(path).module()`` reads it.

    Parameters
    ----------
    model : ImageModel
        The model.
    path : Path
        The file.
    description : str
        The JSON text that goes with it.

    Raises
    ------
    AnchorageError
        The network cannot be recorded, or scores differ.
    OSError
        The file cannot be written.
    """

    def write(partial: Path) -> Program:
        with partial.open("wb") as file:
            torch.export.save(_record(model), file, extra_files={DESCRIPTION: description})
        with partial.open("rb") as file:
            program: Program = torch.export.load(file).module()
        return program

    _save(model, path, write)


def save_trained(models: Path, role: str, path: Path) -> None:
    """Write the program of one of a run's models, with what ``model.json`` says of it.

    Parameters
    ----------
    models : Path
        Folder with ``model.json`` and the safetensors files that it names.
    role : str
        ``final`` or ``best``.
    path : Path
        The file.

    Raises
    ------
    AnchorageError
        The weights are missing or damaged, the network cannot be recorded, or scores differ.
    OSError
        A file cannot be read or written.
    """
    described = read_inference(models / DESCRIPTION)
    _, weights = described.choose(best=role == "best")
    model = ImageModel(described, read_weights(models, weights).arrays())
    save_program(model, path, description_of(models, role))


def save_torchscript(model: ImageModel, path: Path, description: str) -> None:
    """Write a TorchScript program; ``torch.jit.load(path)`` reads it. Parameters and errors as of `save_program`."""

    def write(partial: Path) -> Program:
        traced = torch.jit.trace(model, (_pixels(model, 2),), check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, partial, _extra_files={DESCRIPTION: description})
        program: Program = torch.jit.load(partial)  # type: ignore[no-untyped-call]
        return program

    _save(model, path, write)


def save_onnx(model: ImageModel, path: Path, description: str) -> None:
    """Write an ONNX program with the input `INPUT` and the output `OUTPUT`. Parameters and errors as of `save_program`."""
    try:
        import onnx
        import onnxscript  # noqa: F401 - torch's exporter needs it
        from onnx.reference import ReferenceEvaluator
    except ImportError as error:
        message = f"{error.name} is not installed; install it with: pip install 'anchorage[export]'"
        raise AnchorageError(PACKAGE_MISSING, message) from error

    def write(partial: Path) -> Program:
        program = torch.onnx.export(_record(model), input_names=[INPUT], output_names=[OUTPUT], verbose=False)
        assert program is not None, "of dynamo=True, the default"
        proto = program.model_proto
        proto.metadata_props.add(key=DESCRIPTION, value=description)
        onnx.save_model(proto, partial)
        session: Any = ReferenceEvaluator(onnx.load_model(partial))
        return lambda images: torch.from_numpy(session.run(None, {INPUT: images.numpy()})[0])

    _save(model, path, write)


def _record(model: ImageModel) -> torch.export.ExportedProgram:
    count = torch.export.Dim("n", min=1)
    return torch.export.export(model, (_pixels(model, 2),), dynamic_shapes=({0: count},))


def _pixels(model: ImageModel, count: int) -> Tensor:
    description, draw = model.described, np.random.default_rng(0)
    shape = (count, *description.input_shape)
    if description.volume is not None:
        return torch.from_numpy(draw.random(shape, np.float32))
    return torch.from_numpy(draw.integers(0, 256, shape, np.uint8))


def _save(model: ImageModel, path: Path, write: Callable[[Path], Program]) -> None:
    images = _pixels(model, 3)
    with replacing(path) as partial, torch.no_grad(), _quiet():
        wanted = model(images)  # before recording: what augmentations cache must be no part of a recording
        try:
            outputs = write(partial)(images)
        except _TROUBLE as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise AnchorageError(EXPORT_FAILED, f"{model.described.network}: {first[:300]}") from error
        apart = float((outputs - wanted).abs().max())
        if not apart <= TOLERANCE:
            raise AnchorageError(EXPORT_FAILED, f"{model.described.network}: probabilities differ by up to {apart:.2g}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what exporters print and the warnings that TorchScript is deprecated."""
    exporter, before = logging.getLogger("torch.onnx"), logging.getLogger("torch.onnx").level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        exporter.setLevel(before)
