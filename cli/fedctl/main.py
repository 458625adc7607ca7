"""The command line. Commands import what they need when they run, so that the small ones answer at once."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fedctl.failures import ending
from fedctl.output import Format, Output, Watch

app = typer.Typer(
    name="fedctl",
    help="Train one model across hospitals that cannot pool their images. Manual: docs/cli.md.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
model_app = typer.Typer(help="Models of a run.", no_args_is_help=True)
data_app = typer.Typer(help="Images of a federation.", no_args_is_help=True)
methods_app = typer.Typer(help="Methods that a federation can use.", no_args_is_help=True)
bench_app = typer.Typer(help="How fast this machine is.", no_args_is_help=True)
app.add_typer(model_app, name="model")
app.add_typer(data_app, name="data")
app.add_typer(methods_app, name="methods")
app.add_typer(bench_app, name="bench")

File = Annotated[Path, typer.Option("--file", "-f", help="File of YAML documents: one Federation and its Silos.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a field of the Federation, such as spec.rounds=5."),
]
DataRoot = Annotated[
    Path | None, typer.Option(help="Folder in which claimName names folders; default: the file's folder.")
]
Folder = Annotated[Path | None, typer.Option("--workdir", help="Folder of the run; default: .anchorage/NAME.")]
Run = Annotated[str | None, typer.Argument(help="Name of the federation; may be left out where there is only one.")]


@app.command()
def run(
    file: File,
    workdir: Folder = None,
    data_root: DataRoot = None,
    overrides: Set = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a federation on this machine, or go on with it: a server and one agent per silo, each a process."""
    from fedctl.local_run import run_federation

    run_federation(file, workdir, data_root, overrides or [], output)


@app.command()
def validate(file: File, overrides: Set = None, output: Output = Format.TABLE) -> None:
    """Check a file's documents and say every mistake with its line."""
    from fedctl.validation import validate_file

    validate_file(file, overrides or [], output)


@app.command()
def status(name: Run = None, workdir: Folder = None, output: Output = Format.TABLE, watch: Watch = False) -> None:
    """Say how far a run is and what it waits for."""
    from fedctl.inspection import find_run, show_status

    show_status(find_run(name, workdir), output, watch)


@app.command()
def silos(name: Run = None, workdir: Folder = None, output: Output = Format.TABLE, watch: Watch = False) -> None:
    """List the silos of a run: what they do, how much they count, what failed."""
    from fedctl.inspection import find_run, show_silos

    show_silos(find_run(name, workdir), output, watch)


@app.command()
def rounds(name: Run = None, workdir: Folder = None, output: Output = Format.TABLE, watch: Watch = False) -> None:
    """List the committed rounds of a run."""
    from fedctl.inspection import find_run, show_rounds

    show_rounds(find_run(name, workdir), output, watch)


@app.command()
def logs(
    name: Run = None,
    workdir: Folder = None,
    process: Annotated[str | None, typer.Option(help="server, or a silo's name; default: all.")] = None,
    tail: Annotated[int, typer.Option(min=0, help="Lines from the end of each log.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Print the logs of a run's processes."""
    from fedctl.inspection import find_run, show_logs

    show_logs(find_run(name, workdir), process, tail, follow)


@model_app.command("pull")
def model_pull(
    out: Annotated[Path, typer.Option(help="Folder for the model; made where it is missing.")],
    name: Run = None,
    workdir: Folder = None,
    best: Annotated[bool, typer.Option("--best", help="The best model instead of the last.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Copy a run's model (safetensors) and check that it is whole."""
    from fedctl.inspection import find_run
    from fedctl.model_pull import pull_model

    pull_model(find_run(name, workdir), out, best, output)


@data_app.command("check")
def data_check(
    file: File,
    silo: Annotated[str | None, typer.Option(help="Only this silo's images.")] = None,
    data_root: DataRoot = None,
    overrides: Set = None,
    output: Output = Format.TABLE,
) -> None:
    """Read every image of a federation and say which cannot be used."""
    from fedctl.data import check_data

    check_data(file, silo, data_root, overrides or [], output)


@data_app.command("partition")
def data_partition(
    file: File, data_root: DataRoot = None, overrides: Set = None, output: Output = Format.TABLE
) -> None:
    """Draw how many images of each class every silo holds."""
    from fedctl.data import show_partition

    show_partition(file, data_root, overrides or [], output)


@methods_app.command("list")
def methods_list(output: Output = Format.TABLE) -> None:
    """List the methods."""
    from fedctl.methods import list_methods

    list_methods(output)


@methods_app.command("describe")
def methods_describe(
    name: Annotated[str, typer.Argument(help="Name of a method, such as FedAnchor.")], output: Output = Format.TABLE
) -> None:
    """Say what a method is made of, what travels, and what that reveals."""
    from fedctl.methods import describe_method

    describe_method(name, output)


@bench_app.command("rounds")
def bench_rounds_command(
    work: Annotated[Path, typer.Option(help="Folder that gets a new folder with all of the benchmark's files.")],
    silos: Annotated[int, typer.Option(min=1, max=1000, help="Number of agents.")] = 4,
    copies: Annotated[int, typer.Option(min=1, max=1000, help="Model size: copies of a ResNet-18, 44.76 MB each.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, max=100_000, help="Rounds to play.")] = 10,
) -> None:
    """Play rounds with real processes and a trainer that does nothing; prints one JSON object a line."""
    from fedctl.bench_rounds import bench_rounds

    bench_rounds(silos, copies, rounds, work)


@app.command()
def version(output: Output = Format.TABLE) -> None:
    """Print the version."""
    from anchorage import __version__
    from fedctl.output import emit

    if output.for_people:
        typer.echo(f"fedctl {__version__}")
    else:
        emit({"version": __version__}, output)


def main() -> None:
    """Run the command that the arguments name, and end with its exit status."""
    sys.exit(ending(app))


if __name__ == "__main__":
    main()
