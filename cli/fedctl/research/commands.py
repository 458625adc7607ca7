"""The commands of this package, as `fedctl.main` offers them; each imports what it needs when it runs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedctl.arguments import DataRoot, Device, File, Methods, Seeds, Set, Settings, Silos, StudyFolder
from fedctl.output import Format, Output


def simulate(
    file: File,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs, with as many seeds from spec.seed on.")] = 1,
    silos: Silos = None,
    device: Device = "auto",
    speed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=STEP[+TRANSFER]",
            help="Seconds that silos of such a name take for a step and a transfer, in virtual time; may be repeated.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Train the silos on a Ray cluster; `local` starts one on this machine."),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1, max=256, help="Silos that train at the same time; default: one per processor, on a GPU one."
        ),
    ] = None,
    tracking: Annotated[
        bool | None,
        typer.Option(help="Send runs to MLflow; default: where spec.tracking.uri is set. Without one: mlflow.db."),
    ] = None,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Also simulate it without each silo, and say what each is worth.")
    ] = False,
    workdir: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: .anchorage/simulations/NAME.")
    ] = None,
    data_root: DataRoot = None,
    overrides: Set = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a federation in one process without network, once per seed; resumes an interrupted simulation."""
    from fedctl.research.simulation import SimulationRequest, simulate_federation

    wanted = SimulationRequest(
        file, overrides or (), seeds, silos, device, data_root, speed or (), tracking, ray, at_once
    )
    if leave_one_out:
        from fedctl.research.leave_one_out import simulate_leaving_out

        simulate_leaving_out(wanted, workdir, output)
    else:
        simulate_federation(wanted, workdir, output)


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Working folders of `simulate` and `run`.")],
    metric: Annotated[str | None, typer.Option(help="What to compare; default: the first that all have.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the metric over rounds and bytes: FILE.png or FILE.svg.")
    ] = None,
    published: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Put published results beside: source, dataset, setting, model or method, as the paper says; may be repeated.",
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Compare the results of several runs and simulations."""
    from fedctl.research.compare import compare as compare_folders

    compare_folders(folders, metric, plot, published or (), output)


def study(
    file: Annotated[Path, typer.Option("--file", "-f", help="YAML file: documents, methods, settings and seeds.")],
    methods: Methods = None,
    settings: Settings = None,
    seeds: Seeds = None,
    device: Device = "auto",
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw each setting's metric over rounds and bytes: FILE.png or FILE.svg."),
    ] = None,
    workdir: StudyFolder = None,
    data_root: DataRoot = None,
    overrides: Set = None,
    output: Output = Format.TABLE,
) -> None:
    """Simulate methods in several settings and seeds, and compare them with published results; resumes an interrupted study."""
    from fedctl.research.study import Selection, run_study

    selection = Selection(overrides or (), seeds, methods or (), settings or ())
    run_study(file, selection, workdir, data_root, device, plot, output)


def tune(
    file: Annotated[Path, typer.Option("--file", "-f", help="YAML file of kind Tuning: documents, fields, budget.")],
    device: Device = "auto",
    workdir: Annotated[
        Path | None, typer.Option(help="Folder of the search; default: .anchorage/tunings/NAME.")
    ] = None,
    data_root: DataRoot = None,
    output: Output = Format.TABLE,
) -> None:
    """Search settings and methods by simulations scored on the validation images; resumes an interrupted search."""
    from fedctl.research.tuning import tune_federation

    tune_federation(file, workdir, data_root, device, output)


def partition(
    file: File,
    data_root: DataRoot = None,
    overrides: Set = None,
    silos: Silos = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a stacked bar per silo: FILE.png or FILE.svg.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write who holds which image: FILE.csv, for the recipe File.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show how many images of each class every silo holds."""
    from fedctl.research.partition import show_partition

    show_partition(file, data_root, overrides or [], output, silos=silos, picture=plot, index=write)


class PublicDatasetName(StrEnum):
    """Data sets that `fetch` knows, by the names of their folders."""

    CIFAR10 = "cifar10"
    CIFAR100 = "cifar100"
    SVHN = "svhn"


def fetch(
    name: Annotated[PublicDatasetName, typer.Argument(help="Data set.")],
    out: Annotated[Path, typer.Option(help="Data root that gets the folder NAME, with a folder per class.")] = Path(),
    archive: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The published archive, or its folder; default: it is downloaded."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Download a data set of papers, or unpack its archive, into folders of images that study files read."""
    from fedctl.research.public_datasets import fetch_dataset

    fetch_dataset(name.value, out, archive, output)


def bench_rounds(
    work: Annotated[Path, typer.Option(help="Folder that gets a new folder with all of the benchmark's files.")],
    silos: Annotated[int, typer.Option(min=1, max=1000, help="Number of agents.")] = 4,
    copies: Annotated[int, typer.Option(min=1, max=1000, help="Model size: copies of a ResNet-18, 44.76 MB each.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, max=100_000, help="Rounds to play.")] = 10,
) -> None:
    """Run rounds with real processes and an idle trainer; prints one JSON object per line."""
    from fedctl.research.bench_rounds import bench_rounds as play_rounds

    play_rounds(silos, copies, rounds, work)
