"""TLS files: expired ones are refused at start, a warning comes before, and SIGHUP reloads them. A read-only disk."""

import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from service.kills import begun, running
from service.serving import CENTRAL, study_file
from service.test_cli_serve import pem_files

from privrl.service.tls import LiveTls, TlsFiles

DAY = 86_400.0


def at(year: int) -> float:
    return datetime(year, 1, 1, tzinfo=UTC).timestamp()


def test_a_certificate_is_valid_between_its_dates_only(tmp_path: Path) -> None:
    files = TlsFiles(*pem_files(tmp_path, begins=datetime(2020, 1, 1), ends=datetime(2030, 1, 1)))
    assert files.check(at(2029)) == at(2030)
    with pytest.raises(ValueError, match="expired at 2030-01-01T00:00:00Z. Renew it"):
        files.check(at(2030))
    with pytest.raises(ValueError, match="valid from 2020-01-01T00:00:00Z on"):
        files.check(at(2019))


def test_a_warning_comes_30_days_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = TlsFiles(*pem_files(tmp_path, begins=datetime(2020, 1, 1), ends=datetime(2030, 1, 1)))
    context, now = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), [at(2030) - 31 * DAY]
    live = LiveTls(files, context, lambda: now[0])
    live.warn()
    assert not caplog.records
    now[0] += 2 * DAY
    live.warn()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and vars(record)["facts"]["days_left"] == 29


def presented(port: int) -> bytes:
    """The certificate of a server."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        context.wrap_socket(plain) as connection,
    ):
        found = connection.getpeercert(binary_form=True)
        assert found is not None
        return found


def test_sighup_reloads_the_files_and_keeps_the_old_ones_if_it_cannot(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "other").mkdir()
    certificate, key = pem_files(tmp_path)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with running(tmp_path, more=options) as (process, ports):
        first = presented(ports["apps and devices"])
        certificate.write_text("damaged")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert presented(ports["apps and devices"]) == first and process.poll() is None
        for new, old in zip(pem_files(tmp_path / "other"), (certificate, key), strict=True):
            shutil.copy(new, old)
        process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20.0
        while presented(ports["apps and devices"]) == first:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_read_only_disk_may_pass(tmp_path: Path) -> None:
    """It is exit code 1, after which a supervisor starts the service again."""
    folder = tmp_path / "disk"
    folder.mkdir()
    script = f"""
mount -t tmpfs none {folder} || exit 99
cp -a {tmp_path}/made/. {folder} && mount -o remount,ro {folder}
{sys.executable} -m privrl.cli serve run {folder}/study.toml --listen 127.0.0.1:0 --operator 127.0.0.1:0
"""
    study_file(tmp_path / "made", CENTRAL)
    command = ["unshare", "-m", "sh", "-c", script]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=dict(os.environ))
    except FileNotFoundError:
        pytest.skip("`unshare` is not installed")
    if "ermitted" in done.stderr or done.returncode == 99:
        pytest.skip("this process may not mount a file system")
    assert done.returncode == 1 and "the file system is read-only" in done.stderr, done.stderr
