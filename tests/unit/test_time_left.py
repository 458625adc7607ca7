"""What the tests do when a limit on their whole time is over."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

QUICK = Path(__file__).with_name("test_pitfalls_listed.py")


@pytest.mark.parametrize(("seconds_left", "outcome"), [(-1, "skipped"), (3600, "passed")])
def test_no_test_begins_after_the_time_is_over(seconds_left, outcome):
    limit = {"ANCHORAGE_TESTS_UNTIL": str(time.time() + seconds_left)}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", str(QUICK)]
    ran = subprocess.run(command, env={**os.environ, **limit}, capture_output=True, text=True, timeout=300)
    assert (ran.returncode, outcome in ran.stdout.splitlines()[-1]) == (0, True), ran.stdout + ran.stderr
    assert ("no time was left to begin this test" in ran.stdout) == (outcome == "skipped")
