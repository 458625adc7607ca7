"""The process in which the agent asks pieces of other packages: ``python -m anchorage_silo.piece_process``, started and ended by the agent.

It is confined as the trainer is, and sees no image. It loads the package of a piece that it is asked about, and answers one question after another.
"""

import base64
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from anchorage.api.errors import AnchorageError
from anchorage.api.piece import PLUGIN, Piece, expect
from anchorage.api.piece_faults import log_exception, naming_pieces, returned_by
from anchorage.api.slot import read_piece, write_piece
from anchorage.api.task import Task
from anchorage.engine.aggregation.weigher import BaseWeigher
from anchorage.engine.hooks import AggregationHooks, EncodingHooks, WeightingEngineHooks
from anchorage.methods import PRESETS
from anchorage.transport.grpc.convert import arrays_from_bytes, arrays_to_bytes, decode_announcement
from anchorage.transport.tensors.codings import Coding
from anchorage_silo.frames import FrameWriter, Kind, read_frame

Arrays = Mapping[str, NDArray[Any]]
Question = Mapping[str, Any]
"""``call``, the name of a function in `CALLS`, and what it asks for: mostly ``slot``, ``name`` and ``options`` of a piece."""
Answer = tuple[Any, Arrays]
"""A JSON value, and arrays."""

NOTHING: Arrays = {}


def pack(head: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return a frame's content: the length of its head, the head as JSON, and arrays as safetensors."""
    text = json.dumps(head).encode()
    return len(text).to_bytes(4, "little") + text + arrays_to_bytes(arrays)


def unpack(content: bytes) -> Answer:
    """Return what `pack` was given.

    Raises
    ------
    ValueError
        It is not JSON.
    AnchorageError
        Its arrays are none.
    """
    stop = 4 + int.from_bytes(content[:4], "little")
    return json.loads(content[4:stop]), arrays_from_bytes(content[stop:])


def declared(asked: Question, arrays: Arrays) -> Answer:
    """Return what a piece says of itself, as `anchorage_silo.stand_ins.Declared` reads it."""
    piece = _piece(asked)
    declaration: dict[str, Any] = {
        "facts": sorted(piece.facts()),
        "auxiliary": [asdict(each) for each in piece.auxiliary()],
    }
    if isinstance(piece, AggregationHooks):
        declaration |= {"bound": piece.bound, "server_noise": piece.server_noise}
    if isinstance(piece, WeightingEngineHooks):
        declaration |= {"repeats": piece.repeats}
    if isinstance(piece, EncodingHooks) and (coding := piece.coding()) is not None:
        declaration |= {"coding": {"words": coding.words, "feedback": coding.feedback}}
    if isinstance(piece, Task):
        tally_arrays = [asdict(each) for each in piece.tally_arrays()]
        declaration |= {"task": {"outputs": list(piece.outputs), "gives_maps": piece.gives_maps, "tally": tally_arrays}}
    return declaration, NOTHING


def preset(asked: Question, arrays: Arrays) -> Answer:
    """Return what a preset says of itself: what fills its slots, in every task, and what it reveals."""
    named_preset = PRESETS[asked["name"]]
    by_task = {
        task: {slot: write_piece(each) for slot, each in pieces.items()}
        for task, pieces in named_preset.by_task.items()
    }
    words = {name: getattr(named_preset, name) for name in ("summary", "reveals_to_server", "reveals_to_silos")}
    return {"slots": named_preset.slots.model_dump(mode="json", by_alias=True), "by_task": by_task, **words}, NOTHING


def weigher(asked: Question, arrays: Arrays) -> Answer:
    """Return what a weigher needs."""
    piece_weigher = _weigher(asked)
    return {"evaluated": piece_weigher.evaluated, "repetitions": piece_weigher.repetitions}, NOTHING


def most(asked: Question, arrays: Arrays) -> Answer:
    """Return the largest weight of a silo with so many images."""
    return _weigher(asked).most(asked["images"]), NOTHING


def weigh(asked: Question, arrays: Arrays) -> Answer:
    """Return the weight of one announcement."""
    announcement = decode_announcement(base64.b64decode(asked["announcement"]))
    with returned_by(_piece(asked), "weigh"):
        return _weigher(asked).weigh({"own": announcement}, {})["own"], NOTHING


def counts_suppressed(asked: Question, arrays: Arrays) -> Answer:
    """Return counts without what too few images are behind."""
    weighting = expect(_piece(asked), WeightingEngineHooks)
    return None, {"counts": weighting.suppressed(arrays["counts"], asked["minimum"])}


def tally_suppressed(asked: Question, arrays: Arrays) -> Answer:
    """Return a tally without what too few images are behind."""
    return None, expect(_piece(asked), Task).suppressed(arrays, asked["minimum"])


def chosen(asked: Question, arrays: Arrays) -> Answer:
    """Return which numbers of a tensor a coding sends."""
    mask = _coding(asked).chosen(arrays["update"], arrays["base"])
    return None, NOTHING if mask is None else {"chosen": mask}


def encoded(asked: Question, arrays: Arrays) -> Answer:
    """Return what stands for the change of numbers."""
    code = _coding(asked).encode(arrays["update"], arrays["base"])
    return None, NOTHING if code is None else {"code": np.frombuffer(code, np.uint8)}


def decoded(asked: Question, arrays: Arrays) -> Answer:
    """Return the numbers that bytes stand for, and the byte after the last one read; None where they stand for none."""
    update = np.empty_like(arrays["base"])
    try:
        at = _coding(asked).decode(arrays["code"].tobytes(), asked["start"], arrays["base"], update)
    except ValueError:
        return None, NOTHING
    return at, {"update": update}


CALLS: Mapping[str, Callable[[Question, Arrays], Answer]] = {
    each.__name__: each
    for each in (
        declared,
        preset,
        weigher,
        most,
        weigh,
        counts_suppressed,
        tally_suppressed,
        chosen,
        encoded,
        decoded,
    )
}


def _piece(asked: Question) -> Piece:
    return read_piece(asked["slot"], {PLUGIN: {"name": asked["name"], "options": asked["options"]}})


def _weigher(asked: Question) -> BaseWeigher:
    task = expect(read_piece("task", asked["task"]), Task)
    return expect(_piece(asked), WeightingEngineHooks).weigher(task)


def _coding(asked: Question) -> Coding:
    coding = expect(_piece(asked), EncodingHooks).coding()
    assert coding is not None, f"{asked['name']} has a coding no more"
    return coding


def answer(content: bytes) -> bytes:
    """Answer one question; a failure of the catalogue, and options of which the piece cannot be made, are answers, too."""
    asked, arrays = unpack(content)
    try:
        with naming_pieces():
            result, result_arrays = CALLS[asked["call"]](asked, arrays)
        return pack({"result": result}, result_arrays)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return pack({"invalid": f"{place}: {first['msg']}"}, NOTHING)
    except AnchorageError as error:
        log_exception(error)
        return pack({"code": error.code, "message": error.message}, NOTHING)


def serve(stream: IO[bytes], writer: FrameWriter) -> None:
    """Answer questions until the agent ends."""
    while (frame := read_frame(stream)) is not None:
        writer.write(Kind.ANSWER, answer(frame[1]))


def main() -> None:
    """Serve frames on the standard streams; other output goes to standard error, which the agent keeps in a file of its state folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the agent ends this process
    frames = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    with os.fdopen(frames, "wb") as stream:
        serve(sys.stdin.buffer, FrameWriter(stream))


if __name__ == "__main__":
    main()
