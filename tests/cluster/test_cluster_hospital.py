"""A hospital in a cluster of its own, joined by a network that is slow, is cut in the middle of an upload, and comes back."""

import json

from cluster_documents import STUDY, managed_silo
from cluster_hospital import HOSPITAL, install_agent, invited, open_to_the_outside
from cluster_namespace import Namespace
from kube import Cable

MEGABITS = 24
MODEL_BYTES = 44_700_000  # ResNet18
MIDDLE = 20_000_000


def sent_by(hospital: Namespace) -> int:
    """Return how many bytes have left the hospital over the cable."""
    assert hospital.site.cluster is not None
    shown = hospital.site.cluster.network.inside("ip", "-json", "-statistics", "link", "show", "cable")
    return int(json.loads(shown)[0]["stats64"]["tx"]["bytes"])


def test_the_line_is_cut_in_the_middle_of_an_upload(started: Namespace, hospital: Namespace, cable: Cable) -> None:
    model = {"network": "ResNet18", "imageSize": 8, "channels": 1, "augmentation": "Digits"}
    started.apply(open_to_the_outside(rounds=1, model=model), managed_silo("silo-a", 0))
    started.wait_for_condition("federation", STUDY, "ServerAvailable")
    agent = install_agent(hospital, invited(started))

    asking = started.wait_for_condition("silo", HOSPITAL, "Enrolled", "False", "PendingApproval")
    assert "fedctl silo approve" in asking["message"]
    assert started.condition("silo", HOSPITAL, "Connected")["status"] != "True"
    hospital.eventually("the agent is able to wait", lambda: hospital.is_ready(hospital.pod(agent)))

    cable.slow(MEGABITS)
    started.fedctl("silo", "approve", STUDY, HOSPITAL)
    started.wait_for_condition("silo", HOSPITAL, "Connected")
    before = sent_by(hospital)
    hospital.eventually("the upload has begun", lambda: sent_by(hospital) > before + MIDDLE)
    cable.cut()
    lost = started.wait_for_condition("silo", HOSPITAL, "Connected", "False", "NotConnected")
    assert lost["message"]
    assert started.round_of(STUDY) == 0
    cable.mend()
    cable.slow(None)
    started.wait_for_condition("federation", STUDY, "Succeeded")
    status = started.must_get("federation", STUDY)["status"]
    assert {each["name"] for each in status["silos"] if float(each["weight"]) > 0} == {"silo-a", HOSPITAL}
    assert sent_by(hospital) - before < MODEL_BYTES + 0.75 * MIDDLE, "what had arrived was not sent again"


def test_who_is_let_in(started: Namespace, hospital: Namespace, cable: Cable) -> None:
    started.apply(open_to_the_outside(rounds=500, min_silos=1, epochs=10), managed_silo("silo-a", 0))
    started.wait_for_condition("federation", STUDY, "ServerAvailable")
    invitation = invited(started)

    forged = {"enrolment": {**invitation["enrolment"], "token": "not-what-was-sent"}}
    refused = install_agent(hospital, forged, "forger")
    _says(hospital, refused, "TokenUnknown")
    assert started.condition("silo", HOSPITAL, "Enrolled")["status"] == "False"

    install_agent(hospital, invitation)
    started.wait_for_condition("silo", HOSPITAL, "Enrolled", "False", "PendingApproval")
    started.fedctl("silo", "approve", STUDY, HOSPITAL)
    started.wait_for_condition("silo", HOSPITAL, "Connected")

    copied = install_agent(hospital, invitation, "copier")
    _says(hospital, copied, "TokenUsed")
    assert started.condition("silo", HOSPITAL, "Connected")["status"] == "True", "the rightful one is not disturbed"

    stolen = {"enrolment": {**invitation["enrolment"], "silo": "hospital-z"}}
    stranger = install_agent(hospital, stolen, "stranger")
    _says(hospital, stranger, "TokenUnknown")

    started.fedctl("silo", "deny", STUDY, HOSPITAL)
    started.wait_for_condition("silo", HOSPITAL, "Connected", "False")
    assert started.condition("silo", HOSPITAL, "Enrolled")["reason"] == "Denied"
    at = started.round_of(STUDY)
    started.wait_for_round(STUDY, at + 2)


def _says(namespace: Namespace, pod: str, reason: str) -> None:
    """Wait until a pod's process has ended with a failure of the catalogue."""

    def last_words() -> bool:
        for container in namespace.must_get("pod", pod)["status"].get("containerStatuses", ()):
            for state in (container["state"], container["lastState"]):
                if f" {reason}: " in state.get("terminated", {}).get("message", ""):
                    return True
        return False

    namespace.eventually(f"{pod} ends with {reason}", last_words)
