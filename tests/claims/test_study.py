"""A study of small profiles, really trained and audited: resumed, not repeated, renewed when a profile changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from effaudit.claims import results as results_module
from effaudit.claims import study as study_module
from effaudit.claims.page import render
from effaudit.claims.results import results
from effaudit.claims.study import Study, open_study
from effaudit.claims.text import console, markdown
from effaudit.errors import EffauditError
from effaudit.profile_spec import builtin_profiles, load_profile

TASK = {
    "name": "tsa_copy",
    "seeds": [1],
    "data": {
        "dataset": "copy",
        "max_tokens": 16,
        "batch_size": 8,
        "options": {"length": 3, "n_train": 16, "n_calibration": 8, "n_test": 16},
    },
    "size": {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 16, "dropout": 0.0},
    "models": ["dense", {"name": "lambda_0.01", "variant": "tsa", "options": {"lambda": 0.01}}],
    "audit": {"meters": ["routing", "quality", "flops"]},
    "training": {"steps": 2, "batch_size": 8, "eval_examples": 8},
}


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of claims profiles in place of the built-in ones; runs go below the test's own folder."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "tsa_copy.yaml").write_text(yaml.safe_dump(TASK), encoding="utf-8")

    def listed(name: str = "") -> dict[str, Path]:
        return {path.stem: path for path in folder.glob("*.yaml")} if name == study_module.PROFILES else {}

    monkeypatch.setattr(study_module, "builtin_profiles", listed)
    monkeypatch.chdir(tmp_path)
    return folder


def finished(study: Study) -> list[str]:
    return [unit.name for unit in study.run(1, "cpu", is_quiet=True)]


def test_what_is_done_is_not_done_again_and_what_changed_is(profiles: Path) -> None:
    assert finished(open_study(None, seeds=[0])) == ["tsa_copy, seed 0"]
    study = open_study(None)
    assert [unit.name for unit in study.waiting()] == ["tsa_copy, seed 1"]
    assert finished(study) == ["tsa_copy, seed 1"]
    assert finished(open_study(None)) == []
    (profiles / "tsa_copy.yaml").write_text(yaml.safe_dump({**TASK, "description": "other words"}), encoding="utf-8")
    assert open_study(None).waiting() == []
    changed = {**TASK, "training": {**TASK["training"], "steps": 3}}  # type: ignore[dict-item]
    (profiles / "tsa_copy.yaml").write_text(yaml.safe_dump(changed), encoding="utf-8")
    assert len(open_study(None).waiting()) == 2


def test_a_unit_has_its_models_soft_and_untrained_beside_its_own(profiles: Path) -> None:
    study = open_study(None, seeds=[1])
    finished(study)
    (records,) = study.evidence("tsa_copy").by_seed.values()
    assert set(records) == {"dense", "lambda_0.01", "lambda_0.01 (soft)", "lambda_0.01 (untrained)"}
    own, soft = records["lambda_0.01"], records["lambda_0.01 (soft)"]
    assert own.seed == 1
    assert own.model.weights_sha256 == soft.model.weights_sha256
    assert soft.value("routing.tlops_saved") == 0
    assert records["lambda_0.01 (untrained)"].model.weights_sha256 is None
    assert own.examples == "lambda_0.01.examples.csv.gz"
    assert own.table is not None
    assert own.table.mean("loss") == pytest.approx(own.value("quality.loss"), rel=1e-6)
    found = results(study)
    skips = next(f for f in found.findings if f.subject == "TSA, copy")
    assert (skips.n_seeds, skips.verdict) == (1, "cannot be told")
    assert [m.unit for m in found.missing] == ["tsa_copy, seed 0"]
    for page in (markdown(found), console(found), render(found)):
        assert "1 of at least 3 seeds so far" in " ".join(page.split())
    assert max(map(len, console(found).splitlines())) <= 80


def test_a_training_that_fails_is_said(profiles: Path) -> None:
    broken = {**TASK, "training": {**TASK["training"], "learning_rate": 1e30}}  # type: ignore[dict-item]
    (profiles / "tsa_copy.yaml").write_text(yaml.safe_dump(broken), encoding="utf-8")
    with pytest.raises(EffauditError, match="a training failed"):
        finished(open_study(None))


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "ag-news").mkdir()
    obstacles = {unit.path.stem: unit.obstacle for unit in open_study(tmp_path).units}
    assert obstacles["tsa_copy"] == obstacles["budgetformer_ag_news"] == ""
    assert obstacles["budgetformer_snli"] == f"no folder `snli` or `snli` in `{tmp_path}`"
    assert {u.obstacle for u in open_study(None).units if u.path.stem == "tsa_characters"} == {
        "needs the data of `tiny_shakespeare` (--data FOLDER)"
    }


def test_the_published_size_takes_a_gpu(tmp_path: Path) -> None:
    for name in ("ag-news", "tiny-shakespeare"):
        (tmp_path / name).mkdir()
    large = set(builtin_profiles(study_module.AT_PUBLISHED_SIZE))
    assert large == set(results_module.LARGE)
    on_cpu = {unit.obstacle for unit in open_study(tmp_path).units if unit.path.stem in large}
    assert on_cpu == {"not run at the published size: no CUDA device (--device cuda)"}
    on_cuda = [unit for unit in open_study(tmp_path, device="cuda").units if unit.path.stem in large]
    assert {unit.obstacle for unit in on_cuda} == {""}
    assert {unit.profile.audit.device for unit in on_cuda} == {"cuda"}


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(EffauditError, match="no claims profile `tsa_cpy`"):
        open_study(None, only=["tsa_cpy"])


@pytest.mark.parametrize("path", [p for f in ("claims", "claims/published_size") for p in builtin_profiles(f).values()])
def test_every_profile_of_a_claim_names_three_seeds(path: Path) -> None:
    profile = load_profile(path)
    assert len({profile.seed, *profile.seeds}) == 3
    assert profile.name == path.stem


def test_the_command_shows_what_is_there(cli, profiles: Path) -> None:  # type: ignore[no-untyped-def]
    answer = cli("claims", "--seed", "0", "--quiet")
    assert answer.code == 0
    assert "1 of at least 3 seeds so far" in " ".join(answer.out.split())
    assert (Path("reports/claims") / "claims.md").is_file()
    assert (Path("reports/claims") / "report.html").is_file()
    before = json.dumps(sorted(str(p) for p in Path("reports").rglob("*.json")))
    assert cli("claims", "--show", "--quiet").out.strip().endswith("cannot be told")
    assert json.dumps(sorted(str(p) for p in Path("reports").rglob("*.json"))) == before
