"""What every plug-in of a group must do; a new file is tested the moment it exists."""

import inspect
import json
import threading
from typing import Any

import pytest
import torch

from effaudit import plugins
from effaudit.datasets._dataset import Dataset
from effaudit.errors import EffauditError
from effaudit.flop_counting import count_flops
from effaudit.model_targets import OWN
from effaudit.overrides import GENERATED
from effaudit.profile_spec import AuditSpec, DataSpec, Spec
from effaudit.record import Findings
from effaudit.workload import Execution, Task, Workload
from tests import makers
from tests.fakes_records import everyone, record

TASKS: tuple[Task, ...] = ("classification", "causal_lm")
EXECUTIONS: tuple[Execution, ...] = ("skip", "masked")
# Models of the user's own have no closed formula and are not trained here: tests/variants/test_hf.py, test_python.py.
BUILT_IN = [name for name in plugins.names("variants") if name not in OWN]
VARIANTS = [(name, task) for name in BUILT_IN for task in TASKS if task in plugins.load("variants", name).TASKS]
SETTINGS = AuditSpec(rounds=2, max_seconds=0.02, energy_window_s=0.02, device="cpu")
SMALL = {"n_train": 40, "n_calibration": 8, "n_test": 12}


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize(("group", "name"), [(g, n) for g in plugins.GROUPS for n in plugins.names(g)])
def test_first_line_is_a_sentence(group: str, name: str) -> None:
    doc = plugins.load(group, name).__doc__
    assert doc
    assert doc.splitlines()[0].endswith((".", "?"))


@pytest.mark.parametrize("name", BUILT_IN)
def test_variant_has_its_functions(name: str) -> None:
    variant = plugins.load("variants", name)
    assert parameters(variant.build) == ["config"]
    assert parameters(variant.flops) == ["config", "batch", "routing", "execution"]
    assert issubclass(variant.Options, Spec)
    assert set(variant.TASKS) <= set(TASKS)
    defaults = variant.Options().model_dump(mode="json", by_alias=True)
    assert variant.Options.model_validate(json.loads(json.dumps(defaults))) == variant.Options()


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(("name", "task"), VARIANTS)
def test_variant_runs_and_its_formula_is_what_runs(name: str, task: Task, execution: Execution) -> None:
    config = makers.config(name, task, {"execution": execution})
    model = makers.build(config, dtype=torch.float32)
    flops = plugins.load("variants", name).flops
    for lengths in ((7, 2, 4), (1,)):
        batch = makers.batch(task, lengths)
        output = makers.run(model, batch)
        assert output.logits.shape == (
            *batch.labels.shape,
            makers.CLASSES if task == "classification" else makers.VOCAB,
        )
        assert torch.isfinite(output.logits).all()
        assert len(output.routing.path) == config.n_layers
        count = count_flops(makers.run, model, batch)
        assert count.complete
        by_formula = flops(config, batch, output.routing, execution)
        assert by_formula.shape == (batch.n_examples,)
        assert by_formula.dtype == torch.int64
        assert count.total == by_formula.sum()
        assert (flops(config, batch, output.routing, "best") <= by_formula).all()


@pytest.mark.parametrize("name", OWN)
def test_variant_for_models_of_ones_own_has_its_functions(name: str) -> None:
    variant = plugins.load("variants", name)
    assert parameters(variant.open_model) == ["order"]
    assert issubclass(variant.Options, Spec)
    defaults = variant.Options().model_dump(mode="json")
    assert variant.Options.model_validate(json.loads(json.dumps(defaults))) == variant.Options()


@pytest.mark.parametrize("name", BUILT_IN)
def test_variant_refuses_what_it_cannot_do(name: str) -> None:
    for task in set(TASKS) - set(plugins.load("variants", name).TASKS):
        with pytest.raises(EffauditError):
            makers.build(makers.config(name, task))
    config = makers.config(name, plugins.load("variants", name).TASKS[0])
    with pytest.raises(EffauditError, match="nonsense"):
        makers.build(config.model_copy(update={"options": {"nonsense": 1}}))


@pytest.mark.parametrize(("name", "task"), VARIANTS)
def test_variant_can_be_trained(name: str, task: Task) -> None:
    model = makers.build(makers.config(name, task), dtype=torch.float32).train()
    loss = model.loss(makers.batch(task, (4, 3)), 0.5)
    loss.backward()
    assert loss.ndim == 0
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", plugins.names("datasets"))
def test_dataset_has_its_functions(name: str) -> None:
    dataset = plugins.load("datasets", name)
    assert parameters(dataset.open_dataset) == ["spec", "tokenizer"]
    assert issubclass(dataset.Options, Spec)


@pytest.mark.parametrize("name", plugins.names("datasets"))
def test_dataset_without_what_it_needs_says_so(name: str) -> None:
    if name in GENERATED:
        with pytest.raises(EffauditError, match="nonsense"):
            plugins.load("datasets", name).open_dataset(DataSpec(dataset=name, options={"nonsense": 1}))
    else:
        with pytest.raises(EffauditError):
            plugins.load("datasets", name).open_dataset(DataSpec(dataset=name, path="no such folder"))


@pytest.mark.parametrize("name", GENERATED)
def test_dataset_gives_the_same_whole_batches_each_time(name: str) -> None:
    spec = DataSpec(dataset=name, options={} if name == "prose" else SMALL)
    opened: list[Dataset] = [plugins.load("datasets", name).open_dataset(spec) for _ in range(2)]
    first, second = ([*dataset.batches("test", 5, 12)] for dataset in opened)
    assert sum(batch.n_examples for batch in first) == 12
    for batch, again in zip(first, second, strict=True):
        assert batch.tokens.dtype == batch.labels.dtype == batch.index.dtype == torch.int64
        assert batch.mask.dtype == torch.bool
        assert batch.tokens.shape == batch.mask.shape
        assert batch.tokens.shape[1] <= spec.max_tokens
        assert 0 <= batch.tokens.min() <= batch.tokens.max() < opened[0].vocab_size
        assert batch.is_padded == (not bool(batch.mask.all()))
        assert torch.equal(batch.tokens, again.tokens)
        expected = batch.tokens.shape if opened[0].task == "causal_lm" else (batch.n_examples,)
        assert batch.labels.shape == expected
    assert opened[0].sha256("test") == opened[1].sha256("test") != opened[0].sha256("train")
    later = opened[0].training_batches(4, seed=1, first_step=2)
    from_start = opened[1].training_batches(4, seed=1)
    next(from_start), next(from_start)
    assert torch.equal(next(later).tokens, next(from_start).tokens)


def workload(name: str) -> Workload:
    config = makers.config(name)
    batches = [makers.batch("classification", (4, 4)), makers.batch("classification", (6, 2))]
    flops = plugins.load("variants", name).flops
    return Workload(
        name=name,
        model=makers.build(config, dtype=torch.float32),
        task="classification",
        n_layers=config.n_layers,
        device=torch.device("cpu"),
        execution="skip",
        is_skipping_tokens=False,
        is_characters=False,
        batches=lambda: iter(batches),
        flops=lambda batch, routing, execution: flops(config, batch, routing, execution),
    )


def traces(work: Workload) -> object:
    """What a meter must leave as it was."""
    hooks = [(name, len(m._forward_hooks), len(m._forward_pre_hooks)) for name, m in work.model.named_modules()]
    training = [m.training for m in work.model.modules()]
    state = {name: tensor.clone() for name, tensor in work.model.state_dict().items()}
    return hooks, training, list(state), torch.is_grad_enabled(), torch.get_num_threads(), threading.active_count()


@pytest.mark.parametrize("name", plugins.names("meters"))
def test_meter_finds_something_for_every_model_and_leaves_no_trace(name: str) -> None:
    meter = plugins.load("meters", name)
    assert parameters(meter.measure)[:2] == ["works", "settings"]
    works = [workload("dense"), workload("tsa")]
    before, random = [traces(work) for work in works], torch.get_rng_state()
    states = [{k: v.clone() for k, v in work.model.state_dict().items()} for work in works]
    found = meter.measure(works, SETTINGS)
    assert [type(item) for item in found] == [Findings, Findings]
    for findings in found:
        names = [m.name for m in findings.measurements]
        assert names
        assert len(set(names)) == len(names)
    assert [m.name for m in found[0].measurements] == [m.name for m in found[1].measurements]
    assert [traces(work) for work in works] == before
    assert torch.equal(torch.get_rng_state(), random)
    for work, state in zip(works, states, strict=True):
        assert all(torch.equal(tensor, state[key]) for key, tensor in work.model.state_dict().items())


@pytest.mark.parametrize("name", plugins.names("renderers"))
def test_renderer_renders_any_records(name: str) -> None:
    renderer = plugins.load("renderers", name)
    assert renderer.SUFFIX.startswith(".")
    assert parameters(renderer.render)[0] == "records"
    for records in (everyone(), everyone()[1:2], [record("bare")], []):
        rendered = renderer.render(records)
        assert isinstance(rendered, str | bytes)
        assert rendered == renderer.render(records)


def test_every_meter_of_a_profile_is_a_plug_in() -> None:
    assert set(AuditSpec().meters) == set(plugins.names("meters"))
