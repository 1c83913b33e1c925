"""Training: reproducible, resumable, and honest about how its weights came about."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from effaudit import checkpoints, training
from effaudit.assembly import open_data
from effaudit.auditing import run_audit
from effaudit.errors import EffauditError
from effaudit.profile_spec import AuditProfile, TrainingSpec
from effaudit.training import evaluate, parameter_groups, schedule, train, training_order
from effaudit.variants.static_heads import head_importance, prune
from effaudit.version import VERSION
from effaudit.weight_files import TrainedWeights, load_weights
from effaudit.workload import IGNORED_LABEL, Output, Routing
from tests import makers

TSA = {"name": "tsa", "variant": "tsa", "options": {"anneal_to": 0.1}}
PRUNED = {"name": "static_heads", "variant": "static_heads", "init_from": "dense"}


def _train(profile: AuditProfile, folder: Path, *only: str) -> dict[str, TrainedWeights]:
    return {path.stem: load_weights(path) for path in train(profile, folder, only, is_quiet=True)}


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def _stopping_at(step: int) -> Callable[..., Tensor]:
    plain = training._step

    def interrupted(*args: Any) -> Tensor:
        if args[-1] == step:
            raise KeyboardInterrupt
        return plain(*args)

    return interrupted


def _interrupt(profile: AuditProfile, folder: Path, monkeypatch: pytest.MonkeyPatch, *only: str) -> None:
    """Trains until Ctrl-C in step 5, one after the last checkpoint."""
    with monkeypatch.context() as patch:
        patch.setattr(training, "_step", _stopping_at(5))
        with pytest.raises(KeyboardInterrupt):
            train(profile, folder, only, is_quiet=True)


def _refusing(*args: Any) -> Tensor:
    raise AssertionError("a finished model is trained again")


def test_same_seed_gives_the_same_bits(tmp_path: Path) -> None:
    profile = makers.profile("dense", TSA)
    one, other = _train(profile, tmp_path / "a"), _train(profile, tmp_path / "b")
    for name in ("dense", "tsa"):
        assert one[name].sha256 == other[name].sha256
        assert one[name].training.losses == other[name].training.losses
    different = _train(profile.model_copy(update={"seed": 1}), tmp_path / "c", "dense")
    assert different["dense"].sha256 != one["dense"].sha256


def test_interrupted_training_ends_at_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = makers.profile(TSA)  # its dropout draws on the random state
    whole = _train(profile, tmp_path / "whole")["tsa"]
    _interrupt(profile, tmp_path / "cut", monkeypatch)
    checkpoint = tmp_path / "cut" / "tsa.checkpoint.pt"
    assert checkpoint.is_file()
    assert not (tmp_path / "cut" / "tsa.safetensors").exists()
    monkeypatch.setattr(training, "_step", _stopping_at(3))  # steps before the checkpoint are not done again
    resumed = _train(profile, tmp_path / "cut")["tsa"]
    assert resumed.sha256 == whole.sha256
    assert resumed.training.losses == whole.training.losses
    assert resumed.training.evaluations == whole.training.evaluations
    assert (tmp_path / "cut" / "tsa.best.safetensors").read_bytes() == (
        tmp_path / "whole" / "tsa.best.safetensors"
    ).read_bytes()
    assert not checkpoint.exists()


@pytest.mark.parametrize("change", [{"seed": 1}, {"training": {"learning_rate": 1e-3}}])
def test_checkpoint_of_other_settings_is_ignored(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt(makers.profile("dense"), tmp_path / "cut", monkeypatch)
    profile = makers.profile("dense", **change)
    resumed, whole = _train(profile, tmp_path / "cut"), _train(profile, tmp_path / "whole")
    assert resumed["dense"].sha256 == whole["dense"].sha256


def test_checkpoint_from_other_starting_weights_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def profile(dense_steps: int) -> AuditProfile:
        dense = {"name": "dense", "variant": "dense", "training": {"steps": dense_steps}}
        return makers.profile(dense, {**TSA, "init_from": "dense"})

    train(profile(2), tmp_path / "a", is_quiet=True, only=("dense",))
    _interrupt(profile(2), tmp_path / "a", monkeypatch, "tsa")
    resumed, whole = _train(profile(3), tmp_path / "a"), _train(profile(3), tmp_path / "b")
    assert resumed["tsa"].sha256 == whole["tsa"].sha256


def test_finished_models_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = makers.profile("dense", {**TSA, "init_from": "dense"}, {**PRUNED, "options": {"finetune_steps": 2}})
    before = _train(profile, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(training, "_step", _refusing)
        assert {name: w.sha256 for name, w in _train(profile, tmp_path).items()} == {
            name: w.sha256 for name, w in before.items()
        }
    longer = makers.profile("dense", training={"steps": 7})
    assert _train(longer, tmp_path)["dense"].training.steps == 7


def test_an_audit_takes_the_models_that_started_from_one_it_leaves_out(tmp_path: Path) -> None:
    start = {"name": "start", "variant": "dense", "audited": False}
    others = ({"name": "dense", "init_from": "start"}, {**TSA, "init_from": "start"})
    profile = makers.profile(start, *others, audit={"meters": ["flops"]})
    trained = _train(profile, tmp_path / "w")
    assert trained["dense"].training.init_sha256 == trained["tsa"].training.init_sha256 == trained["start"].sha256
    records = run_audit(profile, tmp_path / "run", tmp_path / "w", is_quiet=True)
    assert [record.model.name for record in records] == ["dense", "tsa"]


def test_record_says_how_the_weights_came_about(tmp_path: Path) -> None:
    profile = makers.profile("dense", {**TSA, "init_from": "dense"}, seed=3)
    trained = _train(profile, tmp_path)
    record = trained["tsa"].training
    assert record is not None
    assert (record.effaudit_version, record.seed, record.steps, record.kept) == (VERSION, 3, 6, "last")
    assert (record.init_from, record.init_sha256) == ("dense", trained["dense"].sha256)
    assert (record.dataset, record.data_sha256) == ("copy", open_data(profile).sha256("train"))
    assert record.settings == profile.training.model_dump(mode="json")
    assert [step for step, _ in record.losses] == [1, 6]
    assert [step for step, _, _ in record.evaluations] == [3, 6]
    best = min(record.evaluations, key=lambda e: e[1])
    assert record.best_step == best[0]
    assert all(0 <= accuracy <= 1 for _, _, accuracy in record.evaluations)
    assert record.seconds > 0
    assert trained["dense"].training.init_from is None
    json.loads((tmp_path / "tsa.json").read_text())
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}{kind}{suffix}"
        for name in ("dense", "tsa")
        for kind in ("", ".best")
        for suffix in (".safetensors", ".json")
    }


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    profile = makers.profile("dense", training={"steps": 40, "learning_rate": 0.01, "eval_every": 40})
    record = _train(profile, tmp_path)["dense"].training
    assert record is not None
    assert record.losses[-1][1] < record.losses[0][1] - 0.2


def test_starts_from_another_model(tmp_path: Path) -> None:
    tsa = {**TSA, "init_from": "dense", "training": {"steps": 0}}
    trained = _train(makers.profile(tsa, "dense"), tmp_path)
    dense, adaptive = trained["dense"].state, trained["tsa"].state
    assert all(torch.equal(adaptive[name], value) for name, value in dense.items())
    assert {name.split(".")[0] for name in adaptive.keys() - dense.keys()} == {"routers", "temperature"}


def test_models_wait_for_those_they_start_from() -> None:
    third = {"name": "third", "variant": "tsa", "init_from": "second"}
    second = {"name": "second", "variant": "tsa", "init_from": "first"}
    first = {"name": "first", "variant": "dense"}
    assert [spec.name for spec in training_order(makers.profile(third, second, first))] == ["first", "second", "third"]


def test_circles_are_refused() -> None:
    a = {"name": "a", "variant": "tsa", "init_from": "b"}
    b = {"name": "b", "variant": "tsa", "init_from": "a"}
    with pytest.raises(EffauditError, match="start from each other: a, b"):
        training_order(makers.profile("dense", a, b))


def test_source_must_be_trained_first(tmp_path: Path) -> None:
    profile = makers.profile("dense", {**TSA, "init_from": "dense"})
    with pytest.raises(EffauditError, match="`tsa` starts from `dense`, which is not trained"):
        train(profile, tmp_path, only=("tsa",), is_quiet=True)
    with pytest.raises(EffauditError, match="no `tsaa` among the models of this profile") as caught:
        train(profile, tmp_path, only=("tsaa",), is_quiet=True)
    assert "did you mean `tsa`" in caught.value.hint


def test_pruned_model_without_fine_tuning(tmp_path: Path) -> None:
    profile = makers.profile("dense", PRUNED)
    trained = _train(profile, tmp_path)
    pruned = trained["static_heads"]
    assert pruned.training.steps == 0
    assert pruned.training.losses == ()
    assert [step for step, _, _ in pruned.training.evaluations] == [0]
    dense = training.assemble(profile, profile.models[0], open_data(profile), trained["dense"]).model
    batches = list(open_data(profile).batches("train", 4))
    expected = prune(pruned.config.model_copy(update={"options": {"head_fraction": 0.5}}), dense, batches)
    assert _same(pruned.state, expected.state_dict())
    assert pruned.config.options["kept_heads"] == [list(heads) for heads in expected.kept]
    assert head_importance(dense, batches).shape == (2, 4)


def test_pruned_model_with_fine_tuning(tmp_path: Path) -> None:
    tuned = {**PRUNED, "name": "tuned", "options": {"finetune_steps": 4}}
    trained = _train(makers.profile("dense", PRUNED, tuned), tmp_path)
    assert trained["tuned"].training.steps == 4
    assert trained["tuned"].config.options["kept_heads"] == trained["static_heads"].config.options["kept_heads"]
    assert not _same(trained["tuned"].state, trained["static_heads"].state)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_best_and_last_are_kept(keep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    qualities = iter([training.Quality(1.0, 0.5), training.Quality(2.0, 0.9)])
    seen: list[dict[str, Tensor]] = []

    def fake(model: nn.Module, *args: Any) -> training.Quality:
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        return next(qualities)

    monkeypatch.setattr(training, "evaluate", fake)
    trained = _train(makers.profile("dense", training={"keep": keep}), tmp_path)["dense"]
    other = load_weights(tmp_path / f"dense.{'last' if keep == 'best' else 'best'}.safetensors")
    best, last = (trained, other) if keep == "best" else (other, trained)
    assert _same(best.state, seen[0])
    assert _same(last.state, seen[1])
    assert (best.training.kept, last.training.kept) == ("best", "last")
    assert trained.training.best_step == 3


def test_loss_that_is_not_finite_stops_with_a_message(tmp_path: Path) -> None:
    settings = {"learning_rate": 1e30, "clip": None, "warmup_steps": 0}
    with pytest.raises(EffauditError, match="training of `dense` stopped: the loss is nan at step") as caught:
        train(makers.profile("dense", training=settings), tmp_path, is_quiet=True)
    assert "learning_rate" in caught.value.hint
    assert not (tmp_path / "dense.safetensors").exists()


def test_weights_ruined_by_the_last_step_are_not_saved(tmp_path: Path) -> None:
    settings = {"learning_rate": 1e30, "clip": None, "warmup_steps": 0, "steps": 1}
    with pytest.raises(EffauditError, match="the loss is nan at step 1"):
        train(makers.profile("dense", training=settings), tmp_path, is_quiet=True)
    assert not (tmp_path / "dense.safetensors").exists()


def test_unwritable_folder_is_said_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EffauditError, match="cannot write to"):
        train(makers.profile("dense"), tmp_path / "file" / "below", is_quiet=True)


def test_full_disk_leaves_the_checkpoint_that_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(EffauditError, match=r"cannot write checkpoint .*No space left"):
        train(makers.profile("dense"), tmp_path, is_quiet=True)
    assert not list(tmp_path.iterdir())


def test_model_that_would_stay_random_is_refused(tmp_path: Path) -> None:
    alone = {"name": "pruned", "variant": "static_heads"}  # finetune_steps 0, whatever `steps` says
    for profile in (makers.profile("dense", alone), makers.profile("dense", training={"steps": 0})):
        with pytest.raises(EffauditError, match="would stay random") as caught:
            train(profile, tmp_path, is_quiet=True)
        assert "init_from" in caught.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["best", "last"])
def test_names_of_kept_weights_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(EffauditError, match=f"the {kind} weights of `dense`"):
        train(makers.profile("dense", {"name": f"dense.{kind}", "variant": "dense"}), tmp_path, is_quiet=True)


def test_damaged_checkpoint_is_said(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04half", b"text"):
        (tmp_path / "dense.checkpoint.pt").write_bytes(content)
        with pytest.raises(EffauditError, match="is damaged") as caught:
            train(makers.profile("dense"), tmp_path, is_quiet=True)
        assert "delete it" in caught.value.hint


def test_checkpoint_keeps_the_random_state_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        state = torch.tensor([7], dtype=torch.uint8)

        def get_rng_state(self) -> Tensor:
            return self.state

        def set_rng_state(self, state: Tensor) -> None:
            self.state = state

    own = Own()
    monkeypatch.setattr(checkpoints, "_accelerator", lambda model: own)
    _interrupt(makers.profile("dense"), tmp_path, monkeypatch)
    own.state = torch.tensor([8], dtype=torch.uint8)
    _train(makers.profile("dense"), tmp_path)
    assert own.state.tolist() == [7]


def test_what_is_odd_about_the_data_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.csv"
    table.write_text("text,label\n" + "nine words are more than eight tokens can hold,one\n" * 40)
    data = {"dataset": f"table:{table}", "options": {}}
    train(makers.profile("dense", {**TSA, "init_from": "dense"}, data=data, training={"steps": 1}), tmp_path / "w")
    told = capsys.readouterr().err
    assert told.count("examples of train are `one`") == 1
    assert "longer than 8 tokens and cut" in told


def test_threads_are_put_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    train(makers.profile("dense", audit={"threads": before + 1}, training={"steps": 1}), tmp_path, is_quiet=True)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("constant", {0: 0.25, 3: 1, 4: 1, 54: 1, 103: 1}),
        ("linear", {0: 0.25, 1: 0.5, 3: 1, 4: 1, 54: 0.55, 104: 0.1}),
        ("cosine", {0: 0.25, 3: 1, 4: 1, 54: 0.55, 104: 0.1}),
    ],
)
def test_schedules(name: Any, factors: dict[int, float]) -> None:
    """Four steps of warm-up, then a hundred down to a tenth."""
    settings = TrainingSpec(steps=104, warmup_steps=4, schedule=name, min_lr_fraction=0.1)
    for step, factor in factors.items():
        assert schedule(settings, step) == pytest.approx(factor)


@pytest.mark.parametrize("variant", ["dense", "tsa", "early_exit", "budgetformer", "static_heads"])
def test_weight_decay_on_matrices_only(variant: str) -> None:
    model = makers.build(makers.config(variant))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, free = parameter_groups(model, TrainingSpec(weight_decay=0.3))
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.3, 0)
    found = {names[id(p)]: group is decayed for group in (decayed, free) for p in group["params"]}
    assert found.keys() == set(names.values())
    for name, is_decayed in found.items():
        is_matrix = name.endswith("weight") and "norm" not in name and name not in ("embed.weight", "position.weight")
        assert is_decayed == is_matrix, name


def test_decay_of_all(tmp_path: Path) -> None:
    decayed, free = parameter_groups(makers.build(makers.config("dense")), TrainingSpec(decay_all=True))
    assert not free["params"]
    assert len(decayed["params"]) == len(list(makers.build(makers.config("dense")).parameters()))
    train(makers.profile("dense", training={"decay_all": True, "steps": 1}), tmp_path, is_quiet=True)


def test_evaluation_weighs_by_what_is_asked() -> None:
    class Even(nn.Module):
        def forward(self, batch: Any) -> Output:
            return Output(torch.zeros(*batch.labels.shape, 4), Routing())

    batches = [makers.batch("causal_lm", lengths) for lengths in ((4, 2), (1,))]
    for one in batches:
        one.labels.clamp_(max=1)  # answers 0 (right for even logits), 1 and ignored
    asked = torch.cat([one.labels.flatten() for one in batches])
    asked = asked[asked != IGNORED_LABEL]
    quality = evaluate(Even(), batches, torch.device("cpu"))
    assert quality.loss == pytest.approx(torch.tensor(4.0).log().item())
    assert quality.accuracy == pytest.approx((asked == 0).double().mean().item())
    with pytest.raises(EffauditError, match="nothing to evaluate on"):
        evaluate(Even(), [], torch.device("cpu"))
