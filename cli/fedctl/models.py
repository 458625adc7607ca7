"""The commands of ``fedctl model``."""

from pathlib import Path
from typing import Annotated

import typer

from fedctl.arguments import Best, Context, Folder, Force, Model, ModelFormat, Namespace, Run
from fedctl.output import Format, Output

model_app = typer.Typer(help="Models of a run.", no_args_is_help=True)


@model_app.command("pull")
def model_pull(
    out: Annotated[Path, typer.Option(help="Folder for the model; made where it is missing.")],
    name: Run = None,
    workdir: Folder = None,
    namespace: Namespace = None,
    context: Context = None,
    best: Best = True,
    force: Force = False,
    output: Output = Format.TABLE,
) -> None:
    """Copy a federation's model (safetensors) and check its digest."""
    from fedctl.choice import Place, choose
    from fedctl.model_pull import pull_model

    pull_model(choose(name, Place(workdir, namespace, context)), out, best, force, output)


@model_app.command("export")
def model_export(
    model: Model,
    out: Annotated[Path, typer.Option(help="File for the model.")],
    form: Annotated[
        ModelFormat,
        typer.Option("--format", help="torchscript, onnx, safetensors, or monai: a bundle of a segmentation."),
    ],
    best: Best = True,
    force: Force = False,
    output: Output = Format.TABLE,
) -> None:
    """Write a model as one file: a program that scores pixels without Anchorage, or its weights."""
    from fedctl.model_export import export_model

    export_model(model, out, form, best, force, output)
