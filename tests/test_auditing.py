"""A whole audit of tiny models: what is saved, when, and what an interruption leaves."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from effaudit import auditing, break_even, plugins, workloads
from effaudit.auditing import prepare_folder, run_audit
from effaudit.errors import EffauditError
from effaudit.kernels import library
from effaudit.meters import flops, quality
from effaudit.profile_spec import METERS as METER_ORDER
from effaudit.record import AuditRecord, Findings, load_record
from effaudit.training import train
from effaudit.variants._policy import Cost
from effaudit.workload import Batch
from effaudit.workloads import Stream
from tests import makers
from tests.fakes_records import figure

N_TEST, N_TOKENS, BATCH = 10, 8, 4  # as makers.profile has them
MODELS = ("dense", "tsa", {"name": "exits", "variant": "early_exit", "options": {"threshold": 0.0}})
METERS = ("flops", "quality", "routing")


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[AuditRecord]]:
    """One audit of three models without weights."""
    folder = tmp_path_factory.mktemp("audit") / "run"
    return folder, run_audit(makers.profile(*MODELS, audit={"meters": METERS}), folder, is_quiet=True)


def test_records_are_saved_and_read_back(audit: tuple[Path, list[AuditRecord]]) -> None:
    folder, records = audit
    assert [record.model.name for record in records] == ["dense", "tsa", "exits"]
    assert {path.name for path in folder.iterdir()} == {
        f"{name}{suffix}" for name in ("dense", "tsa", "exits") for suffix in (".json", ".examples.csv")
    }
    for record in records:
        path = folder / f"{record.model.name}.json"
        assert load_record(path) == record
        text = path.read_text()
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_workload_counts(audit: tuple[Path, list[AuditRecord]]) -> None:
    for record in audit[1]:
        workload = record.workload
        assert (workload.n_examples, workload.n_tokens, workload.n_padding) == (N_TEST, N_TEST * N_TOKENS, 0)
        assert (workload.dataset, workload.split, workload.batch_size) == ("copy", "test", BATCH)
        assert workload == audit[1][0].workload


def test_measurements_of_all_meters(audit: tuple[Path, list[AuditRecord]]) -> None:
    for record in audit[1]:
        names = [m.name for m in record.measurements]
        assert len(set(names)) == len(names)
        first = [name.partition(".")[0] for name in names if name != "params" and "macs" not in name]
        assert list(dict.fromkeys(first)) == ["routing", "quality", "flops"]  # in the order of METERS
        assert record.value("params") == record.model.n_params
        assert record.value("flops.executed") == 2 * record.value("macs.executed")
        assert 0 <= record.value("quality.accuracy") <= 1
        assert [row.layer for row in record.layers] == [1, 2]
        assert record.modules[0].path == ""
        assert record.modules[0].flops == record.value("flops.executed")
    dense, tsa, exits = audit[1]
    assert dense.value("flops.executed") == dense.value("flops.dense") == tsa.value("flops.dense")
    assert dense["routing.alpha_hard"].value is None
    assert tsa.value("routing.alpha_hard") == 1
    assert tsa.value("routing.tlops_saved") == 0
    assert exits.value("routing.exit_layer") == 1
    assert exits.value("routing.tlops_saved") == 1 / 2
    assert exits.value("flops.executed") == exits.value("flops.routed") < dense.value("flops.executed")
    assert not any(c.code == "formula_mismatch" for record in audit[1] for c in record.cautions)


def test_latency_runs_first_so_that_first_is_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    cold: list[bool] = []

    def noted(name: str) -> Any:
        def measure(works: Any, settings: Any) -> list[Findings]:
            ran.append(name)
            cold.extend(work.is_cold for work in works)
            for work in works:
                work.run(next(iter(work.batches())))
            return [Findings(measurements=(figure(name, 1),)) for _ in works]

        return measure

    for name in plugins.names("meters"):
        monkeypatch.setattr(plugins.load("meters", name), "measure", noted(name))
    records = run_audit(makers.profile("dense", "tsa", audit={"meters": METER_ORDER}), tmp_path, is_quiet=True)
    assert ran[0] == "latency"
    assert cold[:2] == [True, True]
    assert not any(cold[2:])
    for record in records:
        assert [m.name for m in record.measurements] == list(METER_ORDER)  # as ever in the record


def test_the_own_kernel_is_compiled_before_any_first_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    real = plugins.load("meters", "latency").measure
    monkeypatch.setattr(library, "library", lambda: done.append("kernel"))
    monkeypatch.setattr(
        plugins.load("meters", "latency"), "measure", lambda *given: done.append("latency") or real(*given)
    )
    settings = {"meters": ("latency",), "rounds": 2, "max_seconds": 0.02}
    run_audit(makers.profile("dense", audit=settings), tmp_path, is_quiet=True)
    assert "kernel" in done[: done.index("latency")]


def test_passes_beside_those_of_the_meters_are_announced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    controls = {"kinds": ("random",), "draws": 1}
    match = [{"model": "tsa", "to": "dense", "examples": 4}]
    for name, models, asked, told in (
        ("matched", ("dense", "tsa"), {"match": match, "controls": controls}, "matching, controls"),
        ("dense", ("dense",), {"controls": controls}, None),  # which has no gates to control
    ):
        run_audit(makers.profile(*models, audit={"meters": ("quality",)}, **asked), tmp_path / name)
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("passes of their own")]
        assert said == ([f"passes of their own, beside those of the meters: {told}"] if told else [])


def test_timings_above_the_peak_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([1e30, 1.0])
    monkeypatch.setattr(auditing.peak, "estimate", lambda device, dtype: next(peaks))
    settings = {"meters": ("latency", "flops"), "rounds": 2, "max_seconds": 0.02}
    for name, is_marked in (("fine", False), ("wrong", True)):
        (record,) = run_audit(makers.profile("dense", audit=settings), tmp_path / name, is_quiet=True)
        codes = {m.name: "implausible" in [caution.code for caution in m.cautions] for m in record.measurements}
        assert record.environment.peak_flop_per_s == (1.0 if is_marked else 1e30)
        assert codes["latency.p50"] is codes["throughput.tokens"] is is_marked
        assert not codes["flops.executed"]
    models = ("dense", {"name": "half", "variant": "dense", "run": {"dtype": "bfloat16"}})
    monkeypatch.setattr(auditing.peak, "estimate", lambda device, dtype: {"float32": 1e30, "bfloat16": 2e30}[dtype])
    records = run_audit(makers.profile(*models, audit=settings), tmp_path / "types", is_quiet=True)
    assert [record.environment.peak_flop_per_s for record in records] == [1e30, 2e30]  # each in its own type
    monkeypatch.setattr(auditing.peak, "estimate", lambda device, dtype: 1.0)
    quantised = {"name": "int8", "variant": "dense", "run": {"quantize": "int8"}}  # faster than any peak of its dtype
    (record,) = run_audit(makers.profile(quantised, audit=settings), tmp_path / "int8", is_quiet=True)
    assert record.environment.peak_flop_per_s is None
    quick = makers.profile("dense", audit={**settings, "meters": ("latency",)})  # nothing to hold against a peak
    (record,) = run_audit(quick, tmp_path / "alone", is_quiet=True)
    assert record.environment.peak_flop_per_s is None


def test_a_whole_audit_asks_no_network_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an empty folder, with an empty home and an empty place for temporary files."""

    def refuse(*_: object) -> None:
        raise AssertionError("an audit asked the network")

    def state() -> tuple[object, ...]:
        signals = [signal.getsignal(number) for number in signal.valid_signals()]
        return signals, threading.enumerate(), dict(os.environ), torch.get_num_threads(), gc.isenabled()

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in ("here", "home", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    settings = {"meters": METER_ORDER, "rounds": 2, "max_seconds": 0.05, "energy_window_s": 0.1, "threads": 2}
    before = state()
    (record,) = run_audit(makers.profile("tsa", audit=settings), tmp_path / "out", is_quiet=True)
    assert state() == before
    assert record["emissions"].value is None
    assert [path.name for path in tmp_path.rglob("*") if not path.is_dir() and path.parent.name != "out"] == []
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tsa.json", "tsa.examples.csv"}


def test_record_describes_model_profile_and_machine(audit: tuple[Path, list[AuditRecord]]) -> None:
    exits = audit[1][2]
    assert exits.model.variant == "early_exit"
    assert exits.model.options["threshold"] == 0.0
    assert exits.model.options["state"] == "copy"  # resolved, though the profile says nothing
    assert exits.model.weights_sha256 is None
    assert [caution.code for caution in exits.cautions] == ["untrained"]
    assert (exits.environment.device, exits.environment.threads) == ("cpu", 1)
    again = makers.profile(*MODELS, audit={"meters": METERS})
    assert exits.profile == again.model_dump(mode="json")


def test_examples_of_meters_are_joined(audit: tuple[Path, list[AuditRecord]]) -> None:
    folder, records = audit
    for record in records:
        table = record.table
        assert table is not None
        assert table.path == folder / f"{record.model.name}.examples.csv"
        assert table["index"].tolist() == list(range(N_TEST))
        assert table["flops_routed"].sum() == record.value("flops.routed")
        assert table["loss"].mean() == pytest.approx(record.value("quality.loss"))
        assert set(table["n_tokens"]) == {N_TOKENS}
        mean_exit = record.value("routing.exit_layer")
        assert ("exit_layer" in table) == (mean_exit is not None)
        if mean_exit is not None:
            assert table["exit_layer"].mean() == pytest.approx(mean_exit)


def test_audit_with_weights_says_which(tmp_path: Path) -> None:
    profile = makers.profile("dense", training={"steps": 1})
    train(profile, tmp_path / "weights", is_quiet=True)
    (record,) = run_audit(profile, tmp_path / "run", tmp_path / "weights", is_quiet=True)
    assert record.model.weights_sha256 is not None
    assert record.model.training is not None
    assert record.model.training["steps"] == 1
    assert "losses" not in record.model.training
    assert not record.cautions


def test_limit_and_split_are_kept_to(tmp_path: Path) -> None:
    profile = makers.profile("dense", data={"limit": 3, "split": "calibration"})
    (record,) = run_audit(profile, tmp_path, is_quiet=True)
    assert (record.workload.n_examples, record.workload.split) == (3, "calibration")


def test_records_are_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = makers.profile("dense", audit={"meters": ("quality",)})
    run_audit(profile, tmp_path, is_quiet=True)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(quality, "measure", lambda works, settings: pytest.fail("measured in vain"))
    with pytest.raises(EffauditError, match="has a record of `dense` already"):
        run_audit(profile.model_copy(update={"seed": 1}), tmp_path, is_quiet=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_saved_before_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while the second record is saved leaves the first."""
    plain, saved = auditing.save_record, []

    def failing(record: AuditRecord, path: Path) -> None:
        if saved:
            raise EffauditError("cannot write")
        plain(record, path)
        saved.append(path)

    monkeypatch.setattr(auditing, "save_record", failing)
    with pytest.raises(EffauditError, match="cannot write"):
        run_audit(makers.profile("dense", "tsa", audit={"meters": ("routing",)}), tmp_path, is_quiet=True)
    assert load_record(saved[0]).model.name == "dense"


def test_interruption_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(works: Any, settings: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(flops, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_audit(makers.profile("dense", "tsa", audit={"meters": METERS}), tmp_path, is_quiet=True)
    for name in ("dense", "tsa"):
        record = load_record(tmp_path / f"{name}.json")
        assert "interrupted" in [caution.code for caution in record.cautions]
        assert record.value("quality.loss") is not None
        assert record.get("flops.executed") is None


def test_interruption_before_any_figure_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(works: Any, settings: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(quality, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_audit(makers.profile("dense", audit={"meters": ("quality",)}), tmp_path, is_quiet=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_models_run_in_the_dtype_asked_for(dtype: str, tmp_path: Path) -> None:
    (record,) = run_audit(makers.profile("tsa", audit={"dtype": dtype}), tmp_path, is_quiet=True)
    assert record.environment.dtype == dtype
    assert record.value("quality.loss") is not None


def test_threads_are_those_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    plain = quality.measure

    def noted(works: Any, settings: Any) -> Any:
        seen.append(torch.get_num_threads())
        return plain(works, settings)

    monkeypatch.setattr(quality, "measure", noted)
    before = torch.get_num_threads()
    run_audit(makers.profile("dense", audit={"meters": ("quality",), "threads": 2}), tmp_path, is_quiet=True)
    assert (seen, torch.get_num_threads()) == ([2], before)


def test_progress_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_audit(makers.profile("dense", audit={"meters": ("routing",)}), tmp_path)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "audit: 1/1" in captured.err


def test_unwritable_folder_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "load_all", lambda *args: pytest.fail("worked first"))
    (tmp_path / "file").write_text("")
    with pytest.raises(EffauditError, match="cannot write to") as caught:
        run_audit(makers.profile("dense"), tmp_path / "file" / "below", is_quiet=True)
    assert "--out" in caught.value.hint


def test_prepared_folder_is_empty(tmp_path: Path) -> None:
    assert prepare_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert not list((tmp_path / "a" / "b").iterdir())


class _Source:
    def __init__(self, *sizes: int) -> None:
        self.sizes, self.n_opened = sizes, 0

    def __call__(self) -> Iterator[Batch]:
        self.n_opened += 1
        for i, n in enumerate(self.sizes):
            yield makers.batch(lengths=(5,) * n, seed=i)


def _tokens(stream: Stream) -> list[list[list[int]]]:
    return [batch.tokens.tolist() for batch in stream()]


@pytest.mark.parametrize(("n_kept", "n_opened"), [(1000, 1), (5 * 3, 1), (5 * 3 - 1, 3)])
def test_stream_is_the_same_kept_or_read_again(n_kept: int, n_opened: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "CACHED_TOKENS", n_kept)
    source = _Source(2, 1)
    expected = [batch.tokens.tolist() for batch in source()]
    source.n_opened = 0
    stream = Stream(source, torch.device("cpu"))
    assert [_tokens(stream) for _ in range(3)] == [expected] * 3
    assert source.n_opened == n_opened


def test_stream_left_early_starts_anew() -> None:
    source = _Source(1, 1, 1)
    stream = Stream(source, torch.device("cpu"))
    next(stream())
    assert len(_tokens(stream)) == len(_tokens(stream)) == 3
    assert source.n_opened == 2


def test_auto_says_what_it_chose_for_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never = Cost(2, 0, 0, 1)
    monkeypatch.setattr(break_even, "cost_of", lambda trials, seconds: never)
    tsa = {"name": "tsa", "options": {"execution": "auto", "threshold": 0.0}}
    (record,) = run_audit(makers.profile(tsa, audit={"meters": METERS}), tmp_path, is_quiet=True)
    assert len(record.choices) == -(-N_TEST // BATCH)
    assert {len(word) for choice in record.choices for word in choice.split("/")} == {len(record.layers)}
    assert set(record.choices) == {"s" + "m" * (len(record.layers) - 1)}
    assert (record.value("routing.alpha_hard"), record.value("routing.tlops_saved")) == (0, 0)
    assert "formula_mismatch" not in [caution.code for caution in record.cautions]
    assert load_record(tmp_path / "tsa.json").choices == record.choices
