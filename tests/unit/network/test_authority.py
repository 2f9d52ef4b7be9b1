"""The authority of one runtime: made in memory, believed where it is named, and nowhere else."""

import os
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from paddock.network.requests import Authority

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def shaken(serving: ssl.SSLContext, name: str, trusted: str, flags: int = 0) -> x509.Certificate:
    """The certificate of a server that a client verified, in memory alone."""
    verifying = ssl.create_default_context(cadata=trusted)
    verifying.verify_flags |= ssl.VERIFY_X509_STRICT | flags
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = verifying.wrap_bio(to_client, to_server, server_hostname=name)
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    for each in (client, server, client, server):
        try:
            each.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return x509.load_der_x509_certificate(client.getpeercert(binary_form=True))


@pytest.mark.parametrize(
    "host", ["api.example.org", "a_b.example.org", "xn--bcher-kva.example", "10.0.0.7", "::1"]
)
def test_a_host_is_verified_by_its_name_in_the_strict_way(host: str):
    authority = Authority(datetime.now(UTC))

    shaken(authority.serving(host), host, authority.pem)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"mismatch"):
        shaken(authority.serving(host), "other.example.org", authority.pem)


def test_another_runtimes_authority_is_not_believed():
    one, other = (Authority(datetime.now(UTC)) for _ in range(2))

    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(one.serving("api.example.org"), "api.example.org", other.pem)


def test_a_hosts_certificate_makes_no_others():
    authority = Authority(datetime.now(UTC))
    made = shaken(authority.serving("api.example.org"), "api.example.org", authority.pem)
    limits = made.extensions.get_extension_for_class(x509.BasicConstraints).value

    assert limits.ca is False


def test_each_authority_has_a_key_of_its_own_and_holds_from_the_time_given():
    one, other = Authority(NOW), Authority(NOW)
    own = [x509.load_pem_x509_certificate(each.pem.encode()) for each in (one, other)]

    assert own[0].public_key() != own[1].public_key()
    assert own[0].serial_number != own[1].serial_number
    assert own[0].not_valid_before_utc == NOW - timedelta(hours=1)
    assert own[0].not_valid_after_utc == one.expires == NOW + timedelta(days=30)


def test_a_host_is_prepared_once_and_a_bounded_number_is_kept():
    authority = Authority(datetime.now(UTC))
    first = authority.serving("h0.example.org")

    assert authority.serving("h0.example.org") is first
    for number in range(1, 257):
        authority.serving(f"h{number}.example.org")
    assert authority.serving("h0.example.org") is not first


def test_no_key_lies_in_a_file_or_stays_open():
    before = set(os.listdir("/proc/self/fd"))
    authority = Authority(datetime.now(UTC))
    authority.serving("api.example.org")

    assert set(os.listdir("/proc/self/fd")) == before
    assert "PRIVATE" not in authority.pem


def test_the_way_out_verifies_chain_and_name_with_tls_12_or_newer():
    verifying = Authority(datetime.now(UTC)).verifying

    assert (verifying.verify_mode, verifying.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert verifying.minimum_version == ssl.TLSVersion.TLSv1_2
    assert verifying.keylog_filename is None
    assert not verifying.options & ssl.OP_IGNORE_UNEXPECTED_EOF


@pytest.mark.loopback
def test_a_client_of_tls_11_is_refused():
    authority = Authority(datetime.now(UTC))
    old = ssl.create_default_context(cadata=authority.pem)
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    one, other = socket.socketpair()
    thread = threading.Thread(target=_serve_once, args=(authority, other))
    thread.start()
    with one, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(one, server_hostname="api.example.org")
    thread.join(20)


def _serve_once(authority: Authority, own: socket.socket) -> None:
    with own:
        try:
            authority.serving("api.example.org").wrap_socket(own, server_side=True)
        except (ssl.SSLError, ConnectionError):
            return
