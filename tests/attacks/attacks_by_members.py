"""What a member says in its own name: false numbers, false updates, texts for other people's terminals."""

import threading
from pathlib import Path

import grpc
from attack_scripts import Place, held, refused, script
from attacked_federation import CONTROL, HONEST, IMAGES, Federation, command
from eventually import eventually
from hostile_silo import filled

from anchorage.api.errors import rounds, transfer
from anchorage.transport.bounds import MOST_IMAGES
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes

OTHER = Layout.of([("encoder.weight", "F32", (400_001,))])
_EVIL = "\x1b[2J\x1b]0;owned\x07[link=https://example.org]\r\nANC-9999 Forged: \x9b31m\u202e"


def _code_in_round(federation: Federation, task: pb.Task, *codes: str) -> str:
    """Return with which code c is taken out of the task's round."""
    return refused(federation.part_of(federation.await_round(task.round), "c").code, *codes)


def _uploaded(federation: Federation, update: ModelBytes) -> pb.Task:
    """Have c take part in a round with this update."""
    member = federation.member("c")
    member.join(IMAGES)
    task = member.task()
    held(member.announce(task.id, update).status is grpc.StatusCode.OK, "the announcement is received", task.id)
    held(member.order("permit").task == task.id, "the upload is permitted", task.id)
    held(member.upload(task.id, update).status is grpc.StatusCode.OK, "the upload is received", task.id)
    return task


@script()
def wrong_layout(federation: Federation) -> str:
    member = federation.member("c")
    member.join(IMAGES)
    task = member.task()
    member.announce(task.id, filled(OTHER, 1.0))
    why = member.order("dismiss").why
    member.park()
    actual = _code_in_round(federation, task, rounds.WRONG_LAYOUT.code)
    held(actual in why, "the member is told why", why)
    return f"{actual}; {federation.goes_on()}"


@script()
def update_of_nan(federation: Federation) -> str:
    task = _uploaded(federation, filled(federation.layout, float("nan")))
    actual = _code_in_round(federation, task, rounds.NON_FINITE_UPDATE.code)
    federation.member("c").park()
    return f"{actual}; {federation.goes_on()}"


@script()
def update_of_huge_norm(federation: Federation) -> str:
    task = _uploaded(federation, filled(federation.layout, 1e30))
    actual = _code_in_round(federation, task, rounds.OUTLYING_UPDATE.code)
    federation.member("c").park()
    return f"{actual}; {federation.goes_on()}"


@script()
def more_images_than_joined_with(federation: Federation) -> str:
    member, bounds = federation.member("c"), transfer.OUT_OF_BOUNDS.code
    codes = [refused(member.join(MOST_IMAGES + 1).code, bounds)]
    for count in (IMAGES + 1, 10**12, -1):
        member.join(IMAGES)
        task = member.task()
        codes.append(refused(member.announce(task.id, filled(federation.layout, 1.0), samples=count).code, bounds))
        _code_in_round(federation, task, bounds)
    member.park()
    return f"{', '.join(codes)}; {federation.goes_on()}"


@script()
def wrong_task(federation: Federation) -> str:
    """C speaks of tasks that it has not: of another silo's, of a later round, of none."""
    member, unknown = federation.member("c"), transfer.UNKNOWN_TASK.code
    member.join(IMAGES)
    member_task = member.task()
    update, codes = filled(federation.layout, 1.0), list[str]()
    for task in (
        f"{member_task.round + 7}.train.{'0' * 16}",
        member_task.id + "x",
        f"{member_task.round}.reveal-shares",
    ):
        evaluation_answer = (
            pb.Evaluation(task=task),
            pb.Failure(task=task, code="ANC-1301", message="x"),
            pb.Offer(task=task, update="0"),
        )
        codes += [
            member.say(call, message).code
            for call, message in zip(("Report", "Fail", "Lacking"), evaluation_answer, strict=True)
        ]
        codes.append(member.upload(task, update).code)
    codes.append(member.upload(member_task.id, update).code)  # it has no permit yet
    held(set(codes) == {unknown}, f"each is refused with {unknown}", codes)
    for number in range(40):
        member.announce(f"1.train.{number:016x}", update)
    member.park()
    return f"{unknown}; {federation.goes_on()}"


@script()
def replayed_update(federation: Federation) -> str:
    """C announces and sends the task and the update of a round that is over."""
    member, update = federation.member("c"), filled(federation.layout, 1.0)
    member.join(IMAGES)
    old = member.task()
    member.say("Fail", pb.Failure(task=old.id, code="ANC-1301", message="not now"))
    federation.await_round(old.round)
    while (new := member.task()).round <= old.round:
        pass
    member.announce(old.id, update)
    dismissed = member.order("dismiss")
    held(dismissed.task == old.id, "the old announcement is dismissed", dismissed.task)
    code = refused(member.upload(old.id, update).code, transfer.UNKNOWN_TASK.code)
    member.say("Fail", pb.Failure(task=new.id, code="ANC-1301", message="not now"))
    member.park()
    return f"dismissed, upload {code}; {federation.goes_on()}"


@script()
def other_bytes_than_announced(federation: Federation) -> str:
    member, update, other = federation.member("c"), filled(federation.layout, 1.0), filled(federation.layout, 2.0)
    member.join(IMAGES)
    task = member.task()
    member.announce(task.id, update)
    member.order("permit")
    count = len(update.manifest.digests)
    first = pb.ChunkList(model=update.digest, chunks=[0]).SerializeToString()
    beyond = pb.ChunkList(model=update.digest, chunks=[count]).SerializeToString()
    codes = [
        refused(member.push(task.id, [first, other.chunk(0)]).code, transfer.CHUNK_MISMATCH.code),
        refused(member.upload(task.id, other).code, transfer.UNEXPECTED_UPDATE.code),
        refused(member.push(task.id, [first, update.chunk(0)[:-1]]).code, transfer.UNEXPECTED_UPDATE.code),
        refused(member.push(task.id, [beyond, update.chunk(0)]).code, transfer.MALFORMED_MESSAGE.code),
    ]
    member.say("Fail", pb.Failure(task=task.id, code="ANC-1301", message="x"))
    member.park()
    return f"{', '.join(codes)}; {federation.goes_on()}"


@script()
def escapes_in_texts(federation: Federation) -> str:
    """C writes escape sequences and ends of lines where others read: its version, names of metrics, the message of a failure."""
    member, bounds = federation.member("c"), transfer.OUT_OF_BOUNDS.code
    refused(member.join(IMAGES, version=_EVIL).code, bounds)
    member.join(IMAGES)
    task = member.task()
    refused(member.announce(task.id, filled(federation.layout, 1.0), metrics={_EVIL: 1.0}).code, bounds)
    while (task := member.task()).round <= federation.rounds()[-1].round:
        pass
    member.say("Fail", pb.Failure(task=task.id, code="ANC-1301", message=_EVIL + "the end"))
    federation.await_round(task.round)
    log = eventually(
        lambda: [line for line in federation.log() if "the end" in line], "the server's log has the failure"
    )
    held(not any(CONTROL.search(line) for line in federation.log()), "no control character in the server's log", log)
    held(not any(line.startswith("ANC-9999") for line in federation.log()), "no line of its own", log)
    for view in ("status", "silos", "rounds", "events"):
        done = command("fedctl.main", view, "--workdir", federation.workdir.root, folder=federation.root)
        held(done.returncode == 0, f"fedctl {view} works", done.stderr)
        held(not CONTROL.search(done.stdout + done.stderr), f"no control character in fedctl {view}", repr(done.stdout))
        held("\u202e" not in done.stdout, f"no change of direction in fedctl {view}", repr(done.stdout))
    member.park()
    return f"{bounds}, shown as text; {federation.goes_on()}"


class Stalled:
    """Messages that stop coming."""

    def __init__(self, messages: list[bytes]) -> None:
        self._messages, self.over = iter(messages), threading.Event()

    def __iter__(self) -> "Stalled":
        return self

    def __next__(self) -> bytes:
        if (message := next(self._messages, None)) is not None:
            return message
        self.over.wait()
        raise StopIteration


def deadlined(folder: Path, seconds: int) -> Federation:
    """Return a federation of a, b and c whose rounds end without who is late."""
    protocol = {"minSilos": len(HONEST), "roundDeadlineSeconds": seconds}
    return Federation(folder, silos=len(HONEST) + 1, protocol=protocol)


@script(quick=False, place=Place.SEPARATE)
def stalled_upload(folder: Path) -> str:
    """C stops in the middle of its upload: the round ends at its deadline without it."""
    with deadlined(folder, 45) as federation:
        federation.current = federation.server()
        member, update = federation.member("c"), filled(federation.layout, 1.0)
        member.join(IMAGES)
        for silo in HONEST:
            federation.null_agent(silo)
        task = member.task()
        member.announce(task.id, update)
        member.order("permit")
        first = pb.ChunkList(model=update.digest, chunks=[0, 1]).SerializeToString()
        stalled = Stalled([first, update.chunk(0)])
        assert member.connection is not None
        member.connection.push(task.id, stalled)
        record = federation.await_round(task.round)
        code = refused(federation.part_of(record, "c").code, rounds.SILO_LATE.code)
        stalled.over.set()
        member.park()
        return f"{code}, others counted; {federation.goes_on()}"
