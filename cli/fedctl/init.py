"""``fedctl init``: from folders of images to a federation file that validates and runs."""

import os
import re
import shlex
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import typer
import yaml
from pydantic import ValidationError

from anchorage.api.base import NAME_PATTERN
from anchorage.api.data import SiloData
from anchorage.api.errors import AnchorageError
from anchorage.api.errors.documents import LABELS_MISSING
from anchorage.api.errors.silo import IMAGES_UNLABELLED
from anchorage.api.mistakes import DocumentError, format_path
from anchorage.api.piece import expect
from anchorage.api.slot import read_piece, write_piece
from anchorage.learning.model_hooks import TaskHooks
from anchorage.methods import validate_study
from anchorage.methods.pretrained import WeightsFolder
from fedctl.class_names import agree, refuse_labels_of_several, richest
from fedctl.first_file import FirstFile
from fedctl.masked_folders import classes_of, named_values, values_at
from fedctl.output import Format, warn
from fedctl.pretrained import encoder_width
from fedctl.recipe import Labels, Weights
from fedctl.several_findings import recognise
from fedctl.site_folders import LONGEST_NAME, SiteFolder, data_root, look, plain_section, relist
from fedctl.validation import validate_file
from fedctl.volume_folders import masked_volumes, tell_of_volumes, volume_of, with_channels
from fedctl.writing import writing

LABELLED = ":labels"
"""What follows the folder of a silo whose labels are to be used."""
DEFAULT_OUT = Path("federation.yaml")


@dataclass(frozen=True, slots=True)
class InitRequest:
    """What the command line, or the interview, says."""

    out: Path | None = None
    """The file to write."""
    classes: tuple[str, ...] = ()
    """In the order of the model's outputs; empty: as the labelled folders name them."""
    server: Mapping[str, Path] = field(default_factory=dict)
    """Folders of the coordinating site by role: ``anchors``, ``validation``, ``test``."""
    silos: tuple[str, ...] = ()
    """``NAME=DIR`` or ``NAME=DIR:labels``."""
    class_maps: tuple[str, ...] = ()
    """``ROLE:LOCAL=CLASS``."""
    label_columns: tuple[str, ...] = ()
    """``ROLE:COLUMN``."""
    task: str | None = None
    """As ``spec.task`` has it, in YAML; None: classification by the labels' names."""


def begin_study(wanted: InitRequest) -> None:
    """Look at the folders, write a federation file, check it, and say how to go on; without silos, ask for everything that is missing.

    Raises
    ------
    AnchorageError
        A folder cannot be read or has no images; labels are missing, or of a task that is not supported; names of classes differ and nobody
        says what they mean; or the file would not be valid, or cannot be written.
    BadParameter
        An option has not its form, or the file exists.
    """
    asking = not wanted.silos
    request = _interview(wanted) if asking else wanted
    out = request.out or DEFAULT_OUT
    _refuse_existing(out)
    silos = dict(map(_silo_of, request.silos))
    if len(silos) < len(request.silos):
        raise typer.BadParameter("two silos have the same name; give each a name of its own")
    folders = {**request.server, **{name: folder for name, (folder, _) in silos.items()}}
    places = {role: Path(os.path.abspath(folder)) for role, folder in folders.items()}  # noqa: PTH100 (a claim may be a link)
    _refuse_shared(places)
    root = data_root(places)
    wanting_masks = [role for role in places if role not in silos or silos[role][1]]
    columns = _label_columns(request.label_columns, places)
    wanted_places = {role: places[role] for role in wanting_masks}
    task = _task_of(request)
    volumes = masked_volumes(wanted_places, root, columns) if task is None or task.gives_maps else {}
    values = {role: masked.values for role, masked in volumes.items()}
    if not volumes and not request.task:
        values = _mask_values(wanted_places, root)
    if values and task is None:
        classes = classes_of(list(values.values()), request.classes)
        request = replace(request, task=yaml.safe_dump({"segmentation": {"classes": list(classes)}}), classes=())
        typer.echo(f"{'Volumes' if volumes else 'Images'} have masks: the task is a segmentation.", err=True)
        task = _task_of(request)
    sites = {
        role: volumes[role].site
        if role in volumes
        else look(role, place, root, columns.get(role), task, volumes=bool(volumes))
        for role, place in places.items()
    }
    if volumes:
        sites = with_channels(sites)
    if asking and not volumes:  # a table of volumes without a column of masks is refused
        wanting = [*request.server, *(name for name, (_, labelled) in silos.items() if labelled)]
        sites |= {role: _ask_column(sites[role], places[role], root, task) for role in wanting}
    if values and task is not None:
        sites |= _with_mask_values(sites, values, task)
    if volumes and task is not None:
        tell_of_volumes([sites[role] for role in places], wanting_masks, values, task.outputs)
    labels = {name: _labels_of(sites[name], labelled) for name, (_, labelled) in silos.items()}
    read = [site for role, site in sites.items() if labels.get(role) != "None"]
    if task is None and not (request.classes or request.class_maps or columns) and (several := recognise(read, root)):
        findings, fields = several
        relisted_sites = {site.role: relist(site, root, findings, fields.get(site.role, {})) for site in read}
        if all(site.names for site in relisted_sites.values()):  # else some are of other labels, and are refused below
            task = findings
            typer.echo(f"images have several findings each, so the task is multiLabel: {', '.join(task.outputs)}")
            sites |= relisted_sites
            read = [*relisted_sites.values()]
            labels |= {name: _labels_of(sites[name], True) for name, labelled in labels.items() if labelled != "None"}
    if not any(site.names for site in read if site.role not in ("validation", "test")):
        raise AnchorageError(LABELS_MISSING, _no_labels(read))
    server = {role: sites[role] for role in request.server}
    _refuse_unlabelled(server)
    members = {name: (sites[name], labels[name]) for name in silos}
    class_maps: dict[str, dict[str, str]] = {}
    if task is not None:
        document, task_name = write_piece(task), task.name
    else:
        wanted_maps = _class_maps(request.class_maps, sites)
        refuse_labels_of_several(read, request.classes, wanted_maps)
        class_names = request.classes or (_ask_classes(read) if asking else ())
        classes, class_maps = agree(read, class_names, wanted_maps, _ask if asking else None)
        _warn_missing(server, classes, class_maps)
        document, task_name = {"classification": {"classes": classes}}, "classification"
    volume = volume_of([*volumes.values()]) if volumes else None
    weights = None if volumes else _weights_below(root, measured="validation" in server)
    text = FirstFile(_name_of(out), document, server, members, class_maps, weights, task_name, volume).to_yaml()
    _require_valid(text, out)
    _write(out, text)
    validate_file(out, (), Format.TABLE)
    _say_what_follows(out, root)


def _with_mask_values(
    sites: Mapping[str, SiteFolder], values: Mapping[str, Sequence[int]], task: TaskHooks
) -> dict[str, SiteFolder]:
    """Return the sites whose masks have values that are no classes by themselves, with what these mean."""
    named = {role: named_values(masked, task.outputs) for role, masked in values.items()}
    return {
        role: replace(sites[role], section=sites[role].section.model_copy(update={"mask_values": meaning}))
        for role, meaning in named.items()
        if meaning
    }


def _name_of(out: Path) -> str:
    """Return the federation's name, by that of its file."""
    name = re.sub(r"[^a-z0-9]+", "-", out.stem.lower()).strip("-")[:LONGEST_NAME].strip("-") or "federation"
    return name if name[0].isalpha() else f"study-{name}"[:LONGEST_NAME].strip("-")


def _say_what_follows(out: Path, root: Path) -> None:
    """Print the commands to go on with."""
    arguments = ["-f", str(out)]
    if root != out.absolute().parent:
        arguments += ["--data-root", os.path.relpath(root) if root.is_relative_to(Path.cwd()) else str(root)]
    typer.echo("Read it; then look at every image, and train:")
    for command in ("data check", "run"):
        typer.echo(f"  fedctl {command} {shlex.join(arguments)}")


def _mask_values(places: Mapping[str, Path], root: Path) -> dict[str, tuple[int, ...]]:
    """Return the values of the masks of each folder; empty unless the images of every one have masks."""
    values_by_role: dict[str, tuple[int, ...]] = {}
    for role, place in places.items():
        if (
            not place.is_dir()
            or (values := values_at(SiloData.model_validate(plain_section(place, root)), root)) is None
        ):
            return {}
        values_by_role[role] = values
    return values_by_role


def _task_of(request: InitRequest) -> TaskHooks | None:
    """Return the task that the command line names.

    Raises
    ------
    BadParameter
        It is no task, or stands beside names of classes.
    """
    if request.task is None:
        return None
    if request.classes or request.class_maps:
        raise typer.BadParameter("--classes and --class-map are of classification; with --task, its options say it")
    try:
        return expect(read_piece("task", yaml.safe_load(request.task)), TaskHooks)
    except (yaml.YAMLError, ValidationError) as error:
        detail = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else "it is no YAML"
        form = "'{plugin: {name: acme.Regression, options: {quantity: age}}}'"
        raise typer.BadParameter(
            f"found --task {request.task}: {detail}; write it as spec.task has it, such as {form}"
        ) from error


def _silo_of(text: str) -> tuple[str, tuple[Path, bool]]:
    name, _, folder = text.partition("=")
    labelled = folder.endswith(LABELLED)
    folder = folder.removesuffix(LABELLED)
    if not folder or not re.fullmatch(NAME_PATTERN, name) or len(name) > LONGEST_NAME:
        form = f"NAME=DIR or NAME=DIR{LABELLED}, with a name of lower-case letters, digits and dashes"
        raise typer.BadParameter(f"found --silo {text}, allowed is {form}")
    if name in ("anchors", "validation", "test"):
        raise typer.BadParameter(f"found --silo {text}: {name} are images of the server; give the silo another name")
    return name, (Path(folder), labelled)


def _class_maps(texts: Sequence[str], sites: Mapping[str, SiteFolder]) -> dict[tuple[str, str], str]:
    maps_by_site = {}
    for text in texts:
        role, _, rest = text.partition(":")
        local, _, name = rest.rpartition("=")
        if role not in sites or local not in sites[role].names:
            known = ", ".join(f"{role}:{name}" for role, site in sites.items() for name in site.names)
            raise typer.BadParameter(f"found --class-map {text}, allowed is ROLE:LOCAL=CLASS; found are {known}")
        maps_by_site[role, local] = name
    return maps_by_site


def _label_columns(texts: Sequence[str], roles: Collection[str]) -> dict[str, str]:
    columns = {}
    for text in texts:
        role, _, column = text.partition(":")
        if role not in roles or not column:
            form = f"ROLE:COLUMN, with one of the roles {', '.join(roles)}"
            raise typer.BadParameter(f"found --label-column {text}, allowed is {form}")
        columns[role] = column
    return columns


def _labels_of(site: SiteFolder, labelled: bool) -> Labels:
    if not labelled:
        return "None"
    if not site.names:
        message = f"silo {site.role} is said to have labels, but none of its {site.images} images has one"
        raise AnchorageError(IMAGES_UNLABELLED, f"{message}; {_remedy(site)}, or leave {LABELLED} out")
    return "Partial" if site.unlabelled else "All"


def _refuse_unlabelled(server: Mapping[str, SiteFolder]) -> None:
    """Refuse images of the server of which none has a label: most likely a table's column of labels was not recognised.

    Raises
    ------
    AnchorageError
        LABELS_MISSING.
    """
    for role, site in server.items():
        if not site.names:
            raise AnchorageError(
                LABELS_MISSING, f"none of the {site.images} images of {role} has a label; {_remedy(site)}"
            )


def _remedy(site: SiteFolder) -> str:
    if not site.columns:
        return "put them in a folder per class, or in a table with a column of labels"
    columns = ", ".join(site.columns)
    return (
        f"name the column of {site.section.manifest} that has them with --label-column {site.role}:COLUMN ({columns})"
    )


def _no_labels(read: Sequence[SiteFolder]) -> str:
    looked = ", ".join(f"{site.role} ({site.images} images)" for site in read) or "no folder of labels"
    return (
        f"found no labels to learn from: {looked}; name labelled images of the server with --anchors DIR, or say that a silo's "
        f"labels are to be used with --silo NAME=DIR{LABELLED}{''.join(f'; {_remedy(site)}' for site in read)}"
    )


def _warn_missing(
    server: Mapping[str, SiteFolder], classes: Sequence[str], maps: Mapping[str, Mapping[str, str]]
) -> None:
    for role, site in server.items():
        known = {maps.get(role, {}).get(name, name) for name in site.names}
        if missing := [name for name in classes if name not in known]:
            warn(f"{role} has no image of {', '.join(missing)}; `fedctl methods describe` says what the method needs")


def _weights_below(root: Path, *, measured: bool) -> Weights | None:
    """Return the pretrained weights below the data root, the first of several; None where there are none. `measured`: with the encoder's width."""
    listed = [Weights(entry.network, entry.name) for entry in WeightsFolder(root).entries()]
    if len(listed) > 1:
        others = ", ".join(f"{each.name} of {each.network}" for each in listed[1:])
        warn(
            f"the file begins with the weights {listed[0].name} of {listed[0].network}; also in {root / 'weights'}: {others}"
        )
    if not listed:
        return None
    return replace(listed[0], width=encoder_width(listed[0].network)) if measured else listed[0]


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise typer.BadParameter(f"{out} is there already and is not overwritten; name another file with --out")


def _refuse_shared(places: Mapping[str, Path]) -> None:
    """Refuse folders of which one is, or holds, another: its images would be in two sections."""
    earlier: list[tuple[str, Path]] = []
    for role, place in places.items():
        here = place.resolve()
        for other, there in earlier:
            if (
                here == there
                or (here.is_dir() and there.is_relative_to(here))
                or (there.is_dir() and here.is_relative_to(there))
            ):
                raise typer.BadParameter(f"{role} and {other} share images: {place} and {there}; give each its own")
        earlier.append((role, here))


def _require_valid(text: str, out: Path) -> None:
    """Check documents before they are written, so that a second try finds no file in its way.

    Raises
    ------
    AnchorageError
        They are not valid, as with one class alone.
    """
    with tempfile.TemporaryDirectory(prefix="fedctl-") as folder:
        draft = Path(folder) / "federation.yaml"
        draft.write_text(text, encoding="utf-8")
        try:
            validate_study(draft)
        except DocumentError as error:
            mistakes = "; ".join(f"{format_path(mistake.path)}: {mistake.message}" for mistake in error.mistakes)
            raise AnchorageError(
                error.failure, f"{out} is not written, as it would not be valid: {mistakes}"
            ) from error


def _write(out: Path, text: str) -> None:
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("x", encoding="utf-8") as file:
            file.write(text)


def _interview(request: InitRequest) -> InitRequest:
    """Ask for what the options do not say."""
    out = request.out or Path(typer.prompt("File to write", default=str(DEFAULT_OUT)))
    _refuse_existing(out)
    server = dict(request.server)
    questions = {
        "anchors": "The coordinating site's labelled images to train on",
        "validation": "Labelled images by which the best round is chosen",
        "test": "Labelled images on which the result is scored at the end",
    }
    for role, question in questions.items():
        if role not in server and (answer := _folder(f"{question} (folder or CSV table; Enter: none)")):
            server[role] = Path(answer)
    silos: list[str] = []
    while True:
        question, default = ("A hospital's name (Enter: no more)", "") if silos else ("A hospital's name", None)
        name = typer.prompt(question, default=default, show_default=False)
        if not name:
            break
        folder = typer.prompt(f"Folder, or CSV table, of {name}'s images")
        labelled = typer.confirm(f"Does {name} train on labels of its own?", default=False)
        silos.append(f"{name}={folder}{LABELLED * labelled}")
        try:
            _silo_of(silos[-1])
        except typer.BadParameter as error:
            typer.echo(error.message)
            del silos[-1]
    return replace(request, out=out, server=server, silos=tuple(silos))


def _folder(question: str) -> str:
    while (answer := str(typer.prompt(question, default="", show_default=False)).strip()) and not Path(answer).exists():
        typer.echo(f"{answer} is not there")
    return answer


def _ask_column(site: SiteFolder, place: Path, root: Path, task: TaskHooks | None) -> SiteFolder:
    """Ask which column of a table has the labels, where none of the usual names is there."""
    if site.names or not site.columns:
        return site
    question = f"Column of {site.section.manifest} ({site.role}) that has the labels ({', '.join(site.columns)})"
    while (answer := str(typer.prompt(question))) not in site.columns:
        typer.echo(f"{answer} is no column of it")
    return look(site.role, place, root, answer, task)


def _ask_classes(sites: Sequence[SiteFolder]) -> tuple[str, ...]:
    """Ask for the classes; none where those of the folders are accepted."""
    names = ", ".join(richest(sites).names)
    answer = str(typer.prompt("Classes, in the order of the model's outputs", default=names))
    return () if answer == names else tuple(name.strip() for name in answer.split(",") if name.strip())


def _ask(site: SiteFolder, name: str, classes: Sequence[str]) -> str:
    question = f'{site.role} has {site.names[name]} images of "{name}". Class ({", ".join(classes)}; Enter: a class of its own)'
    return str(typer.prompt(question, default=name, show_default=False)).strip()
