"""A federation's control endpoint, the server's own code over answers that the test gives."""

import json

from anchorage.api.status import FederationStatus
from anchorage.transport.pki import Authority, Credentials, SigningRequest, key_to_pem, make_key, server_uri
from anchorage_server.control import ControlServer, json_answer


class Control:
    def __init__(self, folder, authority: Authority, names=("derm-server.ns.svc",), port=0):
        key = make_key()
        request = SigningRequest.make(key, server_uri(authority.federation))
        self.credentials = Credentials(folder / "tls.key", folder / "tls.crt", folder / "ca.pem")
        self.credentials.key.write_bytes(key_to_pem(key))
        self.credentials.certificate.write_bytes(authority.issue_server(request, names))
        self.credentials.authority.write_bytes(authority.certificate_pem)
        self.status = FederationStatus(round=3, rounds=15)
        self.members = []
        self.requests = []
        self.answers = []
        self.asked = []
        asks = {"/status": self._status, "/members": self._members, "/requests": self._requests}
        puts = {"/members": self._put_members, "/answers": self._put_answers}
        self._server = ControlServer(f"[::]:{port}", self.credentials, authority.federation, asks, puts)
        self._server.start()
        self.port = int(self._server.address.rpartition(":")[2])

    def stop(self):
        self._server.stop()

    def _status(self):
        self.asked.append("status")
        return json_answer(json.loads(self.status.model_dump_json(by_alias=True)))

    def _members(self):
        return json_answer({"members": self.members})

    def _requests(self):
        return json_answer({"requests": self.requests})

    def _put_members(self, body):
        self.members = json.loads(body)["members"]
        return json_answer({})

    def _put_answers(self, body):
        self.answers += json.loads(body)["answers"]
        answered = {answer["id"] for answer in self.answers}
        self.requests = [request for request in self.requests if request["id"] not in answered]
        return json_answer({})
