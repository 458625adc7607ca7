"""The agent's side of the process in which it asks pieces of other packages (`anchorage_silo.piece_process`)."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from anchorage.api.errors import CATALOGUE, AnchorageError
from anchorage.api.errors.learning import PIECE_WRONG
from anchorage.api.text import printable
from anchorage_silo.config import SiloConfig
from anchorage_silo.confinement import Grants, confinable
from anchorage_silo.files import state_unusable
from anchorage_silo.frames import FrameWriter, Kind, read_frame
from anchorage_silo.kept_output import LINE_BYTES, keep_output
from anchorage_silo.piece_process import NOTHING, Answer, Arrays, pack, unpack
from anchorage_silo.trainer_environment import trainer_environment

COMMAND = (sys.executable, "-m", "anchorage_silo.piece_process")
ANSWER_SECONDS = 120.0
"""Time for an answer; then the process is killed."""


class PieceQuestions:
    """Asks in a process that is started at the first question, and again when it was lost; threads take turns.

    Parameters
    ----------
    config : SiloConfig
        The agent's configuration, which names what is kept from the process.
    """

    def __init__(self, config: SiloConfig) -> None:
        self._config = config
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary_folder: TemporaryDirectory[str] | None = None

    @property
    def pid(self) -> int | None:
        """Id of the running process, or None."""
        return None if self._process is None else self._process.pid

    def ask(self, call: str, asked: Mapping[str, Any], arrays: Arrays = NOTHING) -> Answer:
        """Ask a question of `anchorage_silo.piece_process.CALLS`.

        Raises
        ------
        ValueError
            The piece cannot be made of its options.
        AnchorageError
            Its package cannot be loaded, or PIECE_WRONG: it raised an exception, ended the process, or did not answer in time.
        """
        with self._turn:
            head, answer_arrays = self._exchange(str(asked.get("name")), pack({"call": call, **asked}, arrays))
        if "invalid" in head:
            raise ValueError(printable(str(head["invalid"])[:LINE_BYTES]))
        if "code" in head:
            raise AnchorageError(CATALOGUE.get(head["code"], PIECE_WRONG), printable(str(head["message"])[:LINE_BYTES]))
        return head["result"], answer_arrays

    def close(self) -> None:
        """End the process."""
        with self._turn:
            self._end()

    def _exchange(self, name: str, question: bytes) -> tuple[Mapping[str, Any], Arrays]:
        process = self._process or self._start()
        if process.stdin is None or process.stdout is None:
            raise AssertionError("Popen returned no pipes")
        late = threading.Timer(ANSWER_SECONDS, process.kill)
        late.daemon = True
        late.start()
        try:
            FrameWriter(process.stdin).write(Kind.QUESTION, question)
            frame = read_frame(process.stdout)
            if frame is None or frame[0] is not Kind.ANSWER:
                raise ValueError("no answer")
            head, answer_arrays = unpack(frame[1])
            if not isinstance(head, dict) or not head.keys() & {"result", "invalid", "code"}:
                raise ValueError("no answer")
        except (OSError, ValueError, AnchorageError) as error:
            self._end()
            found_out = (
                f"{name}: the process in which its package runs answered nothing, or not in {ANSWER_SECONDS:.0f} s"
            )
            raise AnchorageError(PIECE_WRONG, f"{found_out}; trainer.log has what it printed") from error
        finally:
            late.cancel()
        return head, answer_arrays

    def _start(self) -> subprocess.Popen[bytes]:
        config, environment = self._config, trainer_environment(os.environ)
        command: tuple[str, ...] = COMMAND
        try:
            self._temporary_folder = TemporaryDirectory(prefix="pieces-", dir=config.state, ignore_cleanup_errors=True)
        except OSError as error:
            raise state_unusable(config.state, error) from error
        if confinable():
            hidden = (config.state, config.token, config.policy)
            grants = Grants(self._temporary_folder.name, hidden=tuple(str(path) for path in hidden if path is not None))
            command, environment = grants.command(COMMAND), dict(os.environ)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
        output_arguments = (self._process.stderr, Path(config.state))
        threading.Thread(target=keep_output, args=output_arguments, name="pieces-output", daemon=True).start()
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:  # it had not read the question
                        continue
        if self._temporary_folder is not None:
            self._temporary_folder.cleanup()
            self._temporary_folder = None
