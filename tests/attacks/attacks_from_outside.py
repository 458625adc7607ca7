"""Who is no member: strangers, guessed tokens, members that are none any more."""

import resource
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta

import grpc
from attack_scripts import held, refused, script
from attacked_federation import IMAGES, Federation, command
from eventually import WAIT_SECONDS, eventually
from hostile_silo import Answer, HostileSilo, ended

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc.calls import ENROLMENT, MAX_UP_BYTES, path
from anchorage.transport.grpc.enrolment import MAX_REQUEST_BYTES, enrol
from anchorage.transport.grpc.guard import ADDRESS_PART, most_connections
from anchorage.transport.grpc.single_calls import renew
from anchorage.transport.pki import Authority, Credentials, SigningRequest, Tokens, new_key, silo_uri, uris_of
from anchorage.transport.pki.credentials import read_certificate
from anchorage.transport.pki.keys import make_key

STRANGER = grpc.StatusCode.UNAVAILABLE.name
"""What gRPC answers where TLS fails."""


def _answers(channel: grpc.Channel) -> set[str]:
    """Return how calls of a stranger end."""
    with channel:
        answers = set()
        for call in ("Describe", "Announce", "Report", "Trust"):
            try:
                answers.add(Answer(grpc.StatusCode.OK, content=channel.unary_unary(path(call))(b"", 60.0)).code)
            except grpc.RpcError as error:
                answers.add(ended(error).code)
        return answers


@script()
def stranger_without_certificate(federation: Federation) -> str:
    server = federation.endpoints["silos"]
    root = (federation.workdir.authority / "ca.pem").read_bytes()
    for channel in (grpc.secure_channel(server, grpc.ssl_channel_credentials(root)), grpc.insecure_channel(server)):
        answers = _answers(channel)
        held(answers == {STRANGER}, "no call reaches the server", answers)
    return f"no TLS, no answer; {federation.goes_on()}"


@script()
def certificate_of_another_authority(federation: Federation) -> str:
    folder = federation.folder / "other-authority"
    folder.mkdir()
    other, key = Authority.create(folder / "authority", federation.federation), new_key(folder / "a.key")
    certificate = other.issue_silo(SigningRequest.make(key, silo_uri(federation.federation, "a")), "a")
    root = (federation.workdir.authority / "ca.pem").read_bytes()
    credentials = grpc.ssl_channel_credentials(root, (folder / "a.key").read_bytes(), certificate)
    answers = _answers(grpc.secure_channel(federation.endpoints["silos"], credentials))
    held(answers == {STRANGER}, "no call reaches the server", answers)
    return f"no TLS, no answer; {federation.goes_on()}"


def _token_code(federation: Federation, token: str, silo: str = "d") -> str:
    """Return the code with which a request for a certificate over a new key is refused, also where guesses are slowed down."""
    request = SigningRequest.make(make_key(), silo_uri(federation.federation, silo))

    def asked() -> str:
        try:
            enrol(federation.endpoints["enrolment"], federation.workdir.authority / "ca.pem", silo, token, request)
        except AnchorageError as error:
            return "" if error.failure is identity.TOO_MANY_REQUESTS else error.code
        return "a certificate"

    return eventually(asked, "the enrolment port answers")


@script()
def wrong_token(federation: Federation) -> str:
    tokens = Tokens(federation.workdir.authority / "tokens")
    code = refused(_token_code(federation, "x" * 43), identity.TOKEN_UNKNOWN.code)
    other = refused(_token_code(federation, tokens.create("a")), identity.TOKEN_OF_ANOTHER_SILO.code)
    return f"{code}, another silo's {other}; {federation.goes_on()}"


@script()
def used_token(federation: Federation) -> str:
    token = Tokens(federation.workdir.authority / "tokens").create("f")
    request = SigningRequest.make(make_key(), silo_uri(federation.federation, "f"))
    authority = federation.workdir.authority / "ca.pem"
    enrol(federation.endpoints["enrolment"], authority, "f", token, request)
    code = refused(_token_code(federation, token, "f"), identity.TOKEN_USED.code)
    return f"{code}; {federation.goes_on()}"


@script()
def expired_token(federation: Federation) -> str:
    tokens = Tokens(federation.workdir.authority / "tokens")
    code = refused(
        _token_code(federation, tokens.create("d", valid=timedelta(seconds=-1))), identity.TOKEN_EXPIRED.code
    )
    return f"{code}; {federation.goes_on()}"


@script()
def member_under_another_name(federation: Federation) -> str:
    """C shows its own certificate, and asks in the name of a: with its session unknown, with a's tasks, and for a certificate of a."""
    member = federation.member("c")
    member.join(IMAGES)
    task = member.task()
    held(member.connection is not None, "it has joined", "no connection")
    member.connection.session = "0" * 16
    pseudo_labelled = refused(
        member.say("Fail", pb.Failure(task=task.id, code="ANC-1301", message="x")).code, transfer.STALE_SESSION.code
    )
    request = SigningRequest.make(make_key(), silo_uri(federation.federation, "a"))
    token = Tokens(federation.workdir.authority / "tokens").create("c")
    got = []
    endpoints, files = federation.endpoints, member.credentials
    for ask in (
        lambda: renew(endpoints["silos"], files, request),
        lambda: enrol(endpoints["enrolment"], files.authority, "c", token, request),
    ):
        got.append(refused(_code_of(ask), identity.REQUEST_REFUSED.code))
    shown = uris_of(read_certificate(member.credentials.certificate))
    held(shown == [silo_uri(federation.federation, "c")], "its certificate names c alone", shown)
    member.park()
    return f"session {pseudo_labelled}, certificates {', '.join(got)}; {federation.goes_on()}"


def _code_of(ask: Callable[[], object]) -> str:
    try:
        ask()
    except AnchorageError as error:
        return error.code
    return "a certificate"


@script()
def denied_silo(federation: Federation) -> str:
    member = federation.member("d")
    member.join(IMAGES)
    runs = federation.root / ".anchorage"
    runs.mkdir(exist_ok=True)
    if not (runs / federation.federation).exists():
        (runs / federation.federation).symlink_to(federation.workdir.root)
    done = command("fedctl.main", "silo", "deny", federation.federation, "d", folder=federation.root)
    held(done.returncode == 0, "fedctl silo deny works", done.stderr)
    member.await_end()
    codes = {member.join(IMAGES).code, member.say("Describe", b"").code, member.say("Announce", b"").code}
    held(codes == {transfer.SILO_NOT_ADMITTED.code}, "every call is refused", codes)
    return f"session ended, then {codes.pop()}; {federation.goes_on()}"


@script()
def old_key(federation: Federation) -> str:
    """E has a new key; whoever has stolen the one before uses that."""
    member = federation.member("e")
    folder = federation.folder / "keys" / "e-new"
    folder.mkdir()
    new = Credentials(folder / "silo.key", folder / "silo.pem", member.credentials.authority)
    request = SigningRequest.make(new_key(new.key), silo_uri(federation.federation, "e"))
    new.save_certificate(renew(federation.endpoints["silos"], member.credentials, request))
    thief = HostileSilo(member.server, member.credentials)
    federation.members["e"], federation.members["e-thief"] = HostileSilo(member.server, new), thief
    held(federation.members["e"].park().status is grpc.StatusCode.OK, "the new key is good", "refused")
    member.await_end()
    code = refused(thief.join(IMAGES).code, transfer.SILO_NOT_ADMITTED.code)
    member.close()
    return f"{code}; {federation.goes_on()}"


@script()
def oversized_message(federation: Federation) -> str:
    large = grpc.StatusCode.RESOURCE_EXHAUSTED.name
    member = federation.member("c")
    codes = [member.say(call, bytes(MAX_UP_BYTES + 1)).code for call in ("Announce", "Report", "Fail", "Progress")]
    root = grpc.ssl_channel_credentials(member.credentials.authority.read_bytes())
    with grpc.secure_channel(federation.endpoints["enrolment"], root) as channel:
        try:
            channel.unary_unary(path("Enrol", ENROLMENT))(bytes(MAX_REQUEST_BYTES + 1), 60.0)
        except grpc.RpcError as error:
            codes.append(ended(error).code)
    held(codes == [large] * 5, "each is refused", codes)
    return f"{large}; {federation.goes_on()}"


@script()
def silent_connections(federation: Federation) -> str:
    """Strangers of one address open more connections than it may have, and say nothing."""
    host, _, port = federation.endpoints["silos"].rpartition(":")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bound = max(most_connections() // ADDRESS_PART, 1)
    count = bound + 64
    held(hard == resource.RLIM_INFINITY or hard > 2 * count, "this process may open so many", hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * count), hard))
    with ExitStack() as stack:
        strangers = []
        for _ in range(count):
            with suppress(OSError):  # refused at once is as good
                strangers.append(stack.enter_context(socket.create_connection((host, int(port)), 60.0)))
        answer = federation.member("c").park()
        held(answer.status is grpc.StatusCode.OK, "a member comes in beside them", answer)
        on = federation.goes_on()
        end = time.monotonic() + WAIT_SECONDS
        closed = sum(_is_closed(stranger, end) for stranger in strangers)
        held(closed == len(strangers), f"all {len(strangers)} are ended", closed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return f"{closed} of {count} ended, a member came in; {on}"


def _is_closed(stranger: socket.socket, end: float) -> bool:
    stranger.settimeout(max(0.001, end - time.monotonic()))
    try:
        return stranger.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
