"""What the charts say about their values.

From the models beside this file come, for each chart, ``values.schema.json`` (what Helm refuses), ``values.yaml`` (the defaults, with
comments) and the table in ``README.md``, for the agent the template that writes its options into its configuration, and for the operator
the one with what documents may name in pods.
"""

from collections.abc import Mapping
from pathlib import Path

from makers.charts import anchorage_chart, silo_agent_chart
from makers.charts.kubernetes_parts import Values
from makers.charts.schema import schema_text
from makers.charts.table import BEGIN, END, table
from makers.charts.values_yaml import values_text
from makers.markers import replace_between

MODELS: dict[str, type[Values]] = {
    "anchorage": anchorage_chart.ChartValues,
    "silo-agent": silo_agent_chart.ChartValues,
}


def files(root: Path) -> Mapping[Path, str | None]:
    """Return every made file of the charts with its text."""
    made: dict[Path, str | None] = {}
    for name, model in MODELS.items():
        folder = Path("charts") / name
        readme = folder / "README.md"
        made[folder / "values.schema.json"] = schema_text(model)
        made[folder / "values.yaml"] = values_text(model)
        made[readme] = replace_between((root / readme).read_text(encoding="utf-8"), BEGIN, END, table(model))
    made[Path("charts/silo-agent/templates/_options.tpl")] = silo_agent_chart.options_template()
    made[Path("charts/anchorage/templates/_pod_limits.tpl")] = anchorage_chart.pod_limits_template()
    return made
