"""The threat table of README.md and the scripts that play it are in step."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "integration"))

import attacks_at_random  # noqa: F401 - registers its script
import attacks_by_files  # noqa: F401
import attacks_by_members  # noqa: F401
import attacks_by_server  # noqa: F401
import attacks_from_outside  # noqa: F401
import attacks_on_sums  # noqa: F401
from attack_scripts import SCRIPTS
from attack_table import rows


def test_every_row_has_a_script_and_every_script_a_row() -> None:
    named = [row.script for row in rows()]
    assert len(named) == len(set(named)) >= 30
    assert set(named) == set(SCRIPTS)


def test_no_cell_is_empty() -> None:
    for row in rows():
        assert all((row.who, row.attempt, row.expected, row.against)), row
