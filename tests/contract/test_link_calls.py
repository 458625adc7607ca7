"""What anchorage.proto declares is what is served, so that clients in other languages can rely on it."""

import grpc
import pytest
from google.protobuf import message_factory
from link_world import model_of, train_task
from test_link_identity import raw, status_of

from anchorage.api.errors import AnchorageError, identity
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.grpc.calls import ENROLMENT, FEDERATION, SESSION, path, serve_calls
from anchorage.transport.grpc.enrolment import serve_enrolment
from anchorage.transport.grpc.guard import CallGuard, address_of
from anchorage.transport.versions import PROTOCOL

PATHS = {
    "/anchorage.v1.Federation/Describe",
    "/anchorage.v1.Federation/Renew",
    "/anchorage.v1.Federation/Trust",
    "/anchorage.v1.Federation/Orders",
    "/anchorage.v1.Federation/Announce",
    "/anchorage.v1.Federation/Report",
    "/anchorage.v1.Federation/Fail",
    "/anchorage.v1.Federation/Progress",
    "/anchorage.v1.Federation/Fetch",
    "/anchorage.v1.Federation/Lacking",
    "/anchorage.v1.Federation/Push",
    "/anchorage.v1.Enrolment/Enrol",
}
"""Agents at hospitals call these: a path that changes shuts them out."""


def declared(service):
    """Make a client of a service from its descriptor alone, as generated code does; raw chunks pass through."""

    def marshal(message):
        return message if isinstance(message, bytes) else message.SerializeToString()

    def parser(kind):
        return bytes if kind is pb.RawChunk.DESCRIPTOR else message_factory.GetMessageClass(kind).FromString

    kinds = {(False, False): "unary_unary", (False, True): "unary_stream", (True, False): "stream_unary"}

    def client(channel):
        return {
            method.name: getattr(channel, kinds[method.client_streaming, method.server_streaming])(
                f"/{service.full_name}/{method.name}", marshal, parser(method.output_type)
            )
            for method in service.methods
        }

    return client


def request_of(method):
    empty = message_factory.GetMessageClass(method.input_type)()
    return iter([empty]) if method.client_streaming else empty


def test_paths_stay() -> None:
    assert {path(call, service) for service in (FEDERATION, ENROLMENT) for call in service.methods_by_name} == PATHS
    with pytest.raises(KeyError):
        path("Enrol")


@pytest.mark.parametrize("call", FEDERATION.methods_by_name)
def test_every_call_of_the_federation_is_served(serve, identities, call: str) -> None:
    _, port = serve()
    method = FEDERATION.methods_by_name[call]
    with raw(port, identities.silo("a")) as channel:
        try:
            answer = declared(FEDERATION)(channel)[call](request_of(method))
            message = next(answer) if method.server_streaming else answer
        except grpc.RpcError as error:  # most calls need a session
            assert error.details().startswith("ANC-") and error.code() is not grpc.StatusCode.UNIMPLEMENTED
        else:
            assert message.DESCRIPTOR is method.output_type


def test_every_call_of_the_enrolment_is_served(identities) -> None:
    def refuse(csr: bytes, token: str, silo: str) -> bytes:
        raise AnchorageError(identity.TOKEN_UNKNOWN, f"{silo} shows {token}")

    stop, port = serve_enrolment("127.0.0.1:0", identities.files("server"), refuse)
    with raw(port, identities.silo("a")) as channel:
        ask = declared(ENROLMENT)(channel)["Enrol"]
        code, details = status_of(lambda: ask(pb.SigningRequest(silo="a", token="t")))
    stop()
    assert code is grpc.StatusCode.FAILED_PRECONDITION and details.endswith("a shows t")


def test_a_client_made_from_the_declaration_alone_fetches_a_model(serve, identities) -> None:
    link, port = serve()
    model = model_of(3.3)
    link.offer(model)
    link.assign("a", train_task(model))
    with raw(port, identities.silo("a")) as channel:
        calls = declared(FEDERATION)(channel)
        assert calls["Describe"](pb.DescribeRequest()).run == '{"federation":"derm"}'
        orders = calls["Orders"](pb.Hello(labels="None", samples=3, version="1", protocol=PROTOCOL))
        session = next(orders).welcome.session
        assigned = next(orders).assign
        wanted = pb.ChunkList(model=model.manifest.digest, chunks=range(len(assigned.model.digests) // 16))
        chunks = list(calls["Fetch"](wanted, metadata=((SESSION, session),)))
        orders.cancel()
    assert chunks == [model.chunk(index) for index in range(model.manifest.count)]


@pytest.mark.parametrize("calls", [{}, {"Enrol": print, "Other": print}])
def test_a_server_cannot_leave_a_call_out_or_add_one(calls) -> None:
    with pytest.raises(ValueError, match="Enrolment"):
        serve_calls(ENROLMENT, calls, CallGuard(address_of, 1))
