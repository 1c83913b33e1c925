from pathlib import Path
from typing import Any

import pytest

from effaudit.errors import EffauditError
from effaudit.overrides import Overrides, apply
from effaudit.profile_spec import AuditProfile, AuditSpec, DataSpec, validated

TABLE = {"dataset": "table:old.csv", "options": {"text": "body"}, "limit": 5}


def profile(**changes: Any) -> AuditProfile:
    models = ["dense", {"name": "tsa", "init_from": "dense", "options": {"mode": "ffn"}}]
    return validated(AuditProfile, {"name": "p", "models": models, **changes}, "p")


def with_data(text: str, **data: Any) -> DataSpec:
    return apply(profile(data=data), Overrides(data=text)).data


def test_nothing_said_changes_nothing() -> None:
    assert apply(profile(), Overrides()) == profile()


def test_values_replace_those_of_the_profile() -> None:
    changed = apply(
        profile(),
        Overrides(
            device="cpu",
            dtype="bfloat16",
            batch_size=2,
            limit=3,
            threads=4,
            seed=5,
            meters=["flops"],
            country="USA",
            region="texas",
            intensity=6.5,
            pue=1.25,
            max_seconds=7.5,
        ),
    )
    assert (changed.data.batch_size, changed.data.limit, changed.seed) == (2, 3, 5)
    audit = changed.audit
    assert (audit.device, audit.dtype, audit.threads, audit.meters) == ("cpu", "bfloat16", 4, ("flops",))
    assert (audit.country, audit.region, audit.intensity) == ("USA", "texas", 6.5)
    assert (audit.pue, audit.max_seconds) == (1.25, 7.5)


def test_another_country_leaves_the_region_of_the_profile_behind() -> None:
    at_home = profile().model_copy(update={"audit": AuditSpec(country="USA", region="texas")})
    assert apply(at_home, Overrides()).audit.region == "texas"
    assert apply(at_home, Overrides(region="ohio")).audit.region == "ohio"
    abroad = apply(at_home, Overrides(country="FRA")).audit
    assert (abroad.country, abroad.region) == ("FRA", None)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["tsa"], [("tsa", {"mode": "ffn"})]),
        (["tsa:mode=ffn+query,threshold=0.25"], [("tsa", {"mode": "ffn+query", "threshold": 0.25})]),
        (["tsa:lambda=1e-3"], [("tsa", {"mode": "ffn", "lambda": "1e-3"})]),
        (["tsa", "dense"], [("tsa", {"mode": "ffn"}), ("dense", {})]),
        (
            ["tsa", "tsa:mode=soft", "tsa:mode=ffn+query"],
            [
                ("tsa", {"mode": "ffn"}),
                ("tsa-mode-soft", {"mode": "soft"}),
                ("tsa-mode-ffn+query", {"mode": "ffn+query"}),
            ],
        ),
        (["early_exit:state=oracle"], [("early_exit", {"state": "oracle"})]),
        (
            ["static_heads:kept_heads=[[0, 1], [2]],head_fraction=0.5"],
            [("static_heads", {"kept_heads": [[0, 1], [2]], "head_fraction": 0.5})],
        ),
    ],
)
def test_models_are_picked_with_their_options(texts: list[str], expected: list[tuple[str, dict[str, Any]]]) -> None:
    models = apply(profile(), Overrides(models=texts)).models
    assert [(spec.name, spec.options) for spec in models] == expected
    assert AuditProfile.model_validate(apply(profile(), Overrides(models=texts)).model_dump())  # may be run again


def test_one_model_may_be_given_as_a_string() -> None:
    assert [spec.name for spec in apply(profile(), Overrides(models="tsa")).models] == ["tsa"]


def test_a_variant_means_the_only_model_of_that_variant() -> None:
    named = [{"name": "ours", "variant": "tsa"}, "dense"]
    assert [m.name for m in apply(profile(models=named), Overrides(models=["tsa"])).models] == ["ours"]
    several = [{"name": "a", "variant": "tsa"}, {"name": "b", "variant": "tsa"}]
    with pytest.raises(EffauditError, match="several models of variant `tsa`") as caught:
        apply(profile(models=several), Overrides(models=["tsa"]))
    assert caught.value.hint == "name `a` or `b`"


def test_the_model_that_one_starts_from_is_kept_only_if_it_is_picked() -> None:
    assert apply(profile(), Overrides(models=["tsa"])).models[0].init_from is None
    assert apply(profile(), Overrides(models=["tsa", "dense"])).models[0].init_from == "dense"


START = [
    {"name": "start", "variant": "dense", "audited": False},
    {"name": "dense", "init_from": "start"},
    {"name": "tsa", "init_from": "start"},
]


def test_a_model_that_others_start_from_stays_known_and_is_audited_only_when_named() -> None:
    started = profile(models=START)
    assert [m.name for m in apply(started, Overrides()).models] == ["dense", "tsa", "start"]
    assert [m.name for m in apply(started, Overrides()).audited_models] == ["dense", "tsa"]
    picked = apply(started, Overrides(models=["tsa"]))
    assert ([m.name for m in picked.audited_models], picked.models[0].init_from) == (["tsa"], "start")
    assert [m.name for m in apply(started, Overrides(models=["start"])).audited_models] == ["start"]


def test_some_model_must_be_audited() -> None:
    with pytest.raises(EffauditError, match="no model is audited"):
        profile(models=START[:1])


def test_data_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("t.csv", "t.jsonl.gz", "t.txt"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    sizes = {"dataset": "graded", "options": {"n_test": 9}}
    assert with_data("graded", **sizes).options == {"n_test": 9}
    assert with_data("copy", **sizes) == DataSpec(dataset="copy")
    assert with_data("t.csv", **sizes) == DataSpec(dataset="table:t.csv")
    assert with_data("t.txt", **sizes) == DataSpec(dataset="chars:t.txt")
    assert with_data("table:any.dat") == DataSpec(dataset="table:any.dat")
    assert with_data("t.jsonl.gz", **TABLE) == DataSpec(dataset="table:t.jsonl.gz", options={"text": "body"}, limit=5)
    assert with_data("folder", **TABLE).dataset == "table:folder"
    assert with_data("folder", dataset="ag_news") == DataSpec(dataset="ag_news", path="folder")
    assert with_data("ag_news:folder", **sizes) == DataSpec(dataset="ag_news", path="folder")


def test_given_weights_are_found_by_the_name_they_were_trained_under(tmp_path: Path) -> None:
    file = tmp_path / "tsa.safetensors"
    file.touch()
    picks = Overrides(models=["tsa:mode=soft", "tsa:mode=ffn"], weights=tmp_path)
    assert [spec.weights for spec in apply(profile(), picks).models] == [str(file), str(file)]
    one = apply(profile(), Overrides(models=["dense"], weights=file)).models[0]
    assert one.weights == str(file)


def test_weights_of_models_that_bring_their_own_are_refused() -> None:
    with pytest.raises(EffauditError, match="--weights is of models that are trained here"):
        apply(profile(), Overrides(models=["hf:folder", "python:mine:factory"], weights="x"))


def test_weights_trained_here_are_found_for_a_pick_of_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("reports/weights/p/tsa.safetensors")
    file.parent.mkdir(parents=True)
    file.touch()
    picks = apply(profile(), Overrides(models=["tsa", "tsa:mode=soft"])).models
    assert [spec.weights for spec in picks] == [None, str(file)]


MATCHED = {"model": "early_exit", "to": "tsa", "by": "tlops"}


def _matching() -> AuditProfile:
    trained = {"tsa": "early_exit"}
    drawn = {"name": "early_exit", "options": {"routing": "random_fixed"}}
    return profile(models=["dense", "tsa", drawn], match=[MATCHED], controls={"trained": trained})


def test_a_control_that_is_none_is_refused() -> None:
    with pytest.raises(EffauditError, match="`early_exit` is not trained under fixed random routing"):
        profile(models=["dense", "tsa", "early_exit"], controls={"trained": {"tsa": "early_exit"}})


def test_match_replaces_that_of_the_profile() -> None:
    (spec,) = apply(_matching(), Overrides(match=["tsa=dense:latency:threshold"])).match
    assert (spec.model, spec.to, spec.by, spec.knob) == ("tsa", "dense", "latency", "threshold")
    (spec,) = apply(_matching(), Overrides(match=["tsa=dense"])).match
    assert (spec.by, spec.knob) == ("flops", None)


@pytest.mark.parametrize(
    ("models", "n_matches", "n_trained"),
    [((), 1, 1), (("tsa",), 0, 0), (("tsa", "early_exit"), 1, 1), (("tsa", "early_exit:threshold=0.3"), 0, 1)],
)
def test_pairs_stay_where_both_are_audited_as_configured(
    models: tuple[str, ...], n_matches: int, n_trained: int
) -> None:
    found = apply(_matching(), Overrides(models=models))
    assert found.controls is not None
    assert (len(found.match), len(found.controls.trained)) == (n_matches, n_trained)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tsa", "is not MODEL=OTHER"),
        ("tsa=dense:flops:threshold:x", "is not MODEL=OTHER"),
        ("tsa=tsa", "cannot be matched to itself"),
        ("tsa=dnse", "no `dnse` among the audited models"),
        ("tsa=dense:time", "--match tsa=dense:time"),
    ],
)
def test_a_match_that_makes_no_sense_is_said(text: str, message: str) -> None:
    with pytest.raises(EffauditError, match=message):
        apply(_matching(), Overrides(match=[text]))
