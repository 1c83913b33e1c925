"""RAPL trees, GPU mapping and codecarbon's model, without hardware, sudo, network or traces."""

import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import torch

from effaudit.meters import _codecarbon, _instruments, _nvml, _rapl
from effaudit.meters._sources import Sources
from tests.fakes_machine import nvml, powercap

CUDA = torch.device("cuda")
CPU = torch.device("cpu")


def domains(sources):
    return [source.domain for source in sources.found]


def use(root: Path, joules: dict[str, float]) -> None:
    for folder, spent in joules.items():
        path = root / folder / "energy_uj"
        path.write_text(str(int(path.read_text()) + int(spent * 1e6)))


# RAPL


def test_nested_and_platform_zones_are_never_added(tmp_path):
    zones = {
        "intel-rapl:0": ("package-0", 10_000_000),
        "intel-rapl:0:0": ("core", 1),
        "intel-rapl:0:1": ("uncore", 2),
        "intel-rapl:1": ("psys", 30_000_000),
        "intel-rapl-mmio:0": ("package-0", 77_000_000),
    }
    found = _rapl.find_counters(powercap(tmp_path, zones))
    assert domains(found) == ["package-0"]
    before = found.found[0].read()
    spent = {"intel-rapl:0": 3.78, "intel-rapl:0:0": 0.84, "intel-rapl:0:1": 0.21, "intel-rapl:1": 9.61}
    use(tmp_path, {**spent, "intel-rapl-mmio:0": 3.78})
    assert found.found[0].read() - before == pytest.approx(3.78)


def test_dram_stands_beside_its_package(tmp_path):
    zones = {
        "intel-rapl:0": ("package-0", 5_000_000),
        "intel-rapl:0:0": ("dram", 7),
        "intel-rapl:1": ("package-1", 90_000_000),
        "intel-rapl:1:0": ("dram", 8),
    }
    found = _rapl.find_counters(powercap(tmp_path, zones))
    assert domains(found) == ["package-0", "package-1", "dram of package-0", "dram of package-1"]


def test_mirrored_dies_count_once(tmp_path):
    zones = {
        "intel-rapl:0": ("package-0-die-0", 68_000_000),
        "intel-rapl:1": ("package-0-die-1", 68_000_150),
        "intel-rapl:2": ("package-1-die-0", 90_000_000),
    }
    found = _rapl.find_counters(powercap(tmp_path, zones))
    assert domains(found) == ["package-0-die-0", "package-1-die-0"]


def test_psys_only_where_there_is_no_package(tmp_path):
    found = _rapl.find_counters(powercap(tmp_path, {"intel-rapl:0": ("psys", 1), "intel-rapl:0:0": ("core", 1)}))
    assert domains(found) == ["psys"]


def test_wrap_around_is_taken_out(tmp_path):
    root = powercap(tmp_path, {"intel-rapl:0": ("package-0", 900_000)}, range_uj=1_000_000)
    (counter,) = _rapl.find_counters(root).found
    before = counter.read()
    (root / "intel-rapl:0" / "energy_uj").write_text("100000")
    assert counter.read() - before == pytest.approx(0.2)
    (root / "intel-rapl:0" / "energy_uj").write_text("300000")
    assert counter.read() - before == pytest.approx(0.4)


def test_no_permission_is_explained_in_one_line(tmp_path):
    def refuse(path: Path) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return path.read_text()

    found = _rapl.find_counters(powercap(tmp_path, {"intel-rapl:0": ("package-0", 1)}), refuse)
    assert not found.found
    assert found.reason == "RAPL energy counters exist but only root may read them"
    assert "sudo chmod a+r" in found.hint


@pytest.mark.parametrize("zones", [{}, {"intel-rapl": ("intel-rapl", 0)}, {"intel-rapl:0": ("core", 5)}])
def test_nothing_usable_is_a_reason(tmp_path, zones):
    found = _rapl.find_counters(powercap(tmp_path, zones))
    assert not found.found
    assert found.reason


def test_a_broken_counter_is_a_reason(tmp_path):
    root = powercap(tmp_path, {"intel-rapl:0": ("package-0", 1)})
    (root / "intel-rapl:0" / "energy_uj").write_text("garbage")
    assert "cannot be read" in _rapl.find_counters(root).reason


# NVML


@pytest.mark.parametrize(
    ("visible", "index", "expected"),
    [(None, 2, "gpu-2"), ("3", 0, "gpu-3"), ("5,1", 1, "gpu-1"), ("GPU-6-uuid", 0, "gpu-6"), ("GPU-4", 0, "gpu-4")],
)
def test_the_visible_gpu_is_the_one_that_is_read(monkeypatch, visible, index, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = _nvml.find_counter(torch.device("cuda", index), nvml(8))
    assert domains(found) == [expected]
    assert found.found[0].read() == 1000 * int(expected[4:])


def test_the_runtimes_uuid_wins_over_the_order(monkeypatch):
    class Properties:
        uuid = "7-uuid"

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert domains(_nvml.find_counter(CUDA, nvml(8))) == ["gpu-7"]


@pytest.mark.parametrize(
    ("visible", "module", "reason"),
    [
        ("MIG-1234", nvml(1), "MIG slice"),
        ("GPU-unknown", nvml(2), "no GPU with UUID GPU-unknown"),
        ("0", nvml(1, is_supported=False), "Not Supported"),
    ],
)
def test_a_gpu_without_counter_is_a_reason(monkeypatch, visible, module, reason):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = _nvml.find_counter(CUDA, module)
    assert not found.found
    assert reason in found.reason


# codecarbon


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """A `sudo` and `powermetrics` first on PATH that note each call."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("sudo", "powermetrics"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {folder}/called\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def modelled(shim, tmp_path_factory):
    """codecarbon's model, found from a thread, offline, with a stale lock file and an empty working directory."""
    lock = Path(tempfile.gettempdir()) / ".codecarbon.lock"
    had_lock = lock.exists()
    cwd = tmp_path_factory.mktemp("cwd")
    result: list[Sources] = []

    def refuse(*_: object) -> None:
        raise OSError("no network")

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("PATH", f"{shim}{os.pathsep}{os.environ['PATH']}")
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        lock.touch()
        before = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), dict(os.environ))
        thread = threading.Thread(target=lambda: result.append(_codecarbon.find_model()))
        thread.start()
        thread.join()
        after = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), dict(os.environ))
        assert lock.exists()
    if not had_lock:
        lock.unlink()
    assert before == after
    assert list(cwd.iterdir()) == []
    assert [t for t in threading.enumerate() if t.ident == thread.ident] == []
    return result[0]


def test_model_covers_cpu_and_ram_without_traces(modelled, shim):
    assert domains(modelled) == ["cpu", "ram"]
    assert all(source.is_modelled for source in modelled.found)
    assert "TDP" in modelled.found[0].method
    assert not (shim / "called").exists()


def test_model_of_the_cpu_follows_cpu_time_and_of_ram_time():
    cpu = _codecarbon.Processor(tdp_w=100.0, n_cpus=4, method="", cpu_time=iter([2.0, 4.0]).__next__)
    assert -cpu.read() + cpu.read() == pytest.approx(100.0 * 2 / 4)
    ram = _codecarbon.Ram(power_w=20.0, method="", clock=iter([1.0, 4.0]).__next__)
    assert -ram.read() + ram.read() == pytest.approx(60.0)


def test_no_sudo_on_a_mac(monkeypatch, shim, modelled):
    monkeypatch.setenv("PATH", f"{shim}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "darwin")
    _codecarbon.find_model()
    assert not (shim / "called").exists()


def test_a_failure_inside_codecarbon_is_a_reason(monkeypatch, modelled):
    import codecarbon.core.cpu

    def fail() -> None:
        raise KeyError("broken table")

    monkeypatch.setattr(codecarbon.core.cpu, "TDP", fail)
    found = _codecarbon.find_model()
    assert not found.found
    assert "broken table" in found.reason


def test_log_is_silent_and_restored(capfd, modelled):
    logger = logging.getLogger("codecarbon")
    was = logger.disabled
    _codecarbon.find_model()
    assert logger.disabled is was
    assert capfd.readouterr() == ("", "")


# together


def test_counters_are_preferred_and_the_cpu_sum_is_not_gpu_only(monkeypatch, tmp_path):
    zones = {"intel-rapl:0": ("package-0", 1), "intel-rapl:0:0": ("dram", 1)}
    counters = _rapl.find_counters(powercap(tmp_path, zones))
    monkeypatch.setattr(_rapl, "find_counters", lambda: counters)
    monkeypatch.setattr(_codecarbon, "find_model", lambda _: pytest.fail("a counter was there"))
    found = _instruments.find_instruments(CPU)
    assert [source.domain for source in found.sources] == ["package-0", "dram of package-0"]
    assert not found.is_modelled
    monkeypatch.setattr(_nvml, "find_counter", lambda _: Sources(reason="no NVML", hint="install it"))
    assert _instruments.find_instruments(CUDA).reason == "no NVML; install it"


def test_permission_falls_back_to_the_model_with_the_remedy(monkeypatch, modelled):
    refused = Sources(reason="only root may read them", hint="sudo chmod a+r …")
    monkeypatch.setattr(_rapl, "find_counters", lambda: refused)
    monkeypatch.setattr(_codecarbon, "find_model", lambda _: modelled)
    found = _instruments.find_instruments(CPU)
    assert found.is_modelled
    (caution,) = found.cautions
    assert caution.code == "modelled"
    assert "only root may read them" in caution.text
    assert caution.hint == "sudo chmod a+r …"


def test_an_apple_gpu_has_no_counter_and_says_so():
    found = _instruments.find_instruments(torch.device("mps"))
    assert not found.sources
    assert "administrator" in found.reason
