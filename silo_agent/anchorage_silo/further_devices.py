"""The processes of a silo's second and further devices, as the trainer process sees them: started and fed with its own tasks."""

import os
import subprocess
import sys
import threading
from typing import IO

from anchorage_silo.files import state_unusable
from anchorage_silo.frames import FrameWriter, Kind, Setup, read_frame

COMMAND = (sys.executable, "-m", "anchorage_silo.further_device")
RENDEZVOUS_FILE = "devices.rendezvous"
"""Where the processes find each other, in the trainer's folder."""
LOST = 70
"""Exit status of a trainer whose devices no longer take the same steps; the agent starts a new one."""


class FurtherDevices:
    """The further processes of one trainer; none until `start`, and none with one device.

    Parameters
    ----------
    writer : FrameWriter
        To the agent; failures of the further processes, and their lines for its log, are passed on.
    """

    def __init__(self, writer: FrameWriter) -> None:
        self._writer = writer
        self._feeds: list[FrameWriter] = []

    def start(self, setup: Setup) -> None:
        """Start one process for each device but the first.

        Raises
        ------
        AnchorageError
            The state folder is not writable.
        """
        rendezvous = setup.folder / RENDEZVOUS_FILE
        try:
            rendezvous.unlink(missing_ok=True)
        except OSError as error:
            raise state_unusable(rendezvous, error) from error
        for rank in range(1, setup.devices):
            pipe = subprocess.PIPE
            process = subprocess.Popen((*COMMAND, str(rank)), stdin=pipe, stdout=pipe)
            if process.stdin is None or process.stdout is None:
                raise AssertionError("Popen returned no pipes")
            self._feeds.append(FrameWriter(process.stdin))
            threading.Thread(target=self._follow, args=(process.stdout, rank), daemon=True).start()
        self.send(Kind.SETUP, setup.to_json())

    def send(self, kind: Kind, content: bytes) -> None:
        """Give every process a frame."""
        for feed in self._feeds:
            try:
                feed.write(kind, content)
            except OSError:
                return  # it has ended, and `_follow` ends this process

    def end_with_training(self) -> None:
        """End this process, if there are others, after a training that only this one ended; they wait for its next step for ever."""
        if self._feeds:
            os._exit(LOST)

    def _follow(self, answers: IO[bytes], rank: int) -> None:
        """Pass failures and lines for the log on until the process ends, and end this one then: the devices train together or not at all."""
        while (frame := read_frame(answers)) is not None:
            if frame[0] in (Kind.FAILURE, Kind.LOG):
                self._writer.write(*frame)
        sys.stderr.write(f"the process of device {rank} ended\n")
        sys.stderr.flush()
        os._exit(LOST)
