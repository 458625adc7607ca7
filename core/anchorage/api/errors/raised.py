"""The exception for failures that a user may see."""

from anchorage.api.errors.catalogue import Failure


class AnchorageError(Exception):
    """A catalogued failure with the details of this case.

    Parameters
    ----------
    failure : Failure
        The entry of the catalogue.
    message : str
        One line: what was found, where, and what to do.
    redacted : str, optional
        The same without names of files and folders, cells of tables, and other content of a site's images: what may leave the site. Left out: the
        failure's title stands for it where the message may have such content.
    """

    def __init__(self, failure: Failure, message: str, *, redacted: str | None = None) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message
        self.redacted = redacted

    @property
    def code(self) -> str:
        """The stable code, such as ``ANC-1203``."""
        return self.failure.code

    def __str__(self) -> str:
        return f"{self.failure.code} {self.failure.reason}: {self.message}"
