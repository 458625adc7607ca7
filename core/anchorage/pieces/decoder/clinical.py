"""The packages of the extra `clinical`."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.commands import PACKAGE_MISSING


@cache
def are_installed(packages: Sequence[str]) -> bool:
    """Return whether packages can be imported; nothing of them is."""
    return all(find_spec(package) is not None for package in packages)


def absent(what: str, packages: Sequence[str]) -> AnchorageError:
    """Return the error of files that need packages which are not there."""
    missing = ", ".join(package for package in packages if find_spec(package) is None)
    message = f"{what} files need {missing}, which is not installed; install it with: pip install 'anchorage[clinical]'"
    return AnchorageError(PACKAGE_MISSING, message, redacted=message)
