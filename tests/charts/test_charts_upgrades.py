"""Upgrades with ``--reuse-values``: Helm then takes the values of the old chart, which lack what is new, for the new chart's defaults."""

import shutil
import subprocess
from pathlib import Path

import pytest
from helm_charts import CHARTS, SITE, Helm, Values

ROOT = CHARTS.parent
RELEASE = (ROOT / "tests/integration/last_release.txt").read_text(encoding="utf-8").strip()


@pytest.mark.parametrize(
    ("chart", "values"),
    [
        ("anchorage", {"mlflow": {"enabled": True}, "metrics": {"serviceMonitor": {"enabled": True}}}),
        ("silo-agent", {**SITE, "metrics": {"serviceMonitor": {"enabled": True}}}),
    ],
)
def test_the_last_release_s_values_render_as_the_new_defaults(
    helm: Helm, tmp_path: Path, chart: str, values: Values
) -> None:
    old = subprocess.run(
        ["git", "-C", ROOT, "show", f"{RELEASE}:charts/{chart}/values.yaml"], capture_output=True, check=False
    )
    if old.returncode:
        pytest.skip(f"the last release, {RELEASE}, is not in this clone: git fetch --unshallow --tags")
    upgraded = tmp_path / chart
    shutil.copytree(CHARTS / chart, upgraded)
    (upgraded / "values.yaml").write_bytes(old.stdout)
    upgraded_objects, fresh = helm.template(upgraded, values), helm.template(chart, values)
    names = [[(each["kind"], each["metadata"]["name"]) for each in objects] for objects in (upgraded_objects, fresh)]
    assert names[0] == names[1]
    policies = [[each for each in objects if each["kind"] == "NetworkPolicy"] for objects in (upgraded_objects, fresh)]
    assert policies[0] == policies[1], "a new value is read with its default"
