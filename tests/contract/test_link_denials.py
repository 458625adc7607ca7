"""A silo that is denied outside a cluster: at once, for good, and until it is approved again."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from link_world import PATIENCE, model_of, order_of, train_task

from anchorage.api.errors import AnchorageError, transfer
from anchorage.transport.messages import Assigned, Joined, MembersChanged
from anchorage.transport.pki import Denials, SiloKeys
from anchorage_server.access import DocumentAdmission
from anchorage_server.watch import Watch


class _Registrar:
    enrol = renew = None


def test_a_denied_silo_is_cut_off_at_once_and_stays_so(serve, dial, tmp_path: Path) -> None:
    denials = Denials(tmp_path)
    admission = DocumentAdmission(("a", "b"), cast(Any, _Registrar), denials, SiloKeys(tmp_path))
    link, port = serve(admit=admission.admits)
    watch = Watch(lambda: admission.names, lambda names: link.change_members(names, "it was denied"))
    try:
        a, b = dial(port, "a"), dial(port, "b")
        for _ in range(2):
            await_event(link, Joined)
        denials.deny("b", "key lost")
        assert await_event(link, MembersChanged) == MembersChanged(("a",), frozenset({"b"}))
        assert refused(lambda: b.next_order(PATIENCE)) is transfer.SILO_NOT_ADMITTED
        assert refused(dial(port, "b").welcome) is transfer.SILO_NOT_ADMITTED
        model = model_of(0.1)
        link.assign("a", train_task(model))
        assert order_of(a) == Assigned(train_task(model)), "the others go on"
        denials.approve("b")
        assert await_event(link, MembersChanged) == MembersChanged(("a", "b"), frozenset())
        assert dial(port, "b").welcome()
    finally:
        watch.close()


def test_who_is_not_in_the_file_is_no_member_whatever_the_folder_has(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    admission = DocumentAdmission(("a", "b"), cast(Any, _Registrar), Denials(tmp_path), SiloKeys(tmp_path))
    assert admission.names == ("a", "b") and not admission.admits("c", "") and not admission.admits("../ca.pem", "")
    Denials(tmp_path).deny("a")
    restarted = DocumentAdmission(("a", "b"), cast(Any, _Registrar), Denials(tmp_path), SiloKeys(tmp_path))
    assert restarted.names == ("b",) and not restarted.admits("a", ""), "also after a restart"


def await_event(link: Any, kind: type) -> Any:
    while not isinstance(event := link.next_event(time.time() + PATIENCE), kind):
        assert event is not None, f"no {kind.__name__} came"
    return event


def refused(call: Callable[[], object]) -> object:
    with pytest.raises(AnchorageError) as caught:
        call()
    return caught.value.failure
