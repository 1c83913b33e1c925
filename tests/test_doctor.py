"""What `doctor` says on machines that the tests make up."""

import pytest
import torch

from effaudit import device, doctor, plugins
from effaudit.meters import _codecarbon, _load, _nvml, _process_peak, _rapl
from effaudit.meters._sources import Sources
from tests.fakes import nvml, powercap

FIND_COUNTERS = _rapl.find_counters
MODEL = Sources(found=(_codecarbon.Processor(8.0, 2, "TDP of a table"),))


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A quiet machine without counters and accelerator."""
    monkeypatch.setattr(device, "available", lambda: ("cpu",))
    monkeypatch.setattr(device, "governor", lambda: None)
    monkeypatch.setattr(doctor.peak, "estimate", lambda *_: 1e11)
    monkeypatch.setattr(_load.LoadWatch, "read", lambda self: _load.Load(0.0, 0.0, None))
    monkeypatch.setattr(_rapl, "find_counters", lambda: Sources(reason="no RAPL"))
    monkeypatch.setattr(_codecarbon, "find_model", lambda: MODEL)
    return tmp_path


def survey():
    return {finding.what: finding for finding in doctor.survey(sleep=lambda _: None)}


def test_a_bare_machine_models_energy_and_says_why():
    found = survey()
    assert found["device cpu"].is_available
    assert "100 GFLOP/s" in found["device cpu"].method
    assert found["flops"].resolution == "exact"
    assert found["latency"].reason == ""
    assert found["energy of cpu, measured"].reason == "no RAPL"
    assert found["energy of cpu, modelled"].method == "TDP of a table"
    assert not found["energy of gpu"].is_available


def test_every_gap_has_a_reason_and_every_offer_a_method():
    for finding in survey().values():
        assert finding.method if finding.is_available else finding.reason


def test_every_meter_has_its_method_and_resolution():
    found = survey().values()
    for name in (*plugins.names("meters"), "emissions"):
        about = [finding for finding in found if finding.what.split()[0] == name and finding.is_available]
        assert about, name
        assert all(finding.resolution for finding in about), name


def test_without_a_peak_to_reset_memory_is_sampled_and_said(monkeypatch, machine):
    monkeypatch.setattr(_process_peak, "PROC", machine / "absent")
    found = survey()["memory on cpu"]
    assert "sampled" in found.method
    assert found.remedy == "use Linux"


def test_a_fallback_of_mps_is_said(monkeypatch):
    monkeypatch.setattr(device, "available", lambda: ("cpu", "mps"))
    monkeypatch.delenv(device.FALLBACK, raising=False)
    assert survey()["device mps"].reason == ""
    assert survey()["memory on mps"].method.startswith("torch.mps.current_allocated_memory")
    assert not survey()["energy of gpu"].is_available
    monkeypatch.setenv(device.FALLBACK, "1")
    assert "mps+cpu_fallback" in survey()["device mps"].reason


def test_readable_counters_leave_no_need_for_a_model(monkeypatch, machine):
    zones = {"intel-rapl:0": ("package-0", 1), "intel-rapl:0:0": ("dram", 1)}
    tree = FIND_COUNTERS(powercap(machine / "powercap", zones))
    monkeypatch.setattr(_rapl, "find_counters", lambda: tree)
    monkeypatch.setattr(_codecarbon, "find_model", lambda: pytest.fail("not needed"))
    found = survey()
    assert found["energy of cpu"].method == "RAPL counters of package-0, dram of package-0"
    assert found["energy of cpu"].resolution == "updated each 1 ms, so windows of 2 s"
    assert "energy of cpu, modelled" not in found


def test_a_busy_or_throttled_machine_is_said(monkeypatch, machine):
    monkeypatch.setattr(device, "governor", lambda: "powersave")
    monkeypatch.setattr(_load.LoadWatch, "read", lambda self: _load.Load(0.9, 0.0, None, n_cpus=2))
    found = survey()["latency"]
    assert "other processes took time of the 2 CPU(s): 1.8 now" in found.reason
    assert "governor powersave" in found.reason
    assert "cpupower" in found.remedy


def test_a_gpu_is_named_with_its_counter(monkeypatch):
    monkeypatch.setattr(device, "available", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    counter = _nvml.find_counter(torch.device("cuda", 0), nvml(1))
    monkeypatch.setattr(_nvml, "find_counter", lambda _: counter)
    found = survey()
    assert found["device cuda:0"].method == "Some GPU"
    assert found["memory on cuda"].is_available
    assert found["energy of gpu"].method == "NVML total-energy counter of gpu-0"
    assert found["energy of gpu"].resolution == "updated each 100 ms, so windows of 2 s"


@pytest.mark.parametrize("has_counters", [True, False])
def test_the_memory_of_any_accelerator_is_said(monkeypatch, has_counters):
    monkeypatch.setattr(device, "available", lambda: ("cpu", "xpu"))
    monkeypatch.setattr(doctor.memory, "allocator_of", lambda _: torch.cuda if has_counters else None)
    assert survey()["memory on xpu"].is_available is has_counters


def test_emulated_bfloat16_is_said(monkeypatch):
    monkeypatch.setattr(device, "cpu", lambda: ("old CPU", ("avx2",)))
    for name in ("bfloat16 on cpu", "float16 on cpu"):
        assert not survey()[name].is_available
        assert survey()[name].remedy == "use float32"
