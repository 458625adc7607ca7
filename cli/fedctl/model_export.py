"""``fedctl model export``: writes a model as one file."""

from collections.abc import Callable
from pathlib import Path

import typer

from anchorage.api.inference import DESCRIPTION
from anchorage.transport.tensors.safetensors_file import write_safetensors
from fedctl.arguments import ModelFormat
from fedctl.output import Format, amount, emit
from fedctl.trained_model import TrainedModel, open_model
from fedctl.writing import refuse_existing, writing


def export_model(where: str, out: Path, form: ModelFormat, best: bool, force: bool, output: Format) -> None:
    """Write a model with its description in it.

    Parameters
    ----------
    where, best : str and bool
        Which model, as of `open_model`.
    out : Path
        The file; its folder is made where it is missing.
    form : ModelFormat
        Programs take uint8 pixels [n, channels, size, size] and return probabilities [n, C].
    force : bool
        Overwrite a file that is there.
    output : Format
        How to say what was written.

    Raises
    ------
    AnchorageError
        The model cannot be used or written in this format, a package is missing, or the file cannot be written.
    BadParameter
        The file is there.
    """
    if not force:
        refuse_existing(out)
    trained = open_model(where, best=best)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        _WRITERS[form](trained, out)
        size = out.stat().st_size
    digest = trained.weights.digest
    if output.for_people:
        typer.echo(f"{out}: {form.value}, {amount(size)}; {trained.chosen}, digest {digest}")
    else:
        facts = {"path": str(out), "format": form.value, "bytes": size, "digest": digest}
        emit({**facts, **trained.chosen.values()}, output)


def _write_torchscript(trained: TrainedModel, out: Path) -> None:
    from anchorage.learning.exporting import save_torchscript

    save_torchscript(trained.image_model(), out, trained.text)


def _write_onnx(trained: TrainedModel, out: Path) -> None:
    from anchorage.learning.exporting import save_onnx

    save_onnx(trained.image_model(), out, trained.text)


def _write_monai_bundle(trained: TrainedModel, out: Path) -> None:
    from anchorage.learning.monai_bundle import save_monai_bundle

    save_monai_bundle(trained.image_model(), out, trained.text)


def _write_weights(trained: TrainedModel, out: Path) -> None:
    write_safetensors(out, trained.weights, metadata={"format": "pt", DESCRIPTION: trained.text})


_WRITERS: dict[ModelFormat, Callable[[TrainedModel, Path], None]] = {
    ModelFormat.TORCHSCRIPT: _write_torchscript,
    ModelFormat.ONNX: _write_onnx,
    ModelFormat.SAFETENSORS: _write_weights,
    ModelFormat.MONAI: _write_monai_bundle,
}
