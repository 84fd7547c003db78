"""The other two ways to a server: a socket of the same host, and TLS."""

import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import pytest

from routeguard.policy import LedgerUnavailable
from tests.ports import KeptPort
from tests.redis.calls import CALL, PATIENT, PROMPT, balance, reserve, settle, try_reserve
from tests.redis.conftest import Opens
from tests.redis.server import RedisServer


async def test_a_socket_of_the_same_host_leads_to_the_store(opens: Opens, redis_program: str, tmp_path: Path) -> None:
    socket = tmp_path / "redis.sock"
    with RedisServer(redis_program, "--unixsocket", str(socket), "--unixsocketperm", "700"):
        ledger = opens(f"unix://{socket}?db=1")

        warnings = await ledger.check()
        assert await settle(ledger, await reserve(ledger, "one"), 7)
        found = await balance(ledger)

    assert len(warnings) == 1, "it keeps no append-only file"
    assert found.charged_nanousd == 7


async def test_a_store_behind_tls_is_used_when_its_certificate_is_known(
    opens: Opens, redis_program: str, tmp_path: Path
) -> None:
    certificate = _make_certificate(tmp_path)
    with _tls_server(redis_program, tmp_path) as server:
        ledger = opens(f"rediss://localhost:{server.tls_port}/0?ssl_ca_certs={certificate}")

        assert len(await ledger.check()) == 1
        assert await settle(ledger, await reserve(ledger, "one"), CALL)
        assert (await balance(ledger)).charged_nanousd == CALL


async def test_a_store_behind_tls_whose_certificate_nobody_vouches_for_is_refused(
    opens: Opens, redis_program: str, tmp_path: Path
) -> None:
    _make_certificate(tmp_path)
    with _tls_server(redis_program, tmp_path) as server:
        ledger = opens(f"rediss://localhost:{server.tls_port}/0")

        (warning,) = await ledger.check()
        refused = await try_reserve(ledger, "one")

    assert "503 until it answers" in warning
    assert refused is None


async def test_tls_asked_of_a_port_without_it_is_said(opens: Opens, redis_program: str) -> None:
    with RedisServer(redis_program) as server:
        url = f"rediss://localhost:{server.port}/0"
        # Two tries to connect are over before the decision, whatever else this machine does.
        asked = opens(url, timing=replace(PROMPT, decision=PATIENT.decision))

        (warning,) = await opens(url, timing=PROMPT).check()
        with pytest.raises(LedgerUnavailable) as unavailable:
            await asked.refresh()

    assert "if it works without TLS, LEDGER begins with redis://" in warning
    assert "if it works without TLS, LEDGER begins with redis://" in str(unavailable.value)


async def test_a_port_for_tls_asked_without_it_is_said(opens: Opens, redis_program: str, tmp_path: Path) -> None:
    _make_certificate(tmp_path)
    with _tls_server(redis_program, tmp_path) as server:
        ledger = opens(f"redis://localhost:{server.tls_port}/0")

        (warning,) = await ledger.check()

    assert "if it works with TLS, LEDGER begins with rediss://" in warning


class _TlsServer(RedisServer):
    """Listens for TLS beside."""

    def __init__(self, program: str, folder: Path) -> None:
        self._kept_for_tls = KeptPort()
        self.tls_port = self._kept_for_tls.port
        files = ["--tls-cert-file", f"{folder}/cert.pem", "--tls-key-file", f"{folder}/key.pem"]
        files += ["--tls-ca-cert-file", f"{folder}/cert.pem", "--tls-auth-clients", "no"]
        super().__init__(program, "--tls-port", str(self.tls_port), *files)

    def __enter__(self) -> "_TlsServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, problem, trace)
        self._kept_for_tls.close()


def _tls_server(program: str, folder: Path) -> _TlsServer:
    server = _TlsServer(program, folder)
    try:
        server.start()
    except AssertionError as problem:
        if "TLS" in str(problem) or "tls" in str(problem):
            pytest.skip("this server is built without TLS")
        raise
    return server


def _make_certificate(folder: Path) -> Path:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    given = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    given += ["-addext", "subjectAltName=DNS:localhost", "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
    subprocess.run([openssl, *given], check=True, capture_output=True)
    ssl.create_default_context(cafile=f"{folder}/cert.pem")
    return folder / "cert.pem"
