"""The gRPC link alone, compared with the floor: fetch, announce, permit, push into spool files; digests checked at both ends, no training.

Prints a row per number of silos; `--json FILE` writes the same.
"""

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import psutil
from floor import DEFAULT_BYTES, Floor

from anchorage.engine.buffers import BufferSource, ModelBuffer
from anchorage.transport.grpc.client import GrpcServerLink
from anchorage.transport.grpc.server import GrpcSiloLink
from anchorage.transport.messages import (
    Announced,
    Announcement,
    Arrived,
    Assigned,
    Dismissed,
    Joined,
    Permit,
    Profile,
    Task,
    TaskKind,
)
from anchorage.transport.pki import Authority, Credentials, SigningRequest, new_key, server_uri, silo_uri
from anchorage.transport.tensors.layout import Layout
from anchorage.transport.tensors.model import ModelBytes
from anchorage.transport.tensors.spool import SpoolFile
from anchorage_server.held_heads import HeldHeads

FEDERATION = "bench"


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


class LinkRounds:
    """A server process and its silo processes, ready to play rounds over the link."""

    def __init__(self, silos: int, nbytes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        authority = Authority.create(folder / "authority", FEDERATION)
        for index in range(silos):
            name, key = f"silo-{index}", new_key(folder / f"silo-{index}.key")
            (folder / f"{name}.pem").write_bytes(
                authority.issue_silo(SigningRequest.make(key, silo_uri(FEDERATION, name)), name)
            )
        request = SigningRequest.make(new_key(folder / "server.key"), server_uri(FEDERATION))
        (folder / "server.pem").write_bytes(authority.issue_server(request, ["127.0.0.1"]))
        self._pipe, theirs = context.Pipe()
        self._processes = [context.Process(target=_serve, args=(theirs, folder, silos, nbytes), daemon=True)]
        self._processes[0].start()
        port = self._pipe.recv()
        for index in range(silos):
            self._processes.append(context.Process(target=_run_silo, args=(port, folder, index), daemon=True))
            self._processes[-1].start()
        self._pipe.recv()

    def round(self) -> float:
        """Play one round and return its seconds."""
        self._pipe.send("round")
        return float(self._pipe.recv())

    def memory(self) -> tuple[int, int]:
        """Return the server's resident bytes before the first silo came, without its model, and now."""
        self._pipe.send("memory")
        before, now = self._pipe.recv()
        return int(before), int(now)

    def close(self) -> None:
        """End the processes."""
        for process in reversed(self._processes):  # the clients first
            process.terminate()
            process.join()
        self._folder.cleanup()


def _credentials(folder: Path, name: str) -> Credentials:
    return Credentials(folder / f"{name}.key", folder / f"{name}.pem", folder / "authority" / "ca.pem")


def _serve(pipe: Connection, folder: Path, silos: int, nbytes: int) -> None:
    before = psutil.Process().memory_info().rss
    layout = Layout.of([("weights", "U8", (nbytes,))])
    model = ModelBytes.of(layout, np.random.default_rng(0).integers(0, 256, nbytes, np.uint8))
    link = GrpcSiloLink(
        listen="127.0.0.1:0",
        credentials=_credentials(folder, "server"),
        welcome="{}",
        admit=lambda silo, key: True,
        renew=lambda csr_pem, silo: b"",
        heads=HeldHeads(folder / "audit-heads"),
        clock=SystemClock(),
    )
    pipe.send(link.start())
    names: list[str] = []
    while len(names) < silos:
        if isinstance(event := link.next_event(None), Joined):
            names.append(event.silo)
    link.offer(model)
    pipe.send("ready")
    number = 0
    while order := pipe.recv():
        if order == "memory":
            pipe.send((before, psutil.Process().memory_info().rss))
            continue
        number += 1
        task = Task(f"{number}-train", TaskKind.TRAIN, number, model.manifest)
        start, uploads = time.perf_counter(), 0
        for silo in names:
            link.assign(silo, task)
        while uploads < silos:
            match link.next_event(None):
                case Announced(silo, Announcement(update=manifest)) if manifest is not None:
                    link.permit(silo, task.id, SpoolFile(folder / f"{silo}.spool", manifest))
                case Arrived(silo):
                    uploads += 1
                    link.dismiss(silo, task.id, "Counted")
        pipe.send(time.perf_counter() - start)


def _run_silo(port: int, folder: Path, index: int) -> None:
    profile = Profile("None", 1, "0")
    link = GrpcServerLink(
        server=f"127.0.0.1:{port}", credentials=_credentials(folder, f"silo-{index}"), profile=profile
    )
    buffer = ModelBuffer(lambda nbytes: np.zeros(nbytes, np.uint8))
    while True:
        match link.next_order(None):
            case Assigned(task):
                buffer.receive(task.model)
                buffer._held = [b""] * len(buffer._held)  # the same model again, but it must travel
                link.fetch(task.model, buffer)
                link.announce(Announcement(task.id, {"train": 1}, {}, {}, task.model))
            case Permit(task_id):
                link.push(task_id, BufferSource(buffer.manifest, buffer.array))
            case Dismissed():
                pass
            case _:
                return


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silos", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--bytes", type=int, default=DEFAULT_BYTES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for silos in arguments.silos:
        link, floor = LinkRounds(silos, arguments.bytes), Floor(silos, arguments.bytes)
        pairs = [(link.round(), floor.round()) for _ in range(arguments.rounds + 2)][2:]
        before, now = link.memory()
        link.close()
        floor.close()
        ours, floors = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = statistics.median(a / b for a, b in pairs)
        per_silo = (now - before - arguments.bytes) / silos
        rows.append({"silos": silos, "median_s": ours, "floor_median_s": floors, "ratio": ours / floors})
        rows[-1] |= {"median_ratio": ratios, "server_rss_bytes": now, "bytes_per_silo": per_silo}
        print(
            f"{silos} silos: {ours:.3f} s, floor {floors:.3f} s, ratio {ours / floors:.2f} (median of pairs {ratios:.2f}), "
            f"fastest {min(p[0] for p in pairs) / min(p[1] for p in pairs):.2f}, server {now / 1e6:.0f} MB, {per_silo / 1e6:.1f} MB a silo",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"benchmark": "link", "rows": rows}))


if __name__ == "__main__":
    main()
