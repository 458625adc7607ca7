"""Logging as JSON lines on standard error."""

import json
import logging
import sys
from datetime import UTC, datetime

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as JSON: time, level, logger, message and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of JSON."""
        values = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        values |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return json.dumps(values, default=str)


def log_to_stderr(level: int = logging.INFO) -> None:
    """Send the records of all loggers to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
