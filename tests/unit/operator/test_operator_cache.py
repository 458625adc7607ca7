"""The cache knows what belongs to which federation, what is news, and what the watch owes."""

import pytest
from fake_api.clock import Clock

from anchorage_operator.cache import Cache, Key, Ref
from anchorage_operator.names import FEDERATION_LABEL

DERM = Key("ns", "derm")
NEVI = Key("ns", "nevi")


def an_object(kind, name, version="1", labels=None, namespace="ns", uid=None, **rest):
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"{kind}-{name}", "resourceVersion": version}
    metadata |= {"labels": labels or {}, "managedFields": [{"manager": "anybody"}]}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}


def a_child(kind, name, federation="derm", **rest):
    return an_object(kind, name, labels={FEDERATION_LABEL: federation}, **rest)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cache(clock):
    return Cache(clock)


def test_objects_are_found_by_their_federation(cache):
    cache.add_watched(an_object("Federation", "derm", spec={"rounds": 3}))
    cache.add_watched(an_object("Silo", "a", spec={"federation": "derm"}))
    cache.add_watched(an_object("Silo", "b", spec={"federation": "nevi"}))
    cache.add_watched(a_child("StatefulSet", "derm-server"))
    cache.add_watched(a_child("Pod", "derm-server-0", status={"phase": "Running"}))
    assert cache.federation(DERM)["spec"] == {"rounds": 3}
    assert list(cache.silos(DERM)) == ["a"]
    assert list(cache.children(DERM)) == [("StatefulSet", "derm-server")]
    assert [pod["metadata"]["name"] for pod in cache.pods(DERM)] == ["derm-server-0"]
    assert cache.federation(NEVI) is None and list(cache.silos(NEVI)) == ["b"]


def test_bookkeeping_of_others_is_not_kept(cache):
    cache.add_watched(an_object("Federation", "derm"))
    assert "managedFields" not in cache.federation(DERM)["metadata"]


def test_only_news_touches_a_federation(cache):
    assert cache.add_watched(a_child("Service", "derm-server", version="5")) == {DERM}
    assert cache.add_watched(a_child("Service", "derm-server", version="5")) == set()
    assert cache.add_watched(a_child("Service", "derm-server", version="4")) == set()  # a late event
    assert cache.add_watched(a_child("Service", "derm-server", version="6")) == {DERM}
    assert cache.add_watched(a_child("Service", "derm-server", version="3", uid="another")) == {DERM}  # made again


def test_stale_objects_give_way_to_older_versions_and_go_where_none_comes(cache):
    cache.add_watched(a_child("Service", "derm-server", version="50"))
    cache.add_watched(a_child("Service", "nevi-server", federation="nevi", version="51"))
    cache.add_watched(a_child("Service", "elsewhere", version="52", namespace="other"))
    cache.add_watched(a_child("ConfigMap", "derm-server", version="53"))
    cache.mark_stale("Service", "ns")
    assert (
        cache.get(Ref("Service", "ns", "derm-server")) and DERM in cache and NEVI in cache
    )  # nothing is missing meanwhile
    assert cache.add_watched(a_child("Service", "derm-server", version="7")) == {DERM}
    assert cache.drop_stale("Service", "ns") == {NEVI}
    assert cache.versions("Service", ()) == {
        Ref("Service", "ns", "derm-server"): "7",
        Ref("Service", "other", "elsewhere"): "52",
    }
    assert cache.versions("ConfigMap", ()) == {Ref("ConfigMap", "ns", "derm-server"): "53"}
    cache.mark_stale("Service", None)
    assert cache.drop_stale("Service", None) == {DERM, Key("other", "derm")}


def test_a_silo_that_moves_touches_both_federations(cache):
    cache.add_watched(an_object("Silo", "a", version="1", spec={"federation": "derm"}))
    touched = cache.add_watched(an_object("Silo", "a", version="2", spec={"federation": "nevi"}))
    assert touched == {DERM, NEVI}
    assert cache.silos(DERM) == {}


def test_a_claim_touches_every_federation_of_its_namespace(cache):
    cache.add_watched(an_object("Federation", "derm"))
    cache.add_watched(an_object("Federation", "nevi"))
    cache.add_watched(an_object("Federation", "else", namespace="other"))
    assert cache.add_watched(an_object("PersistentVolumeClaim", "images", status={"phase": "Bound"})) == {DERM, NEVI}
    assert cache.claims("ns") == {"images": "Bound"}
    assert cache.remove(Ref("PersistentVolumeClaim", "ns", "images")) == {DERM, NEVI}
    assert cache.claims("ns") == {}


def test_what_is_gone_is_gone(cache):
    cache.add_watched(an_object("Federation", "derm"))
    assert DERM in cache
    assert cache.remove(Ref("Federation", "ns", "derm")) == {DERM}
    assert DERM not in cache
    assert cache.remove(Ref("Federation", "ns", "derm")) == set()


def test_the_watch_owes_what_came_another_way(cache, clock):
    cache.add_answer(a_child("StatefulSet", "derm-server", version="7"))
    clock.advance(30.0)
    assert cache.lag() == 30.0
    cache.add_watched(a_child("StatefulSet", "derm-server", version="7"))
    assert cache.lag() == 0.0


def test_an_answer_that_the_watch_brought_first_is_not_owed(cache, clock):
    cache.add_watched(a_child("StatefulSet", "derm-server", version="7"))
    cache.add_answer(a_child("StatefulSet", "derm-server", version="7"))
    clock.advance(30.0)
    assert cache.lag() == 0.0


def test_what_was_deleted_is_not_owed(cache, clock):
    cache.add_answer(a_child("StatefulSet", "derm-server"))
    cache.remove(Ref("StatefulSet", "ns", "derm-server"))
    clock.advance(30.0)
    assert cache.lag() == 0.0
