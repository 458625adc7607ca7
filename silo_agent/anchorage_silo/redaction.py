"""What of failures, log records and exceptions may leave the trainer process: nothing that files, tables and libraries wrote.

The process reads the images, so whatever it says may hold a patient's name: as the name of a file, a cell of a table, a tag of a picture, or in a
text of a library. Only what is known to hold none passes to the agent, and so to its log and to the server: records of this project's own loggers,
failures as `AnchorageError.redacted` says them, and of exceptions their types and places in the code. All else goes to standard error, which the
agent keeps in a file of the state folder (`anchorage_silo.kept_output`).
"""

import logging
import sys
import traceback
from collections.abc import Iterator

from anchorage.api.errors import AnchorageError
from anchorage.api.errors.data import IMAGES_CHANGED, PARTITION_IMPOSSIBLE, TOO_FEW_ANCHORS, WEIGHTS_UNUSABLE
from anchorage_silo.frames import FrameWriter, Kind

CLEAR_CODES = ("ANC-13", "ANC-21", "ANC-22")
"""Prefixes of failures whose messages name nothing of the images, of learning, transfer and policy."""
_CLEAR = (IMAGES_CHANGED, PARTITION_IMPOSSIBLE, TOO_FEW_ANCHORS)
"""Failures of images whose messages count them by the federation's classes."""
_OF_IMAGES = "ANC-12"
_IMAGES_HINT = "`anchorage-silo images` tells more at the hospital, `fedctl data check` of images of your own"
_HINT = "the whole message is in trainer.log of the agent's state folder"
IMAGE_LIBRARIES = ("PIL", "pydicom", "nibabel", "gdcm", "pylibjpeg", "openjpeg", "highdicom")
"""Loggers of libraries that read images; they write tags, values and paths."""
_PRODUCT_PACKAGES = frozenset({"anchorage", "anchorage_silo"})
_FRAMES = 12
"""Innermost places of an exception that are told."""
_LONGEST = 4000


def redacted_message(error: AnchorageError) -> str:
    """Return a failure's message as it may leave the process."""
    from anchorage.api.piece_faults import without_text  # a null trainer imports no pydantic

    if error.redacted is not None:
        text = error.redacted
    elif error.failure in _CLEAR or error.code.startswith(CLEAR_CODES):
        text = without_text(error.message)
    else:
        text = error.failure.title.rstrip(".")
    if text == error.message or error.code.startswith(CLEAR_CODES):
        return text
    of_images = error.code.startswith(_OF_IMAGES) and error.failure is not WEIGHTS_UNUSABLE
    return f"{text}; {_IMAGES_HINT if of_images else _HINT}"


def places_of(error: BaseException) -> str:
    """Return the types of an exception and of those before it, with where in the code they were raised, and nothing of their texts."""
    return "; after ".join(
        f"{type(each).__name__} at {', called by '.join(reversed(_places(each))) or 'an unknown place'}"
        for each in _chain(error)
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    known: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in known:
        known.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _places(error: BaseException) -> list[str]:
    walked = list(traceback.walk_tb(error.__traceback__))[-_FRAMES:]
    return [f"{frame.f_code.co_name} ({frame.f_globals.get('__name__', '?')}:{line})" for frame, line in walked]


class TrainerLog(logging.Handler):
    """Sends records of this project's loggers to the agent, exceptions by their types and places, and prints all others.

    Parameters
    ----------
    writer : FrameWriter
        To the agent.
    """

    def __init__(self, writer: FrameWriter) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Send or print one record."""
        try:
            if record.name.partition(".")[0] not in _PRODUCT_PACKAGES:
                sys.stderr.write(f"{record.name}: {record.getMessage()}\n")
                return
            message = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                message += f": {places_of(record.exc_info[1])}"
            self._writer.write_json(Kind.LOG, level=record.levelno, message=message[:_LONGEST])
        except (OSError, ValueError):  # the agent has ended
            self.handleError(record)


def log_to_agent(writer: FrameWriter) -> None:
    """Send this process's log to the agent; libraries that read images log nothing."""
    logging.basicConfig(level=logging.WARNING, handlers=[TrainerLog(writer)], force=True)
    silence_image_libraries()


def silence_image_libraries() -> None:
    """Have the loggers of `IMAGE_LIBRARIES` write nothing below CRITICAL, at whatever level this process logs."""
    for name in IMAGE_LIBRARIES:
        logging.getLogger(name).setLevel(logging.CRITICAL)


def report_exception(error: BaseException, writer: FrameWriter) -> None:
    """Print an exception with all that it says, and send the agent its types and places for the log."""
    traceback.print_exception(error)
    sys.stderr.flush()
    message = f"an exception in the trainer process: {places_of(error)}"
    writer.write_json(Kind.LOG, level=logging.ERROR, message=message[:_LONGEST])
