"""Both ends of an enrolment, for `test_lossy_path.py`: ``serve FOLDER`` and ``enrol FOLDER``."""

import logging
import sys
from pathlib import Path

import typer

from anchorage.api.errors import AnchorageError
from anchorage.transport.grpc.enrolment import enrol, serve_enrolment
from anchorage.transport.pki import Authority, Credentials, SigningRequest, new_key, server_uri, silo_uri

SERVER = "10.77.2.2"
PORT = 8444


def serve(folder: Path) -> None:
    """Serve enrolment until standard input ends; the certificate has many names, so that it fills more than one packet."""
    authority = Authority.create(folder / "authority", "derm")
    files = Credentials(folder / "server.key", folder / "server.pem", authority.certificate_path)
    request = SigningRequest.make(new_key(files.key), server_uri("derm"))
    files.save_certificate(authority.issue_server(request, [SERVER, *(f"name-{i}.example.org" for i in range(90))]))
    stop, _ = serve_enrolment(f"0.0.0.0:{PORT}", files, lambda csr, token, silo: authority.issue_silo(csr, silo))
    typer.echo("ready")
    sys.stdin.read()
    stop()


def enrol_twice(folder: Path) -> None:
    """Enrol until it works, twice at most, and tell of each attempt."""
    logging.basicConfig(level=logging.INFO)
    request = SigningRequest.make(new_key(folder / "a.key"), silo_uri("derm", "a"))
    for _ in range(2):
        try:
            enrol(f"{SERVER}:{PORT}", folder / "authority" / "ca.pem", "a", "token", request)
        except AnchorageError as error:
            typer.echo(error.code)
        else:
            typer.echo("enrolled")
            return


if __name__ == "__main__":
    {"serve": serve, "enrol": enrol_twice}[sys.argv[1]](Path(sys.argv[2]))
