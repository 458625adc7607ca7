"""``fedctl report``: one self-contained HTML page of a run, here or in a cluster, for people who do not open MLflow."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from markdown_it import MarkdownIt

from anchorage.api.card_text import headline_table, markdown, plain, table, verdict
from anchorage.api.errors import AnchorageError, commands
from anchorage.api.errors.tracking import TRACKING_UNREACHABLE
from anchorage.api.files import load_federation
from anchorage.api.imports import import_large
from anchorage.api.model_card import CARD, EXAMPLES, ModelCard
from anchorage.api.regular_files import read_regular
from anchorage.engine.tracking import Outbox, Sender, what_is_sent
from anchorage.methods.model_card import write_card
from anchorage.transport.files import write_atomically
from fedctl.choice import Place, choose
from fedctl.diagnosis import notes
from fedctl.local_source import LocalSource
from fedctl.output import Format, amount, emit
from fedctl.sites_alone import AloneScores
from fedctl.source import Round, Source
from fedctl.workdir import Workdir
from fedctl.writing import writing

if TYPE_CHECKING:
    from fedctl.report_figures import Picture

    Sections = Sequence[tuple[str, Sequence[Picture]]]

STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.35rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h1, h2, h3, h4 { line-height: 1.25; }
p, li { max-width: 46rem; }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; max-width: 36rem; } figcaption { font-weight: 600; }
img { width: 100%; height: auto; background: white; border: 1px solid var(--line); border-radius: 6px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: max-content; }
td, th { padding: .25rem 1rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); max-width: 22rem; }
code { background: var(--soft); border-radius: 3px; }
"""
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Content security policy of the page: nothing is fetched, and nothing runs."""


def report_run(where: str, place: Place, out: Path | None, bound: Path | None, output: Format) -> None:
    """Write the page and say where it is.

    Parameters
    ----------
    where : str
        Working folder of a run, or the name of one below ``.anchorage`` or in a cluster.
    place : Place
        Where to look for the name.
    out : Path or None
        The page; None: ``report.html`` in the working folder, of a run in a cluster ``NAME-report.html`` here.
    bound : Path or None
        Working folder of the supervised bound, which is added to the model card of a run on this machine.
    output : Format
        How to say it.

    Raises
    ------
    AnchorageError
        There is no such run or bound, its files cannot be read, matplotlib is missing, or the page cannot be written.
    """
    here = Workdir(Path(where).resolve())
    folder = not place.names_cluster and ("/" in where or here.federation.exists())
    source = LocalSource(here) if folder else choose(where, place)
    run = source.run if isinstance(source, LocalSource) else None
    if bound is not None:
        if run is None:
            raise typer.BadParameter(
                "--bound completes the card of a run on this machine; leave it out for a cluster's"
            )
        add_bound(run, bound)
    file = write_report(source, out or (run.report if run else Path(f"{where}-report.html")))
    if output.for_people:
        typer.echo(f"{file}: {amount(file.stat().st_size)}; open it in any browser")
    else:
        emit({"path": str(file), "bytes": file.stat().st_size}, output)


def add_bound(run: Workdir, folder: Path) -> None:
    """Add the supervised bound to the card of a run that is over, also in MLflow.

    Raises
    ------
    AnchorageError
        There is no card, or as `fedctl.bound.read_bound`.
    """
    from fedctl.bound import read_bound

    card, uri = LocalSource(run).card(), load_federation(run.federation).federation.spec.tracking.uri
    if card is None:
        raise AnchorageError(commands.NO_RESULTS, f"{run.root} is not over, so there is no model card to complete")
    complete_card(run, AloneScores(), read_bound(folder.resolve(), card))
    missing = send_card(run, uri, partial(typer.echo, err=True)) if uri is not None else None
    if missing is not None:
        typer.echo(f"{missing}; fedctl run sends the rest", err=True)


def complete_card(run: Workdir, alone: AloneScores, supervised_bound: Mapping[str, float] | None = None) -> None:
    """Add to the model card what only the runner knows: training on the labels and at each site alone, and on all labels.

    `send_card` has MLflow take it.

    Raises
    ------
    AnchorageError
        The card cannot be read or written.
    """
    card, metric_sets = LocalSource(run).card(), {"labels_alone": alone.labels, "supervised_bound": supervised_bound}
    known: dict[str, object] = {name: _finite(metrics) for name, metrics in metric_sets.items() if metrics is not None}
    if alone.sites:
        known["sites_alone"] = {name: _finite(metrics) for name, metrics in alone.sites.items()}
    if card is None or all(getattr(card, name) == metrics for name, metrics in known.items()):
        return
    with writing(run.model / CARD):
        write_card(run.model, card.model_copy(update=known))
        if run.outbox.exists():
            outbox = Outbox(run.outbox)
            outbox.append("card", {"models": str(run.model)})
            outbox.close()


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def send_card(run: Workdir, uri: str, say: Callable[[str], None]) -> AnchorageError | None:
    """Have MLflow at `uri` take the completed model card, unless it has that; return what it does not have."""
    missing = what_is_sent(run.outbox, "").missing if run.outbox.exists() else None
    if missing is None or missing.failure is not TRACKING_UNREACHABLE:
        return None
    say("sending the completed model card to MLflow")
    return Sender(run.outbox, uri).finish().missing


def write_report(source: Source, out: Path, sections: "Sections | None" = None) -> Path:
    """Write the page of a run as far as it is, and return its path.

    Parameters
    ----------
    source : Source
        The run.
    out : Path
        The page.
    sections : Sections or None
        Its pictures, where `draw_sections` drew them already.

    Raises
    ------
    AnchorageError
        As `report_run`.
    """
    page = _page(source, draw_sections(source) if sections is None else sections)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page.encode())
    return out


def draw_sections(source: Source) -> "Sections":
    """Draw the pictures of a run as far as it is, and return them with the title above them; of a run whose rounds are over and whose model card
    is complete they stay the same.

    Raises
    ------
    AnchorageError
        Files of the run cannot be read, or matplotlib is missing.
    """
    import_large("fedctl.report_figures")  # matplotlib takes a second to load
    from fedctl import report_figures as figures
    from fedctl.embedding_figures import embedding_pictures

    document, rounds, card = source.observe().document, source.rounds(), source.card()
    scored = card.final.assessment if card is not None else None
    sections: list[tuple[str, Sequence[Picture]]] = [
        ("Over the rounds", [*figures.curves(rounds)]),
        ("Silos over the rounds", [*figures.silo_curves(rounds)]),
        ("Embeddings of validation images", [*embedding_pictures(rounds, document["spec"]["task"])]),
        (
            "The last model",
            [*figures.assessment_pictures(scored, document["spec"]["task"])] if scored else [],
        ),
    ]
    if isinstance(source, LocalSource):
        file = source.run.model / EXAMPLES.format(role="final")
        sections.append(("Validation images", [*figures.example_pictures(file)]))
    return sections


def _page(source: Source, sections: "Sections") -> str:
    document, rounds, card = source.observe().document, source.rounds(), source.card()
    name, wanted = str(document["metadata"]["name"]), document["spec"]["rounds"]
    parts = [f"<h1>{escape(name)}</h1>", _render(_opening(rounds, wanted, card))]
    if lines := notes(document, rounds):
        parts.append(
            f"<h2>Notes on the last rounds</h2>\n{_render(chr(10).join(f'- {plain(line)}' for line in lines))}"
        )
    for title, pictures in sections:
        if pictures:
            parts.append(f"<h2>{title}</h2>\n<div class='figures'>{''.join(map(_figure, pictures))}</div>")
    if isinstance(source, LocalSource) and (sent := _message_table(source.run)):
        parts.append(f"<h2>Sent by each hospital, by its audit log</h2>\n{_render(sent)}")
    if card is not None:
        parts.append(_render(markdown(card), deeper=True))
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{escape(name)}: report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _opening(rounds: Sequence[Round], wanted: int, card: ModelCard | None) -> str:
    if card is None:
        done = rounds[-1]["round"] if rounds else 0
        return f"{done} of {wanted} rounds are committed. The model card follows when the run is over."
    setting_line = f"{plain(card.method)} on {plain(card.network)}: {card.rounds} rounds with {len(card.silos)} silos."
    return f"{verdict(card)}\n\n{setting_line}\n\n{headline_table(card)}"


def _figure(picture: "Picture") -> str:
    title, says = escape(picture.title), escape(picture.says)
    return f"<figure><figcaption>{title}</figcaption><img src='{picture.uri}' alt='{title}. {says}'></figure>\n"


def _render(text: str, *, deeper: bool = False) -> str:
    """Return Markdown as HTML, without any HTML of its own; `deeper` makes each heading one of the next level."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    for token in tokens:
        if deeper and token.type in ("heading_open", "heading_close"):
            token.tag = f"h{int(token.tag[1:]) + 1}"
    html: str = parser.renderer.render(tokens, parser.options, {})
    return html.replace("<table>", "<div class='scroll'><table>").replace("</table>", "</table></div>")


def _message_table(run: Workdir) -> str:
    """Return a table of the messages in the audit logs of the silos on this machine; nothing where there are none."""
    rows = []
    for log in sorted(run.silo("x").parent.glob("*/state/audit.jsonl")):
        kinds: Counter[str] = Counter()
        nbytes = 0
        for line in (line for path in log.parent.glob("audit*.jsonl") for line in read_regular(path).splitlines()):
            try:
                entry = json.loads(line)
                kinds[str(entry["kind"])] += 1
                nbytes += int(entry["bytes"])
            except (ValueError, KeyError, TypeError):
                continue  # the last line, while the silo writes it
        kinds.pop("segment", None)  # which was not sent
        message_counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        rows.append((plain(log.parent.parent.name), plain(message_counts), amount(nbytes)))
    return table(("silo", "messages", "bytes"), rows) if rows else ""
