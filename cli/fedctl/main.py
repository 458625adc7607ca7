"""The command line. Commands import their dependencies when they run, so that small ones start quickly."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fedctl.arguments import (
    Best,
    Context,
    DataRoot,
    Federation,
    File,
    Folder,
    Labels,
    Methods,
    Model,
    Namespace,
    Run,
    Seeds,
    Set,
    Settings,
    Silo,
    Silos,
    Site,
    StudyFolder,
    refuse_options,
)
from fedctl.authority import authority_app
from fedctl.command_groups import DOCUMENTS, OTHER, RESEARCH, RUNS, SITES, GroupedCommands
from fedctl.failures import ending
from fedctl.models import model_app
from fedctl.output import Format, Output, Watch
from fedctl.research.commands import bench_rounds, compare, fetch, partition, simulate, study, tune
from fedctl.weights import weights_app

app = typer.Typer(
    name="fedctl",
    cls=GroupedCommands,
    help="Train one model across hospitals that cannot pool their images. Manual: docs/cli.md.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
silo_app = typer.Typer(help="Hospitals that join a federation in a cluster.", no_args_is_help=True)
data_app = typer.Typer(help="Images of a federation.", no_args_is_help=True)
methods_app = typer.Typer(help="Methods that a federation can use.", no_args_is_help=True)
bench_app = typer.Typer(help="How fast this machine is.", no_args_is_help=True)
app.add_typer(silo_app, name="silo", rich_help_panel=SITES)
app.add_typer(authority_app, name="authority", rich_help_panel=SITES)
app.add_typer(model_app, name="model", rich_help_panel=RUNS)
app.add_typer(data_app, name="data", rich_help_panel=DOCUMENTS)
app.add_typer(methods_app, name="methods", rich_help_panel=DOCUMENTS)
app.add_typer(weights_app, name="weights", rich_help_panel=DOCUMENTS)
app.add_typer(bench_app, name="bench", rich_help_panel=RESEARCH)


@app.command(rich_help_panel=RUNS)
def run(
    file: File,
    workdir: Folder = None,
    data_root: DataRoot = None,
    overrides: Set = None,
    compare: Annotated[
        bool, typer.Option(help="After the last round, train at each labelled silo, or on the anchors, alone.")
    ] = True,
    output: Output = Format.TABLE,
) -> None:
    """Run or resume a federation on this machine: a server and one agent per silo, each in its own process."""
    from fedctl.local_run import run_federation

    run_federation(file, workdir, data_root, overrides or [], output, compare=compare)


for _command in (simulate, study, tune, compare):
    app.command(rich_help_panel=RESEARCH)(_command)
data_app.command("partition")(partition)
data_app.command("fetch")(fetch)
bench_app.command("rounds")(bench_rounds)


@app.command(rich_help_panel=DOCUMENTS)
def init(
    out: Annotated[Path | None, typer.Option(help="File to write; default: federation.yaml.")] = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Classes, in the order of the outputs; default: as folders name them."),
    ] = None,
    anchors: Annotated[Path | None, typer.Option(help="The server's labelled images to train on.")] = None,
    validation: Annotated[Path | None, typer.Option(help="Labelled images that choose the best round.")] = None,
    test: Annotated[Path | None, typer.Option(help="Labelled images for the scores at the end.")] = None,
    silo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=DIR[:labels]", help="A hospital's images; :labels: it trains on its labels. May be repeated."
        ),
    ] = None,
    class_map: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE:LOCAL=CLASS", help="Class of a name that a silo or section has; may be repeated."),
    ] = None,
    label_column: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE:COLUMN", help="Column of a CSV table that has the labels; may be repeated."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="YAML", help="Task of another package, as spec.task has it; default: classification."),
    ] = None,
) -> None:
    """Write a federation file for folders, or CSV tables, of images; without --silo it asks."""
    from fedctl.init import InitRequest, begin_study

    server = {"anchors": anchors, "validation": validation, "test": test}
    folders = {role: folder for role, folder in server.items() if folder is not None}
    names = tuple(name.strip() for name in (classes or "").split(",") if name.strip())
    silos, maps, columns = (tuple(texts or ()) for texts in (silo, class_map, label_column))
    begin_study(InitRequest(out, names, folders, silos, maps, columns, task))


@app.command(rich_help_panel=DOCUMENTS)
def validate(file: File, overrides: Set = None, output: Output = Format.TABLE) -> None:
    """Check a file's documents and report all errors with their lines."""
    from fedctl.validation import validate_file

    validate_file(file, overrides or [], output)


@app.command(rich_help_panel=DOCUMENTS)
def plan(
    file: Annotated[Path, typer.Option("--file", "-f", help="File of a Federation and its Silos, or of a study.")],
    silos: Silos = None,
    methods: Methods = None,
    settings: Settings = None,
    seeds: Seeds = None,
    trial: Annotated[
        bool,
        typer.Option(
            "--trial/--no-trial", help="Time a few steps on the images; without, bytes, disk and what leaves alone."
        ),
    ] = True,
    link: Annotated[
        float | None,
        typer.Option(min=0.001, help="Forecast the transfers over a line of so many Mbit/s at every silo."),
    ] = None,
    workdir: StudyFolder = None,
    data_root: DataRoot = None,
    overrides: Set = None,
    output: Output = Format.TABLE,
) -> None:
    """Forecast bytes, time, memory and disk of a federation, and say what will leave each hospital; or what a study will take."""
    from fedctl.research.study import Selection
    from fedctl.research.study_plan import is_study, plan_study

    if is_study(file):
        refuse_options("a study", {"--silos": silos, "--link": link})
        selection = Selection(overrides or (), seeds, methods or (), settings or ())
        plan_study(file, selection, workdir, data_root, output, trial=trial)
        return
    from fedctl.plan import plan_federation

    studies_own = {"--method": methods, "--setting": settings, "--seeds": seeds, "--workdir": workdir}
    refuse_options("a federation", studies_own)
    plan_federation(file, data_root, overrides or [], output, trial=trial, link=link, silos=silos)


_VIEWS = {
    "status": "Show the progress of a federation and what it is waiting for.",
    "silos": "List the silos of a federation: their state, weight and last error.",
    "rounds": "List the committed rounds of a federation.",
    "events": "List the events of a federation, its silos and their pods.",
}
"""Commands that show something of a federation, by `fedctl.inspection`'s function ``show_NAME``."""


def _view(what: str) -> Callable[..., None]:
    def show(
        name: Run = None,
        workdir: Folder = None,
        namespace: Namespace = None,
        context: Context = None,
        output: Output = Format.TABLE,
        watch: Watch = False,
    ) -> None:
        from fedctl import inspection
        from fedctl.choice import Place, choose

        source = choose(name, Place(workdir, namespace, context))
        getattr(inspection, f"show_{what}")(source, output, watch)

    return show


for _name, _help in _VIEWS.items():
    app.command(_name, help=_help, rich_help_panel=RUNS)(_view(_name))


@app.command(rich_help_panel=RUNS)
def logs(
    name: Run = None,
    workdir: Folder = None,
    namespace: Namespace = None,
    context: Context = None,
    process: Annotated[str | None, typer.Option(help="server, or a silo's name; default: all.")] = None,
    tail: Annotated[int, typer.Option(min=0, help="Lines from the end of each log.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
) -> None:
    """Print the logs of a federation's processes."""
    from fedctl.choice import Place, choose
    from fedctl.inspection import show_logs

    show_logs(choose(name, Place(workdir, namespace, context)), process, tail, follow)


@app.command(rich_help_panel=SITES)
def doctor(
    site: Annotated[
        Site, typer.Option("--for", help="coordinator: the operator and servers. hospital: one agent.")
    ] = Site.COORDINATOR,
    namespace: Namespace = None,
    context: Context = None,
    address: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Address of the federation to reach from here; may be repeated."),
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option("--ca", help="The federation's ca.pem, or an enrolment.yaml, which names the addresses too."),
    ] = None,
    proxy: Annotated[
        str | None, typer.Option(metavar="http://HOST:PORT", help="HTTP proxy through which the agent will dial.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Check a cluster before an installation, and suggest fixes."""
    from fedctl.choice import Place
    from fedctl.doctor import examine

    examine(site, Place(None, namespace, context), address or [], authority, proxy, output)


@silo_app.command("invite")
def silo_invite(
    name: Federation,
    silo: Silo,
    labels: Annotated[
        Labels | None, typer.Option(help="Which of the hospital's images are labelled; default: None.")
    ] = None,
    valid: Annotated[str, typer.Option(metavar="SPAN", help="How long the token may be used: 12h, 7d.")] = "7d",
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the hospital reaches the server.")
    ] = None,
    enrolment_address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the hospital enrols; default: beside --address.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Invite an enrolled silo again; its present key is refused from now on.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Write a hospital's enrolment.yaml to standard output, and store the hash of its one-time token in the cluster."""
    from fedctl.choice import Place
    from fedctl.invitation import InvitationRequest, invite

    wanted = InvitationRequest(silo, labels, valid, address, enrolment_address, replace)
    invite(name, Place(None, namespace, context), wanted)


@silo_app.command("approve")
def silo_approve(
    name: Federation, silo: Silo, namespace: Namespace = None, context: Context = None, output: Output = Format.TABLE
) -> None:
    """Approve a hospital as a member; shows the fingerprint of the key that requests enrolment."""
    from fedctl.admission import decide
    from fedctl.choice import Place

    decide(name, silo, Place(None, namespace, context), output, approved=True)


@silo_app.command("deny")
def silo_deny(
    name: Federation,
    silo: Silo,
    reason: Annotated[str, typer.Option(help="Why; kept in the Silo's condition Approved.")] = "",
    namespace: Namespace = None,
    context: Context = None,
    output: Output = Format.TABLE,
) -> None:
    """Deny or revoke a silo's membership, also in a run of this machine; a late update is dropped."""
    from fedctl.admission import decide
    from fedctl.choice import Place

    decide(name, silo, Place(None, namespace, context), output, approved=False, reason=reason)


@silo_app.command("remove")
def silo_remove(
    name: Federation, silo: Silo, namespace: Namespace = None, context: Context = None, output: Output = Format.TABLE
) -> None:
    """Remove a hospital and its invitation from the federation."""
    from fedctl.admission import remove
    from fedctl.choice import Place

    remove(name, silo, Place(None, namespace, context), output)


@app.command(rich_help_panel=RUNS)
def predict(
    images: Annotated[list[Path], typer.Argument(help="Image files, and folders of them.")],
    model: Model,
    best: Best = True,
    grad_cam: Annotated[
        Path | None, typer.Option(help="Folder for a picture per image of where the class was seen.")
    ] = None,
    masks: Annotated[
        Path | None,
        typer.Option(help="Folder for a PNG per image of the class of each pixel, by a model that segments."),
    ] = None,
    channel_files: Annotated[
        str,
        typer.Option(
            metavar="END,...",
            help="How the names of a volume's files end, one for each channel in the model's order: _t1,_flair.",
        ),
    ] = "",
    output: Output = Format.TABLE,
) -> None:
    """Predict what images show by a trained model."""
    from fedctl.prediction import predict_images

    endings = [ending for ending in channel_files.split(",") if ending]
    predict_images(model, images, best, grad_cam, output, masks, endings)


@app.command(rich_help_panel=RUNS)
def report(
    where: Annotated[
        str, typer.Argument(metavar="RUN|DIR", help="Name of a run here or in a cluster, or folder of a run.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File for the page; default: report.html in the run's folder, or RUN-report.html here."),
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    bound: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of a run or simulation with every label, for the model card to name."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Write one page about a run (HTML): scores, curves, silos and the model card."""
    from fedctl.choice import Place
    from fedctl.report import report_run

    report_run(where, Place(None, namespace, context), out, bound, output)


@data_app.command("check")
def data_check(
    file: File,
    silo: Annotated[str | None, typer.Option(help="Only this silo's images.")] = None,
    data_root: DataRoot = None,
    overrides: Set = None,
    output: Output = Format.TABLE,
) -> None:
    """Read all images of a federation and report unusable ones."""
    from fedctl.data import check_data

    check_data(file, silo, data_root, overrides or [], output)


@methods_app.command("list")
def methods_list(output: Output = Format.TABLE) -> None:
    """List the methods."""
    from fedctl.methods import list_methods

    list_methods(output)


@methods_app.command("describe")
def methods_describe(
    name: Annotated[str, typer.Argument(help="Name of a method, such as FedAnchor.")], output: Output = Format.TABLE
) -> None:
    """Describe a method: its parts, what is transferred, and what that reveals."""
    from fedctl.methods import describe_method

    describe_method(name, output)


@app.command(rich_help_panel=OTHER)
def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="Code or reason of a message, such as ANC-1203.")],
    output: Output = Format.TABLE,
) -> None:
    """Explain a failure by its code, and say what to do."""
    from fedctl.explain import explain_failure

    explain_failure(code, output)


@app.command(rich_help_panel=OTHER)
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
