"""Output of a simulation: its progress, and the means over its seeds at the end."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from statistics import fmean
from time import monotonic
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from anchorage.api.fact import Fact
from anchorage.api.federation import Federation
from anchorage.api.metric_names import ACCEPTANCE, PSEUDO_LABEL_ACCURACY
from anchorage.api.metrics import score
from anchorage.api.model_card import CARD
from anchorage.api.silo_state import SiloState
from anchorage.api.status import CheckpointStatus, FederationStatus, Metric, SiloStatus
from anchorage.engine.events import RoundCommitted, RoundStarted, RunEvent, SiloChanged, StepBegan
from anchorage.engine.interfaces import RoundRecord
from anchorage.engine.store.records import record_to_json
from anchorage.methods import resolve
from fedctl.diagnosis import diagnose
from fedctl.local_source import read_card_at
from fedctl.output import duration, format_count, people, plain_table
from fedctl.research.results import Results, SimulationFolder, Spread
from fedctl.summary import NO_BEST, verdict_lines
from fedctl.view import Pace, Picture, View

SHOWN_SILOS = 16
"""Silos of a round that a picture on a terminal has lines for."""
SHARES = (ACCEPTANCE, PSEUDO_LABEL_ACCURACY)
SHOW_SECONDS = 0.2
"""Least time between two pictures of the same round."""


class SeedWatcher:
    """Shows one seed's run to people; an `anchorage.engine.events.Observer`.

    Parameters
    ----------
    federation : Federation
        What is simulated.
    title : str
        Which seed, of how many.
    view : View
        Where it is shown.
    silos : int
        How many silos of a round are shown at most.
    """

    def __init__(self, federation: Federation, title: str, view: View, silos: int) -> None:
        spec = federation.spec
        self._name = f"{federation.metadata.name}, {title}"
        self._method = f"{spec.method.name} on {spec.model.network}"
        self._view = view
        self._shown_silos = silos
        self._status = FederationStatus(rounds=spec.rounds)
        self._silos: dict[str, SiloStatus] = {}
        self._pace = Pace()
        self._idle = Fact.IDLE_FIRST_ROUND in resolve(spec.method, spec.task).facts()
        self._begun = self._drawn = monotonic()

    def __call__(self, event: RunEvent) -> None:
        """Show what the engine reports; every silo is here, and the command says how it ended."""
        match event:
            case SiloChanged():
                self._change(event)
            case RoundStarted(_, silos):
                shown = silos[: self._shown_silos]
                self._silos = {silo: SiloStatus(name=silo, connected=True, state=SiloState.TRAINING) for silo in shown}
                self._show()
            case StepBegan(name):
                self._status = self._status.model_copy(update={"step": name})
                self._show()
            case RoundCommitted(record):
                self.show_round(record)
            case _:
                pass

    def _change(self, event: SiloChanged) -> None:
        """Show a silo's progress, and why it does not count."""
        if event.code:
            self._view.say(f"silo {event.silo} does not count: {event.code} {event.message}")
        if event.silo in self._silos:
            progress = min(100, 100 * event.done // event.total) if event.total else 0
            changes = {"state": event.state, "progress": progress, "code": event.code}
            self._silos[event.silo] = self._silos[event.silo].model_copy(update=changes)
            self._show()

    def show_round(self, record: RoundRecord) -> None:
        """Show a round's metrics and weights."""
        for part in record.silos:
            if part.name in self._silos:
                changes = {"weight": repr(part.weight), "samples": part.samples.get("train", 0), "state": part.state}
                self._silos[part.name] = self._silos[part.name].model_copy(update=changes)
        if record.silos:
            idle = all(part.state == SiloState.INACTIVE for part in record.silos)
            if idle and not self._idle:
                detail = "no silo had anything to learn from, such as accepted pseudo-labels"
                self._view.say(f"from round {record.round} on {detail}; the server goes on without them")
            self._idle = idle
        metrics = {metric.name: metric for metric in self._status.metrics}
        metrics |= {name: Metric(name=name, value=repr(float(value))) for name, value in record.metrics.items()}
        changes = {
            "round": record.round,
            "metrics": tuple(metrics.values()),
            "last_checkpoint": CheckpointStatus(round=record.round),
        }
        self._status = self._status.model_copy(update=changes)
        self._show(now=True)

    def _show(self, *, now: bool = False) -> None:
        time = monotonic()
        if not now and time - self._drawn < SHOW_SECONDS:
            return
        self._drawn = time
        self._view.show(
            Picture(
                federation=self._name,
                method=self._method,
                status=self._status.model_copy(update={"silos": tuple(self._silos.values())}),
                elapsed_seconds=time - self._begun,
                remaining_seconds=self._pace.update(self._status, time),
            )
        )


def print_simulation(results: Results, elapsed_seconds: float | None, *, wide: bool) -> None:
    """Print the table of means on stdout.

    Parameters
    ----------
    results : Results
        Every seed that was asked for.
    elapsed_seconds : float or None
        Time of this start; None where every seed was finished before.
    wide : bool
        Add a line per seed.
    """
    spec, console = results.federation.spec, people()
    counts = f"{format_count(len(results.seeds), 'seed')}, {format_count(spec.rounds, 'round')}"
    head = f"{results.federation.metadata.name}: {spec.method.name} on {spec.model.network}, {counts}"
    how = "finished before" if elapsed_seconds is None else f"finished in {duration(elapsed_seconds)}"
    lines: list[RenderableType] = [Text(f"{head}, {how}", style="bold")]
    lines += _verdicts(results)
    lines.append(
        _means_table(results) if results.metrics() else Text("nothing was scored: there is no spec.evaluation")
    )
    if results.part == "test" and all(score(entry.metrics) is None for entry in results.seeds[0].rounds):
        lines.append(Text(NO_BEST))
    if Fact.PSEUDO_LABELS in resolve(spec.method, spec.task).facts():
        lines += _pseudo_labels(results)
    if wide:
        lines.append(_seeds_table(results))
    lines.append(Text(f"results in {results.folder / 'seeds'}"))
    console.print(Group(*lines))


def _verdicts(results: Results) -> Iterator[Text]:
    """Yield what the card of each seed says, where its models were kept."""
    for seed in results.seeds:
        card = read_card_at(SimulationFolder(results.folder).models(seed.seed) / CARD)
        for line in verdict_lines(card) if card is not None else ():
            yield Text(f"seed {seed.seed}: ").append(line) if len(results.seeds) > 1 else line


def _means_table(results: Results) -> RenderableType:
    images = results.images_of("")
    right = (f"last round, {images}", f"best round, {images}")
    table = plain_table("metric", *right, right=right)
    best = results.at_best()
    for name in results.metrics():
        table.add_row(name.replace("_", " "), str(results.last(name)), str(best[name]) if name in best else "")
    return table


def _pseudo_labels(results: Results) -> Iterator[RenderableType]:
    """Yield a table of the silos' accepted pseudo-labels in their last rounds, and what is to be said of it."""
    silos = results.of_silos()
    if silos:
        known = any(PSEUDO_LABEL_ACCURACY in metrics for metrics in silos.values())
        columns = {"accepted": ACCEPTANCE, **({"of these right": PSEUDO_LABEL_ACCURACY} if known else {})}
        table = plain_table("pseudo-labels", *columns, right=tuple(columns))
        for name, metrics in [*islice(silos.items(), SHOWN_SILOS), *_mean_of_all(silos)]:
            table.add_row(
                name, *(metrics[metric].percent() if metric in metrics else "" for metric in columns.values())
            )
        yield table
    for seed in results.seeds:
        parts = record_to_json(replace(seed.rounds[-1], silos=tuple(seed.silos.values())))
        for line in diagnose(results.federation.spec.method, [parts]):
            yield Text(f"seed {seed.seed}: {line}" if len(results.seeds) > 1 else f"note: {line}")


def _mean_of_all(silos: Mapping[str, Mapping[str, Spread]]) -> Iterator[tuple[str, Mapping[str, Spread]]]:
    if len(silos) > 1:
        every = {metric: [metrics[metric].mean for metrics in silos.values() if metric in metrics] for metric in SHARES}
        yield f"mean of all {len(silos)}", {metric: Spread((fmean(v),)) for metric, v in every.items() if v}


def _seeds_table(results: Results) -> RenderableType:
    names = results.metrics()
    right = ("best round", "took")
    table = plain_table(
        "seed", "digest", "best round", "took", *(name.replace("_", " ") for name in names), right=right
    )
    for place, seed in enumerate(results.seeds):
        values = (f"{results.last(name).values[place]:.4f}" for name in names)
        table.add_row(
            str(seed.seed), seed.digest, str(seed.best_round(results.first).round), duration(seed.seconds), *values
        )
    return table


def summary(results: Results) -> dict[str, Any]:
    """Return all results of a simulation, as JSON values."""
    return {
        "federation": results.federation.metadata.name,
        "method": results.federation.spec.method.name,
        "model": results.federation.spec.model.network,
        "workdir": str(results.folder),
        "images": results.images_of(""),
        "last": {name: results.last(name).as_document() for name in results.metrics()},
        "best": {name: spread.as_document() for name, spread in results.at_best().items()},
        "silos": {
            silo: {name: spread.as_document() for name, spread in metrics.items()}
            for silo, metrics in results.of_silos().items()
        },
        "seeds": [{**seed.as_document(), "bestRound": seed.best_round(results.first).round} for seed in results.seeds],
    }
