"""What crosses the wire stays readable to the release before: no number of a field is given to something else.

`released_protocol.json` describes the messages and calls of the last release. A release writes it anew, with its breaking changes
(none, by the version promise, but in a major release) in its notes: ANCHORAGE_REWRITE_GOLDEN=1.
"""

import copy
import json
import os
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from anchorage import __version__
from anchorage.transport.grpc import anchorage_pb2 as pb
from anchorage.transport.versions import PROTOCOL

RELEASED = Path(__file__).parents[3] / "golden" / "released_protocol.json"
REWRITE = "ANCHORAGE_REWRITE_GOLDEN"


def description():
    """Describe the messages (their fields by number, and what is reserved) and the calls."""
    file = FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    messages = {}
    waiting = [("", message) for message in file.message_type]
    while waiting:
        outer, message = waiting.pop(0)
        name = outer + message.name
        waiting += [(f"{name}.", nested) for nested in message.nested_type]
        fields = {}
        for field in message.field:
            alone = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
            kind = field.type_name or field.Type.Name(field.type)
            fields[str(field.number)] = [field.name, kind, field.Label.Name(field.label), alone]
        reserved = sorted(number for span in message.reserved_range for number in range(span.start, span.end))
        messages[name] = {"fields": fields, "reserved": reserved, "reservedNames": sorted(message.reserved_name)}
    calls = {
        f"{service.name}/{call.name}": [call.input_type, call.output_type, call.client_streaming, call.server_streaming]
        for service in file.service
        for call in service.method
    }
    return {"package": file.package, "messages": messages, "calls": calls}


def breaking_changes(before, now):
    """List what a peer that knows `before` would misunderstand or miss in `now`."""
    changes = [] if before["package"] == now["package"] else [f"the package is {now['package']} now"]
    for name, old in before["messages"].items():
        new = now["messages"].get(name)
        if new is None:
            changes.append(f"message {name} is gone")
            continue
        for number, field in old["fields"].items():
            if number not in new["fields"]:
                if int(number) not in new["reserved"] or field[0] not in new["reservedNames"]:
                    changes.append(f"{name}: field {field[0]} = {number} is gone, and number and name are not reserved")
            elif new["fields"][number] != field:
                changes.append(
                    f"{name}: field {number} was {' '.join(field)}, and is {' '.join(new['fields'][number])}"
                )
        changes += [f"{name}: {n} is no longer reserved" for n in old["reserved"] if n not in new["reserved"]]
    for name, call in before["calls"].items():
        if now["calls"].get(name) != call:
            changes.append(f"call {name} was {call}, and is {now['calls'].get(name)}")
    return changes


def test_nothing_breaks_what_the_last_release_understands():
    if os.environ.get(REWRITE):
        RELEASED.write_text(json.dumps(description(), indent=1) + "\n")
    assert breaking_changes(json.loads(RELEASED.read_text()), description()) == []


def change_type(now):
    now["messages"]["Hello"]["fields"]["2"][1] = "TYPE_STRING"


def rename(now):
    now["messages"]["Hello"]["fields"]["3"][0] = "mood"


def take_out(now):
    del now["messages"]["Task"]["fields"]["3"]


def take_out_message(now):
    del now["messages"]["Offer"]


def change_call(now):
    now["calls"]["Federation/Push"][2] = False


def leave_the_choice(now):
    now["messages"]["Order"]["fields"]["2"][3] = ""


@pytest.mark.parametrize("change", [change_type, rename, take_out, take_out_message, change_call, leave_the_choice])
def test_every_kind_of_break_is_found(change):
    now = description()
    change(now)
    assert len(breaking_changes(description(), now)) == 1


def test_what_is_new_or_was_taken_out_with_its_number_reserved_breaks_nothing():
    now = description()
    task = now["messages"]["Task"]
    del task["fields"]["3"]
    task["reserved"], task["reservedNames"] = [3], ["round"]
    task["fields"]["99"] = ["mood", "TYPE_STRING", "LABEL_OPTIONAL", ""]
    now["messages"]["Mood"] = {"fields": {}, "reserved": [], "reservedNames": []}
    now["calls"]["Federation/Mood"] = ["a", "b", False, False]
    assert breaking_changes(description(), now) == []
    later = copy.deepcopy(now)
    later["messages"]["Task"]["reserved"] = []
    assert breaking_changes(now, later) == ["Task: 3 is no longer reserved"]


def test_the_protocol_s_number_rises_with_the_minor_release():
    """It is ahead of it by what broke before the first release."""
    major, minor, _ = __version__.split(".")
    assert int(major) > 0 or int(minor) + 4 == PROTOCOL
