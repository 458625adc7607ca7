"""The API server and `fedctl validate` do not contradict each other about federations drawn at random."""

import json
import re

from cluster_site import Site
from drawn_federations import drawn_federations
from refusal import Object

from anchorage.api.mistakes import DocumentError
from anchorage.methods import validate_documents

COUNT = 400


def is_proper(federation: Object) -> bool:
    """Return whether the documents' own rules take a federation."""
    try:
        validate_documents(federation)
    except DocumentError:
        return False
    return True


def test_what_fedctl_takes_the_api_server_takes(site: Site) -> None:
    """And so what the API server refuses fedctl refuses; what fields ask of each other the API server leaves to the operator."""
    federations = drawn_federations(20261121, COUNT)
    text = "".join(f"---\n{json.dumps(federation)}\n" for federation in federations.values())
    output = site.kubectl("apply", "--dry-run=server", "--filename", "-", check=False, text=text, seconds=300)
    accepted = set(re.findall(r"federation\.anchorage\.dev/(drawn-\d+) created", output))
    proper = {name for name, federation in federations.items() if is_proper(federation)}
    assert {name: federations[name]["spec"] for name in proper - accepted} == {}
    assert min(len(proper), len(accepted - proper), COUNT - len(accepted)) > COUNT // 10, "the draw has some of each"
