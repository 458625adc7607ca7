"""Arguments and options that several commands take."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Option("--file", "-f", help="File of YAML documents: one Federation and its Silos.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a field of the Federation, such as spec.rounds=5; silo.PATH: of every Silo.",
    ),
]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder in which claimName names folders; default: the file's folder; of a run, its last one."),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda; auto takes a GPU where there is one.")]
Silos = Annotated[
    int | None,
    typer.Option(min=1, max=100_000, help="Make so many silos of those in the file, each with a part of their pool."),
]
Methods = Annotated[
    list[str] | None, typer.Option("--method", metavar="NAME", help="Only this method of the study; may be repeated.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--setting", metavar="NAME", help="Only this setting of the study; may be repeated.")
]
Seeds = Annotated[
    int | None, typer.Option("--seeds", min=1, max=1000, help="As many seeds, from spec.seed on; default: the study's.")
]
StudyFolder = Annotated[
    Path | None, typer.Option("--workdir", help="Folder of the results; default: .anchorage/studies/NAME.")
]
Folder = Annotated[
    Path | None, typer.Option("--workdir", help="Folder of the run; default: .anchorage/NAME, or its last one.")
]
Run = Annotated[str | None, typer.Argument(help="Name of the federation; may be left out where there is only one.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Look in a cluster, in this namespace; default: the context's.")
]
Context = Annotated[
    str | None,
    typer.Option("--context", help="Look in a cluster, by this context of the kubeconfig; default: the current."),
]
Federation = Annotated[str, typer.Argument(help="Name of the federation.")]
Silo = Annotated[str, typer.Argument(help="Name of the silo.")]
Best = Annotated[
    bool,
    typer.Option(
        "--best/--last",
        help="The model that did best on the validation images, or that of the last round; without a best one, the last.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="RUN|DIR",
        help="Name or folder of a run on this machine, or a folder that `model pull` wrote.",
    ),
]


def refuse_options(what: str, options: Mapping[str, object]) -> None:
    """Refuse options that mean nothing for a kind of file.

    Parameters
    ----------
    what : str
        The kind, such as ``a study``.
    options : mapping
        Values by the option; None and an empty list stand for options that were not given.

    Raises
    ------
    BadParameter
        One of them was given.
    """
    for option, value in options.items():
        if value is not None and value != []:
            raise typer.BadParameter(f"found {option}, which is not for {what}; leave it out")


class ModelFormat(StrEnum):
    """How a model is written."""

    TORCHSCRIPT = "torchscript"
    ONNX = "onnx"
    SAFETENSORS = "safetensors"
    MONAI = "monai"


class Site(StrEnum):
    """The intended role of a cluster."""

    COORDINATOR = "coordinator"
    HOSPITAL = "hospital"


class Labels(StrEnum):
    """Which of a silo's images are labelled."""

    NONE = "None"
    ALL = "All"
    PARTIAL = "Partial"
