"""A new authority beside a server process that trains: the silos' streams stay, and in the end the former one is worth nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
from server_site import SILOS, AddingSilo, Site

from anchorage.api.errors import AnchorageError, identity, transfer
from anchorage.transport.grpc.single_calls import describe, renew
from anchorage.transport.pki import SigningRequest, load_key, silo_uri
from anchorage.transport.pki.succession import drop_previous_authority, introduce_authority


def test_a_new_authority_while_silos_train(tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        site.start()
        a, b = silos = [AddingSilo(site, name) for name in SILOS]
        a.start()
        site.read_until("silo connected", silo="a")
        former = replace(a.credentials, certificate=tmp_path / "former.pem", authority=tmp_path / "former-ca.pem")
        former.certificate.write_bytes(a.credentials.certificate.read_bytes())
        former.authority.write_bytes(a.credentials.authority.read_bytes())

        introduce_authority(site.authority.folder)
        site.read_until("the authority changed; the server has a new certificate")
        assert describe(site.endpoints["silos"], former), "it is trusted still"
        for silo in silos:
            request = SigningRequest.make(load_key(silo.credentials.key), silo_uri("derm", silo.silo))
            silo.credentials.save_certificate(renew(site.endpoints["silos"], silo.credentials, request))
        drop_previous_authority(site.authority.folder)
        site.read_until("the authority changed; the server has a new certificate")
        with pytest.raises(AnchorageError) as caught:
            describe(site.endpoints["silos"], former)
        assert caught.value.failure is transfer.SERVER_NOT_TRUSTED
        former.authority.write_bytes(site.authority.certificate_path.read_bytes())
        with pytest.raises(AnchorageError) as caught:
            describe(site.endpoints["silos"], former)
        assert caught.value.failure is identity.CREDENTIALS_UNUSABLE

        b.start()
        site.succeed()
        assert not [line for line in site.lines if line["message"] == "silo disconnected"]
    finally:
        site.stop()
