"""Devices by name, synchronisation, threads and what the record says about the machine."""

import subprocess

import pytest
import torch

from effaudit import device
from effaudit.errors import EffauditError

CPU = torch.device("cpu")


def test_auto_is_the_accelerator_if_there_is_one(monkeypatch):
    monkeypatch.setattr(device, "available", lambda: ("cpu",))
    assert device.resolve("auto") == CPU
    monkeypatch.setattr(device, "available", lambda: ("cpu", "cuda"))
    assert device.resolve("auto") == torch.device("cuda")


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("cdua", "no `cdua` among the devices", "did you mean `cuda`?"),
        ("gpu", "no `gpu` among the devices", "did you mean `cuda`?"),
        ("cuda:x", "no `cuda:x` among the devices", "known: auto, cpu, cuda, mps"),
        ("cuda", "no `cuda` device on this machine", "present: cpu; or use `auto`"),
        ("mps", "no `mps` device on this machine", "present: cpu; or use `auto`"),
        ("cpu:1", "no `cpu:1` on this machine", "1 cpu device(s)"),
    ],
)
def test_wrong_device_is_one_line_with_a_hint(monkeypatch, name, message, hint):
    monkeypatch.setattr(device, "available", lambda: ("cpu",))
    with pytest.raises(EffauditError) as caught:
        device.resolve(name)
    assert caught.value.message == message
    assert hint in caught.value.hint


def test_index_beyond_the_last_gpu(monkeypatch):
    monkeypatch.setattr(device, "available", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert device.resolve("cuda:1") == torch.device("cuda:1")
    with pytest.raises(EffauditError, match="no `cuda:2` on this machine"):
        device.resolve("cuda:2")


def test_synchronize_waits_on_every_accelerator_and_never_on_the_cpu(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda d: waited.append(d.type))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append("mps"))
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda d: waited.append(d.type))
    for kind in ("cpu", "cuda", "mps", "xpu"):
        device.synchronize(torch.device(kind))
    assert waited == ["cuda", "mps", "xpu"]


def test_threads_are_restored_after_an_error():
    before = torch.get_num_threads()

    def fail() -> None:
        with device.threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert torch.get_num_threads() == before


def test_fingerprint_changes_with_what_timings_depend_on(monkeypatch):
    base = device.environment(CPU, "float32", 1)
    assert base.fingerprint == device.environment(CPU, "float32", 1).fingerprint
    assert base.fingerprint != device.environment(CPU, "bfloat16", 1).fingerprint
    assert base.fingerprint != device.environment(CPU, "float32", 2).fingerprint
    monkeypatch.setattr(device, "load_average", lambda: (9.0, 9.0, 9.0))
    assert device.environment(CPU, "float32", 1).fingerprint == base.fingerprint
    monkeypatch.setattr(device, "cpu", lambda: ("another CPU", ()))
    assert device.environment(CPU, "float32", 1).fingerprint != base.fingerprint


X86 = "model name\t: Some CPU\nphysical id\t: {}\nflags\t\t: fpu sse4_2 avx2 avx512_bf16 amx_tile rdrand\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd sve bf16 cpuid\n"


@pytest.mark.parametrize(
    ("text", "flags", "has_bf16"),
    [
        (X86.format(0), ("amx_tile", "avx2", "avx512_bf16", "sse4_2"), True),
        (ARM, ("asimd", "bf16", "sve"), True),
        ("flags : avx2\n", ("avx2",), False),
        ("", (), False),
    ],
)
def test_instruction_sets_of_interest(monkeypatch, tmp_path, text, flags, has_bf16):
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(device.sys, "platform", "linux")
    (tmp_path / "cpuinfo").write_text(text)
    model, found = device.cpu()
    assert model
    assert found == flags
    assert device.has_fast("bfloat16", CPU) is has_bf16
    assert device.has_fast("bfloat16", torch.device("cuda"))


def test_apple_processors_tell_their_instructions_elsewhere(monkeypatch):
    answers = {
        "machdep.cpu.brand_string": "Apple M2",
        "hw.optional.arm.FEAT_BF16": "1",
        "hw.optional.arm.FEAT_FP16": "1",
    }
    monkeypatch.setattr(device.sys, "platform", "darwin")
    monkeypatch.setattr(device.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(device, "_output", lambda *command: answers.get(command[-1]))
    assert device.cpu() == ("Apple M2", ("asimdhp", "bf16", "neon"))
    assert device.has_fast("float16", CPU)
    monkeypatch.setattr(device.platform, "machine", lambda: "x86_64")
    assert device.cpu() == ("Apple M2", ())


@pytest.mark.parametrize(("flags", "is_virtual"), [("fpu hypervisor avx2", True), ("fpu avx2", False)])
def test_a_virtual_machine_is_told_by_its_processor(monkeypatch, tmp_path, flags, is_virtual):
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(f"flags\t: {flags}\n")
    assert device.is_virtual() is is_virtual


def test_the_governor_is_that_of_a_cpu_we_may_use(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "GOVERNORS", tmp_path)
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert device.governor() is None
    for cpu, name in ((0, "performance"), (3, "powersave")):
        (tmp_path / f"cpu{cpu}" / "cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "cpufreq" / "scaling_governor").write_text(f"{name}\n")
    assert device.governor() == "powersave"
    assert device.environment(CPU, "float32", 1).governor == "powersave"


@pytest.mark.parametrize(("value", "label"), [(None, "mps"), ("0", "mps"), ("1", "mps+cpu_fallback")])
def test_a_run_that_may_fall_back_to_the_cpu_is_another_device(monkeypatch, value, label):
    monkeypatch.delenv(device.FALLBACK, raising=False)
    pure = device.environment(torch.device("mps"), "float32", 1)
    if value is not None:
        monkeypatch.setenv(device.FALLBACK, value)
    found = device.environment(torch.device("mps"), "float32", 1)
    assert found.device == label
    assert (found.fingerprint == pure.fingerprint) is (label == "mps")
    assert device.label(CPU) == "cpu"


def test_the_fingerprint_does_not_tell_gpus_of_one_kind_apart(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    first, second = (device.environment(torch.device("cuda", i), "float32", 1) for i in (0, 1))
    assert first.fingerprint == second.fingerprint


def test_sockets_are_counted_once_each(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    assert device.n_sockets() == 1
    (tmp_path / "cpuinfo").write_text("\n".join(X86.format(i % 2) for i in range(4)))
    assert device.n_sockets() == 2


def test_commit_of_a_checkout_and_none_outside(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert device.environment(CPU, "float32", 1).git_commit is None
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    commit = device.environment(CPU, "float32", 1).git_commit
    assert commit is not None
    assert len(commit) == 40


def test_no_git_is_no_error(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert device.environment(CPU, "float32", 1).git_commit is None


@pytest.mark.parametrize(
    ("cpuinfo", "is_intel"),
    [
        ("vendor_id : GenuineIntel\nmodel name : Xeon\n", True),
        ("vendor_id : AuthenticAMD\nmodel name : AMD EPYC\n", False),
        ("model name : Intel(R) Core(TM) i7\n", True),
        ("model name : Neoverse-N1\n", False),
    ],
)
def test_who_made_the_cpu(tmp_path, monkeypatch, cpuinfo, is_intel):
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(device.platform, "processor", lambda: "")
    monkeypatch.setattr(device.sys, "platform", "linux")
    assert device.is_intel() is is_intel
