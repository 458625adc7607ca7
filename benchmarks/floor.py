"""The floor of a round: the same bytes down and up over plain grpcio streaming with mutual TLS, and nothing else.

One server process and N client processes. In a round every client receives `nbytes` as raw messages of 1 MiB and sends as many
back; no digest, no disk, no orders, no training, grpcio's own defaults. `Floor.round` runs one round, so that a benchmark can
interleave it with its own rounds.
"""

import datetime
import ipaddress
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

MIB = 1 << 20
DEFAULT_BYTES = 44_760_000
"""About one ResNet-18 in float32."""


class Floor:
    """A server process and its client processes, ready to play rounds.

    Parameters
    ----------
    silos : int
        Client processes.
    nbytes : int
        Bytes that each of them receives and sends in a round.
    in_one_process : bool
        Whether the clients are threads of one process, each with a connection of its own. They keep nothing of what they receive, and all send the
        same.
    """

    def __init__(self, silos: int, nbytes: int = DEFAULT_BYTES, *, in_one_process: bool = False) -> None:
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        write_certificates(Path(self._folder.name))
        self._pipe, theirs = context.Pipe()
        self._processes = [context.Process(target=_serve, args=(theirs, self._folder.name, silos, nbytes), daemon=True)]
        self._processes[0].start()
        port = self._pipe.recv()
        processes, clients = (1, silos) if in_one_process else (silos, 1)
        for _ in range(processes):
            arguments = (port, self._folder.name, clients, nbytes)
            self._processes.append(context.Process(target=_run_clients, args=arguments, daemon=True))
            self._processes[-1].start()
        self._pipe.recv()

    def round(self) -> float:
        """Play one round and return its seconds."""
        self._pipe.send("round")
        return float(self._pipe.recv())

    def close(self) -> None:
        """End the processes."""
        for process in reversed(self._processes):  # the clients first
            process.terminate()
            process.join()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def measure_floor(silos: int, nbytes: int = DEFAULT_BYTES, rounds: int = 10) -> list[float]:
    """Return the seconds of `rounds` rounds, after two that do not count."""
    with Floor(silos, nbytes) as floor:
        return [floor.round() for _ in range(rounds + 2)][2:]


def write_certificates(folder: Path) -> None:
    """Write a throw-away authority (ca.pem) and one certificate with its key (cert.pem, key.pem) for both sides."""
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "floor")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)

    def signed(public: ec.EllipticCurvePublicKey, name: str, extension: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder().issuer_name(issuer).public_key(public).not_valid_before(start)
        builder = builder.subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        builder = builder.serial_number(x509.random_serial_number()).not_valid_after(start + datetime.timedelta(days=2))
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    loopback = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    (folder / "ca.pem").write_bytes(signed(authority.public_key(), "floor", x509.BasicConstraints(True, None)))
    (folder / "cert.pem").write_bytes(signed(key.public_key(), "peer", loopback))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*form))


class _Turns:
    """Lets every client begin a round at once, and notes when all are through."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._changed = threading.Condition()
        self._waiting = self._through = 0

    def await_start(self) -> None:
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting == 0)

    def end(self) -> None:
        with self._changed:
            self._through += 1
            self._changed.notify_all()

    def await_clients(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting == self._clients)

    def play(self) -> float:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting == self._clients)
            self._waiting = self._through = 0
            start = time.perf_counter()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._through == self._clients)
            return time.perf_counter() - start


def _serve(pipe: Connection, folder: str, silos: int, nbytes: int) -> None:
    chunks = [os.urandom(min(MIB, nbytes - start)) for start in range(0, nbytes, MIB)]
    turns = _Turns(silos)

    def down(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        turns.await_start()
        yield from chunks

    def up(request: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        for _ in request:
            pass
        turns.end()
        return b""

    server = grpc.server(ThreadPoolExecutor(4 * silos))
    handlers = {"Down": grpc.unary_stream_rpc_method_handler(down), "Up": grpc.stream_unary_rpc_method_handler(up)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Floor", handlers),))
    key, certificate, authority = (Path(folder, name).read_bytes() for name in ("key.pem", "cert.pem", "ca.pem"))
    credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
    pipe.send(server.add_secure_port("127.0.0.1:0", credentials))
    server.start()
    turns.await_clients()
    pipe.send("ready")
    while pipe.recv():
        pipe.send(turns.play())


def _run_clients(port: int, folder: str, clients: int, nbytes: int) -> None:
    chunks = [os.urandom(min(MIB, nbytes - start)) for start in range(0, nbytes, MIB)] if clients > 1 else None
    threads = [threading.Thread(target=_run_client, args=(port, folder, chunks)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run_client(port: int, folder: str, chunks: list[bytes] | None) -> None:
    key, certificate, authority = (Path(folder, name).read_bytes() for name in ("key.pem", "cert.pem", "ca.pem"))
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    options = [("grpc.use_local_subchannel_pool", 1)]  # channels of one process would share a connection
    channel: Any = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
    with channel:
        down, up = channel.unary_stream("/Floor/Down"), channel.stream_unary("/Floor/Up")
        while True:
            received = down(b"", wait_for_ready=True)
            if chunks is None:
                up(iter(list(received)))
            else:
                for _ in received:
                    pass
                up(iter(chunks))


if __name__ == "__main__":
    for count in map(int, sys.argv[1:] or ("2", "4", "8")):
        seconds = measure_floor(count)
        print(f"{count} silos: median {statistics.median(seconds):.3f} s, {min(seconds):.3f} to {max(seconds):.3f} s")
