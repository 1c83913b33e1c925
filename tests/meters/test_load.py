"""Whether the machine was quiet, on machines that the tests make up."""

import os

import psutil
import pytest

from effaudit import device
from effaudit.meters import _load, _throttling

FIELDS = psutil.cpu_times()


def times(user=0.0, idle=0.0, steal=0.0):
    return type(FIELDS)(**{**dict.fromkeys(FIELDS._fields, 0.0), "user": user, "idle": idle, "steal": steal})


def seen(monkeypatch, *readings, own=(0.0, 0.0), allowed=(0, 1)):
    """A watch over CPUs that show these times one after the other."""
    each = iter(readings)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(each))
    monkeypatch.setattr(_load, "own_cpu_s", iter(own).__next__)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(allowed), raising=False)
    monkeypatch.setattr(_throttling, "read_periods", dict)
    return _load.LoadWatch().read()


def test_own_work_is_not_taken_for_others(monkeypatch):
    load = seen(monkeypatch, [times(100, 50)] * 2, [times(102, 52, 1)] * 2, own=(1.0, 4.0))
    assert load.others == pytest.approx(0.1)  # 4 s used, 3 of them ours, of 10 in all
    assert load.steal == pytest.approx(0.2)
    assert load.n_cpus == 2
    (caution,) = _load.cautions_now(load)
    assert caution.code == "unstable"
    assert "hypervisor took away CPU time: 20% now" in caution.text


def test_only_the_cpus_that_we_may_use_count(monkeypatch):
    """Two busy loops on the two CPUs of a container, on a machine with 64."""
    idle, busy = times(idle=10), times(user=10)
    load = seen(monkeypatch, [times()] * 64, [idle] * 62 + [busy] * 2, allowed=(62, 63))
    assert load.others == 1
    load = seen(monkeypatch, [times()] * 64, [idle] * 62 + [busy] * 2, allowed=range(62))
    assert load.others == 0


def test_a_moment_too_short_says_nothing(monkeypatch):
    assert seen(monkeypatch, [times()] * 2, [times(user=0.01)] * 2).others is None


def test_where_the_system_is_silent_the_load_average_decides(monkeypatch):
    monkeypatch.setattr(device, "load_average", lambda: (6.0, 6.0, 6.0))
    load = seen(monkeypatch, [times()] * 2, [times()] * 2)
    assert load.others is None
    (caution,) = _load.cautions_now(load)
    assert "more processes wanted to run than the 2 CPU(s) take" in caution.text
    monkeypatch.setattr(device, "load_average", lambda: (1.0, 6.0, 6.0))
    assert not _load.cautions_now(seen(monkeypatch, [times()] * 2, [times()] * 2))


QUIET = _load.Load(0.02, 0.0, None, None, 2)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_others_at_any_time_make_it_unstable(when):
    course = _load.Course(
        **{"before": QUIET, "during": QUIET, "after": QUIET, when: _load.Load(0.5, 0.0, None, None, 2)}
    )
    (caution,) = course.cautions(threads=1)
    assert f"1.0 {when}" in caution.text
    assert not _load.Course(QUIET, QUIET, QUIET).cautions(threads=1)


def quota(root, n_periods, n_stopped):
    root.mkdir(parents=True, exist_ok=True)
    (root / "cpu.stat").write_text(f"usage_usec 5\nnr_periods {n_periods}\nnr_throttled {n_stopped}\n")


@pytest.mark.parametrize(
    ("membership", "folder"),
    [
        ("0::/", "."),
        ("0::/user.slice/me", "user.slice"),  # the parent has the quota
        ("0::/not/in/this/container", "."),
        ("4:memory:/x\n3:cpu,cpuacct:/docker/1\n0::/", "cpu/docker/1"),
    ],
)
def test_a_quota_that_stops_us_is_seen(monkeypatch, tmp_path, membership, folder):
    (tmp_path / "cgroup").write_text(f"{membership}\n")
    monkeypatch.setattr(_throttling, "MEMBERSHIP", tmp_path / "cgroup")
    monkeypatch.setattr(_throttling, "CGROUPS", tmp_path / "fs")
    quota(tmp_path / "fs" / folder, 1000, 10)
    watch = _load.LoadWatch()
    assert not watch.read().is_stopped
    quota(tmp_path / "fs" / folder, 1100, 15)
    load = watch.read()
    assert load.stopped == pytest.approx(0.05)
    (caution,) = _load.Course(QUIET, _load.Load(0.0, 0.0, None, load.stopped), QUIET).cautions(threads=4)
    assert caution.code == "unstable"
    assert "a CPU quota stopped this process in 5% of its periods" in caution.text
    assert "quota" in caution.hint


def test_without_control_groups_there_is_no_quota(monkeypatch, tmp_path):
    monkeypatch.setattr(_throttling, "MEMBERSHIP", tmp_path / "absent")
    assert _throttling.read_periods() == {}
    assert _throttling.stopped_share({}, {}) is None


def test_children_belong_to_us():
    before = _load.own_cpu_s()
    pid = os.fork()
    if pid == 0:
        end = _load.time.process_time() + 0.1
        while _load.time.process_time() < end:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
    assert _load.own_cpu_s() - before >= 0.09
