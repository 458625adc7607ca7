"""Spans of the server's rounds."""

from opentelemetry.trace import Span

from anchorage.engine.events import RoundCommitted, RoundStarted, RunEnded, RunEvent, StepBegan
from anchorage.transport.spans import RoundSpans


class RoundObserver:
    """Spans every round from its start to its commit, and each of its steps (`Observer`); of synchronous rounds.

    Parameters
    ----------
    spans : RoundSpans
        Where they go.
    """

    def __init__(self, spans: RoundSpans) -> None:
        self._spans = spans
        self._round: Span | None = None
        self._step: Span | None = None

    def __call__(self, event: RunEvent) -> None:
        """Take note of an event."""
        match event:
            case RoundStarted(number, _):
                self._end()
                self._round = self._spans.begin_round(number)
            case StepBegan(name) if self._round is not None:
                self._end_step()
                self._step = self._spans.begin(name, self._round)
            case RoundCommitted():
                self._end()
            case RunEnded(code, _):
                if code and self._round is not None:
                    self._round.set_attribute("anchorage.code", code)
                self._end()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.end()
        self._step = None

    def _end(self) -> None:
        self._end_step()
        if self._round is not None:
            self._round.end()
        self._round = None
