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
from tests.fakes import FakeClock, FakeCodecarbon, nvml, powercap, use

CUDA = torch.device("cuda")
CPU = torch.device("cpu")


def domains(sources):
    return [source.domain for source in sources.found]


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
    assert [source.part for source in found.found] == ["cpu", "cpu", "ram", "ram"]


def test_mirrored_dies_count_once(tmp_path):
    zones = {
        "intel-rapl:0": ("package-0-die-0", 68_000_000),
        "intel-rapl:1": ("package-0-die-1", 68_000_150),
        "intel-rapl:2": ("package-1-die-0", 90_000_000),
    }
    root = powercap(tmp_path, zones)
    found = _rapl.find_counters(root)
    assert domains(found) == ["package-0-die-0 = package-0-die-1", "package-1-die-0"]
    before = found.found[0].read()
    for _ in range(10):
        use(root, {"intel-rapl:0": 68, "intel-rapl:1": 68})
        found.found[0].read()
    assert found.found[0].read() - before == pytest.approx(680)
    assert "counted once" in found.found[0].method


def test_packages_that_only_started_alike_are_added(tmp_path):
    """Just after boot, or in another fixture: both near zero, then each on its own way."""
    zones = {"intel-rapl:0": ("package-0", 1_000), "intel-rapl:1": ("package-1", 2_000)}
    zones |= {"intel-rapl:0:0": ("dram", 10), "intel-rapl:1:0": ("dram", 20)}
    root = powercap(tmp_path, zones)
    packages, drams = _rapl.find_counters(root).found
    use(root, {"intel-rapl:0": 3, "intel-rapl:1": 1, "intel-rapl:0:0": 2, "intel-rapl:1:0": 1})
    before, drams_before = packages.read(), drams.read()  # while the machine idles
    use(root, {"intel-rapl:0": 60, "intel-rapl:1": 20, "intel-rapl:0:0": 5, "intel-rapl:1:0": 4})
    assert packages.read() - before == pytest.approx(80)
    assert drams.read() - drams_before == pytest.approx(9)
    assert "each for itself" in packages.method


def test_a_mirror_is_one_even_when_we_are_held_up_between_two_reads(tmp_path):
    """Another process may run between the two reads, and the counter goes on meanwhile."""
    zones = {"intel-rapl:0": ("package-0-die-0", 68_000_000), "intel-rapl:1": ("package-0-die-1", 68_000_000)}
    root = powercap(tmp_path, zones)

    def slowly(path: Path) -> str:
        text = path.read_text()
        if path.name == "energy_uj":
            use(root, {"intel-rapl:0": 5, "intel-rapl:1": 5})
        return text

    (found,) = _rapl.find_counters(root, slowly).found
    before, spent = found.read(), int((root / "intel-rapl:0" / "energy_uj").read_text())
    for _ in range(5):
        found.read()
    spent = int((root / "intel-rapl:0" / "energy_uj").read_text()) - spent
    assert found.read() - before == pytest.approx(spent / 1e6 + 15, abs=6)


def test_mirrors_wrap_around_together(tmp_path):
    zones = {"intel-rapl:0": ("package-0-die-0", 900_000), "intel-rapl:1": ("package-0-die-1", 900_100)}
    root = powercap(tmp_path, zones, range_uj=10_000_000)
    (found,) = _rapl.find_counters(root).found
    before = found.read()
    for now in (9_500_000, 300_000):
        for folder in zones:
            (root / folder / "energy_uj").write_text(str(now))
        found.read()
    assert found.read() - before == pytest.approx(9.4)


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


@pytest.mark.parametrize("closed", ["", "intel-rapl:0", "intel-rapl:0/name"])
def test_a_closed_folder_is_no_missing_one(monkeypatch, tmp_path, closed):
    """As chmod 000 leaves it to everyone but root, who runs these tests in containers."""
    root = powercap(tmp_path / "powercap", {"intel-rapl:0": ("package-0", 1)})
    real = os.listdir

    def is_closed(path) -> bool:
        return Path(path).is_relative_to(root / closed)

    def listdir(path):
        if is_closed(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    def read(path: Path) -> str:
        if is_closed(path):
            raise PermissionError(13, "Permission denied", str(path))
        return path.read_text()

    monkeypatch.setattr(_rapl.os, "listdir", listdir)
    found = _rapl.find_counters(root, read)
    assert not found.found
    assert "only root may read them" in found.reason
    assert "sudo chmod" in found.hint


@pytest.mark.parametrize("zones", [{}, {"intel-rapl": ("intel-rapl", 0)}, {"intel-rapl:0": ("core", 5)}])
def test_nothing_usable_is_a_reason(tmp_path, zones):
    found = _rapl.find_counters(powercap(tmp_path, zones))
    assert not found.found
    assert found.reason


def test_a_broken_counter_is_a_reason(tmp_path):
    root = powercap(tmp_path, {"intel-rapl:0": ("package-0", 1)})
    (root / "intel-rapl:0" / "energy_uj").write_text("garbage")
    assert "cannot be read" in _rapl.find_counters(root).reason


@pytest.mark.parametrize("range_uj", [0, -1])
def test_a_counter_without_a_range_is_a_reason(tmp_path, range_uj):
    zones = {"intel-rapl:0": ("package-0", 5), "intel-rapl:1": ("package-1", 5)}
    assert "a range of" in _rapl.find_counters(powercap(tmp_path, zones, range_uj)).reason


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
        ("0", nvml(1, has_counter=False), "Not Supported"),
        ("0", nvml(1, is_mig=True), "gpu-0 is a MIG slice or divided into such"),
    ],
)
def test_a_gpu_without_counter_is_a_reason(monkeypatch, visible, module, reason):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = _nvml.find_counter(CUDA, module)
    assert not found.found
    assert reason in found.reason


@pytest.mark.parametrize(("is_mig", "reason"), [(True, "MIG slice"), (False, "no GPU with UUID GPU-slice-uuid")])
def test_a_slice_has_a_uuid_of_its_own(monkeypatch, is_mig, reason):
    """Where nothing is set, CUDA gives the first slice of a divided GPU, which NVML lists among no GPUs."""
    monkeypatch.setattr(_nvml, "_uuid", lambda _: "GPU-slice-uuid")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = _nvml.find_counter(CUDA, nvml(2, is_mig=is_mig))
    assert not found.found
    assert reason in found.reason


def test_gpus_of_others_are_passed_over(monkeypatch):
    module = nvml(4)

    def handle(index: int) -> int:
        if index < 2:
            raise module.NVMLError("Insufficient Permissions")
        return index

    module.nvmlDeviceGetHandleByIndex = handle
    monkeypatch.setattr(_nvml, "_uuid", lambda _: "GPU-3-uuid")
    assert domains(_nvml.find_counter(CUDA, module)) == ["gpu-3"]


def test_without_a_counter_power_is_sampled_and_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    clock, watts = FakeClock(), [100.0]
    found = _nvml.find_counter(CUDA, nvml(4, has_counter=False, power_w=lambda: watts[0]), clock)
    (power,) = found.found
    assert power.domain == "gpu-2"
    assert power.part == "gpu"
    assert "sampled" in power.method
    assert power.method != _nvml.Counter(None, 0, "").method
    assert [caution.code for caution in found.cautions] == ["sampled_power"]
    start = power.read()
    clock.advance(2)
    assert power.read() - start == pytest.approx(200)
    watts[0] = 300.0
    clock.advance(1)
    assert power.read() - start == pytest.approx(200 + 200)  # the mean of both ends


def test_power_is_sampled_by_a_thread_that_ends_with_the_work(monkeypatch):
    readings = []

    def watts() -> float:
        readings.append(threading.current_thread())
        return 100.0

    monkeypatch.setattr(_nvml, "SAMPLING_S", 0.001)
    power = _nvml.Power(nvml(1, has_counter=False, power_w=watts), 0, "gpu-0")
    before = threading.enumerate()

    def fail() -> None:
        with _instruments.Instruments((power,)).running():
            while len(readings) < 5:
                threading.Event().wait(0.001)
            raise RuntimeError("forward failed")

    with pytest.raises(RuntimeError, match="forward failed"):
        fail()
    assert threading.enumerate() == before
    assert threading.main_thread() not in readings


def test_a_gpu_lost_while_it_is_sampled_is_an_unreadable_counter(monkeypatch):
    class Lost:
        NVMLError = ValueError

        def nvmlDeviceGetPowerUsage(self, _):
            raise ValueError("GPU is lost")

    monkeypatch.setattr(_nvml, "SAMPLING_S", 0.001)
    tools = _instruments.Instruments((_nvml.Power(Lost(), 0, "gpu-0"),))
    with tools.running():
        threading.Event().wait(0.01)
        with pytest.raises(_instruments.UnreadableError, match="GPU is lost"):
            tools.read()


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


def test_an_unknown_processor_shows_what_is_assumed_and_its_range(monkeypatch):
    monkeypatch.setattr(_codecarbon.psutil, "cpu_count", lambda: 4)
    fake = FakeCodecarbon("Mystery CPU", tdp_w=4 * _codecarbon.ASSUMED_W_PER_CPU).install(monkeypatch)
    found = _codecarbon.find_model()
    assert "4 W per CPU assumed, Mystery CPU unknown" in found.found[0].method
    (caution,) = found.cautions
    assert caution.code == "assumed_tdp"
    assert "a TDP of 16 W is assumed, 4 to 32 W likely" in caution.text
    assert fake.n_trackers == 0


@pytest.mark.parametrize("name", ["Unknown", ""])
def test_a_processor_without_a_name_is_assumed_too(monkeypatch, name):
    """As some virtual machines and sandboxes have it: codecarbon then gives no power at all."""
    monkeypatch.setattr(_codecarbon.psutil, "cpu_count", lambda: 4)
    FakeCodecarbon(name, tdp_w=None).install(monkeypatch)
    found = _codecarbon.find_model()
    assert found.found[0].tdp_w == 16
    assert "4 W per CPU assumed, this processor unknown" in found.found[0].method
    assert "codecarbon's table lacks this processor" in found.cautions[0].text


def test_what_is_assumed_for_a_batch_job_is_scaled_to_the_machine(monkeypatch):
    """codecarbon then assumes 4 W for each CPU of the job; the share of CPU time is that of all CPUs."""
    import codecarbon.core.util

    monkeypatch.setattr(_codecarbon.psutil, "cpu_count", lambda: 64)
    monkeypatch.setattr(codecarbon.core.util, "count_cpus", lambda: 8)
    FakeCodecarbon("Mystery CPU", tdp_w=8 * _codecarbon.ASSUMED_W_PER_CPU).install(monkeypatch)
    found = _codecarbon.find_model()
    assert found.found[0].tdp_w == 64 * _codecarbon.ASSUMED_W_PER_CPU
    assert [caution.code for caution in found.cautions] == ["assumed_tdp"]


def test_a_batch_job_without_its_systems_command_keeps_the_table(monkeypatch):
    import codecarbon.core.util

    def missing() -> int:
        raise FileNotFoundError("scontrol")

    monkeypatch.setattr(codecarbon.core.util, "count_cpus", missing)
    monkeypatch.setattr(_codecarbon.device, "n_sockets", lambda: 1)
    FakeCodecarbon("Xeon", tdp_w=101.0).install(monkeypatch)
    assert _codecarbon.find_model().found[0].tdp_w == 101


def test_ram_without_a_model_is_left_out_and_said(monkeypatch):
    FakeCodecarbon("Xeon", tdp_w=100.0, ram_w=0.0).install(monkeypatch)
    found = _codecarbon.find_model()
    assert domains(found) == ["cpu"]
    assert "no_ram_model" in [caution.code for caution in found.cautions]


@pytest.mark.parametrize("is_virtual", [False, True])
def test_a_known_processor_may_be_shared_in_a_virtual_machine(monkeypatch, is_virtual):
    monkeypatch.setattr(_codecarbon.device, "is_virtual", lambda: is_virtual)
    monkeypatch.setattr(_codecarbon.device, "n_sockets", lambda: 2)
    FakeCodecarbon("Xeon", tdp_w=100.0, ram_w=20.0).install(monkeypatch)
    found = _codecarbon.find_model()
    cpu, ram = found.found
    assert cpu.tdp_w == 200.0
    assert ram.power_w == 20.0
    assert [caution.code for caution in found.cautions] == ["assumed_tdp"] * is_virtual


def test_the_processor_is_modelled_as_codecarbon_does_by_process(monkeypatch):
    """TDP x share of the CPU time of this process and its children."""
    from codecarbon.external import hardware

    if not hasattr(hardware.CPU, "_get_process_cpu_times"):
        pytest.skip("this version of codecarbon computes it elsewhere")
    monkeypatch.setattr(hardware, "count_cpus", lambda: 4)
    theirs = hardware.CPU(output_dir="", mode="cpu_load", model="x", tdp=100, tracking_mode="process")
    monkeypatch.setattr(hardware.time, "time", iter([10.0, 12.0]).__next__)
    monkeypatch.setattr(theirs, "_get_process_cpu_times", iter([{1: 5.0, 2: 1.0}, {1: 8.0, 2: 1.5}]).__next__)
    theirs._get_power_from_cpu_load()
    ours = _codecarbon.Processor(tdp_w=100.0, n_cpus=4, method="", cpu_time=iter([6.0, 9.5]).__next__)
    assert -ours.read() + ours.read() == pytest.approx(2.0 * theirs._get_power_from_cpu_load().W)


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
    monkeypatch.setattr(_nvml, "find_counter", lambda _, clock: Sources(reason="no NVML", hint="install it"))
    assert _instruments.find_instruments(CUDA).reason == "no NVML; install it"


def test_permission_falls_back_to_the_model_with_the_remedy(monkeypatch, modelled):
    refused = Sources(reason="only root may read them", hint="sudo chmod a+r …")
    monkeypatch.setattr(_rapl, "find_counters", lambda: refused)
    monkeypatch.setattr(_codecarbon, "find_model", lambda _: modelled)
    found = _instruments.find_instruments(CPU)
    assert found.is_modelled
    caution = found.cautions[0]
    assert caution.code == "modelled"
    assert found.cautions[1:] == modelled.cautions
    assert "only root may read them" in caution.text
    assert caution.hint == "sudo chmod a+r …"


def test_an_apple_gpu_has_no_counter_and_says_so():
    found = _instruments.find_instruments(torch.device("mps"))
    assert not found.sources
    assert "administrator" in found.reason
