"""What a run's page in MLflow says first: its scores as a table, from the metrics that MLflow has of it."""

from collections.abc import Mapping

from anchorage.api.card_text import HELD_OUT, plain, table
from anchorage.api.metrics import metric_order, score

LABELS_ALONE = "labels_alone/"
"""What names of metrics begin with, behind the part of the images, that training on the server's labelled images alone reached."""
SUPERVISED_BOUND = "supervised_bound/"
"""The same of another run that had every label."""
SITE_ALONE = "site_alone/"
"""The same, before a silo's name, of training at that silo alone."""
MOST_SILOS = 20
"""Silos that have a row."""

EXPERIMENT = """Federated training of image models by Anchorage. Each run is one federation, or one seed of a simulated one.

| where in a run | what |
| --- | --- |
| Overview | scores of the federation, of training on the labels alone, of each silo; datasets; options of the method by slot |
| Model metrics | curves over rounds: of the model, `recall` of each class, `silo` by name, `seconds` of each step |
| Artifacts | `0-results.md`, `figures/final`, `figures/best`, `figures/rounds`, `model-card.md`, `federation.yaml` |
"""
"""Description of an experiment; it stays as it is where people have written one."""


def headline(metrics: Mapping[str, float]) -> str:
    """Return the scores of a run as a table in Markdown, empty where there are none.

    Rows are the last model on the test images (without those, on the validation images), training on the labels alone, at each site alone, on
    all labels, the best model, and each silo on images of its own that it kept from training, the worst first. MLflow folds all but the first rows.

    Parameters
    ----------
    metrics : mapping of str to float
        The latest value of every metric, by the names that `TrackedRun` gives them.
    """
    part = "test/" if any(f"test/final/{name}" in metrics for name in metric_order()) else "validation/"
    last = _below("test/final/" if part == "test/" else "", metrics)
    best = _below("test/best/", metrics)
    rows = {"federation": last, "labels alone": _below(part + LABELS_ALONE, metrics)}
    sites = dict.fromkeys(name.split("/")[2] for name in metrics if name.startswith(part + SITE_ALONE))
    rows |= {f"{plain(name)} alone": _below(f"{part}{SITE_ALONE}{name}/", metrics) for name in sites}
    rows["supervised bound"] = _below(part + SUPERVISED_BOUND, metrics)
    rows |= {"best round": best} if best != last else {}
    silos = sorted({name.split("/")[1] for name in metrics if name.startswith("silo/") and f"/{HELD_OUT}" in name})
    scored = {name: _below(f"silo/{name}/{HELD_OUT}", metrics) for name in silos}
    ranked = sorted((name for name in silos if scored[name]), key=lambda name: score(scored[name]) or (0, 0.0))
    rows |= {f"{plain(name)}, own images": scored[name] for name in ranked[:MOST_SILOS]}
    filled_rows = {title: values for title, values in rows.items() if values}
    if not filled_rows:
        return ""
    columns = [name for name in metric_order() if any(name in values for values in filled_rows.values())]
    cells = (
        (title, *(f"{values[name]:.4f}" if name in values else "" for name in columns))
        for title, values in filled_rows.items()
    )
    more = f"\n\nand {len(ranked) - MOST_SILOS} silos with better scores" if len(ranked) > MOST_SILOS else ""
    return (
        table((f"{part[:-1]} images" if last else "images", *(name.replace("_", " ") for name in columns)), cells)
        + more
    )


def _below(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name in metric_order() if (value := metrics.get(prefix + name)) is not None}
