"""Modules of one's own: how factories are called, what they may bring along, what is said when they fail."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from effaudit.errors import EffauditError
from effaudit.record import AuditRecord
from effaudit.variants._own_batches import OwnBatches
from tests.own_models import TEXTS, Vision, audit, profile, table

HERE = "tests.own_models"

SOURCE = """
import torch
from torch import nn

class Bag(nn.Module):
    def __init__(self, vocab_size, n_classes, width):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.head = nn.Linear(width, n_classes)

    def forward(self, tokens, mask):
        h = self.embed(tokens) * mask[..., None]
        return {"logits": self.head(h.sum(dim=1) / mask.sum(dim=1, keepdim=True))}

    def flops(self, batch, routing, execution):
        each = 2 * self.head.in_features * self.head.out_features
        return torch.full((batch.n_examples,), each, dtype=torch.int64)

def bag(vocab_size, n_classes, width=4):
    return Bag(vocab_size, n_classes, width)

def hidden(vocab_size):
    return nn.Embedding(vocab_size, 4)

def narrow(vocab_size):
    return Bag(vocab_size, 1, 4)

class Sound(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = nn.Conv1d(1, 2, 4, stride=4)

    def forward(self, waves, rate=1.0):
        return self.filter(waves * rate).mean(dim=2)

    def batches(self):
        for n in (3, 2):
            yield {"waves": torch.ones(n, 1, 16), "rate": 0.5}

sound = Sound

def odd():
    return nn.Identity()

def text():
    return "no module"

def broken(width=2):
    raise ZeroDivisionError("width is zero")

class Empty(nn.Module):
    def batches(self):
        return iter(())

def leaves():
    raise SystemExit(3)

def lazy():
    return nn.LazyLinear(2)

def nowhere():
    return nn.Linear(2, 2, device="meta")

class Brings(nn.Module):
    def forward(self, images):
        return images

    def batches(self):
        return [torch.zeros(3, 2)]

class Stumbles(Brings):
    def forward(self, images):
        raise IndexError("no\\nsuch patch")

class Misfit(Brings):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(5, 2)

    def forward(self, images):
        return self.head(images)

class Unwritten(nn.Module):
    batches = Brings.batches

class Breaks(Brings):
    def batches(self):
        yield torch.zeros(3, 2)
        raise OSError("disk is gone")

class Number(Brings):
    def batches(self):
        return 3

class Once(Brings):
    def __init__(self):
        super().__init__()
        self.only = iter([torch.zeros(3, 2)])

    def batches(self):
        return self.only

class Draws(Brings):
    def batches(self):
        return [torch.rand(3, 2)]

class Total(Brings):
    def flops(self, batch, routing, execution):
        return 12

class Unsure(Brings):
    def flops(self, batch, routing, execution):
        raise KeyError("layer")

class Map(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 1)

    def forward(self, images):
        return self.conv(images)

    def batches(self):
        return [(torch.zeros(n, 1, 4, 4), torch.zeros(n, 4, 4).int()) for n in (3, 1)]

class Regression(Brings):
    def batches(self):
        return [(torch.zeros(3, 2), torch.tensor([0.5, 1.5, 2.5]))]

def ragged():
    module = nn.Linear(2, 2)
    module.batches = lambda: [(torch.ones(3, 2), torch.zeros(2).long())]
    return module
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the current folder, as a user has it."""
    (tmp_path / "my_models.py").write_text(SOURCE)
    (tmp_path / "my_broken.py").write_text("raise RuntimeError('boom')\n")
    (tmp_path / "my_needy.py").write_text("import no_such_library\n")
    monkeypatch.chdir(tmp_path)
    yield "my_models"
    for name in ("my_models", "my_broken", "my_needy"):
        sys.modules.pop(name, None)


def single(tmp_path: Path, spec: Any, **changes: Any) -> AuditRecord:
    (record,) = audit(profile(table(tmp_path / "data"), spec, **changes), tmp_path)
    return record


def test_factory_gets_the_datas_sizes_and_its_keywords(mine: str, tmp_path: Path) -> None:
    record = single(tmp_path, f"python:{mine}:bag?width=6")
    assert record["flops.executed"].value == len(TEXTS) * 2 * 6 * 2
    assert record["quality.accuracy"].value is not None
    assert record.model.name == "bag"
    assert record.model.options["keywords"] == {"width": 6}
    assert record.model.weights_sha256 is not None
    assert "formula_mismatch" not in {caution.code for caution in record.cautions}
    assert record["flops.routed"].value == record["flops.dense"].value == record["flops.executed"].value


def test_random_weights_are_those_of_the_profiles_seed(mine: str, tmp_path: Path) -> None:
    first = single(tmp_path / "a", f"python:{HERE}:Vision")
    state = torch.random.get_rng_state()
    torch.rand(3)
    again, other = (
        single(tmp_path / "b", f"python:{HERE}:Vision"),
        single(tmp_path / "c", f"python:{HERE}:Vision", seed=1),
    )
    assert first.model.weights_sha256 == again.model.weights_sha256 != other.model.weights_sha256
    assert first["quality.loss"].value == again["quality.loss"].value
    torch.random.set_rng_state(state)


def test_drawing_in_a_factory_leaves_the_generator_as_it_was(tmp_path: Path) -> None:
    before = torch.random.get_rng_state()
    single(tmp_path, f"python:{HERE}:Vision", audit={"meters": ("flops",)})
    assert torch.equal(torch.random.get_rng_state(), before)


def test_current_folder_is_searched_but_stays_off_the_path(mine: str, tmp_path: Path) -> None:
    before = list(sys.path)
    single(tmp_path, f"python:{mine}:bag")
    assert sys.path == before


def test_images_that_the_module_brings_are_audited(tmp_path: Path) -> None:
    record = single(tmp_path, f"python:{HERE}:Vision?width=5&batch_size=4")
    assert record["flops.executed"].value == 10 * (2 * 16 * 5 * 4 + 2 * 5 * 3)
    assert (record.workload.n_examples, record.workload.batch_size) == (10, 4)
    assert record.workload.dataset == "own batches"
    assert record.workload.n_tokens is None
    assert record.workload.n_padding is None
    source = Vision(5)
    images, labels = (torch.cat(part) for part in zip(*source.batches(10), strict=True))
    assert 0 <= (record["quality.accuracy"].value or 0) <= 1
    assert images.shape[0] == len(labels) == record.workload.n_examples


@pytest.mark.parametrize("limit", [1, 4, 7, 100])
def test_limit_cuts_batches_of_ones_own(limit: int) -> None:
    batches = list(OwnBatches(Vision().batches, "vision").batches("test", 4, limit))
    assert sum(batch.n_examples for batch in batches) == min(limit, 10)
    for batch in batches:
        assert batch.inputs is not None
        assert batch.inputs.args[0].shape[0] == batch.n_examples == len(batch.labels) == len(batch.index)


def test_identity_of_own_batches_is_that_of_their_content() -> None:
    one, other = OwnBatches(Vision().batches, "a"), OwnBatches(Vision().batches, "b")
    assert one.sha256("test") == other.sha256("test")
    changed = OwnBatches(lambda: [torch.zeros(2, 3)], "c")
    assert changed.sha256("test") != OwnBatches(lambda: [torch.ones(2, 3)], "c").sha256("test")


def test_sound_by_keywords_and_without_labels(mine: str, tmp_path: Path) -> None:
    record = single(tmp_path, f"python:{mine}:sound", audit={"meters": ("quality", "flops", "latency"), "rounds": 2})
    assert record["flops.executed"].value == 5 * 4 * 2 * 4 * 2
    assert record["quality.loss"].method == "nothing is labelled"
    assert record["throughput.tokens"].method == "the inputs are no tokens"
    assert record["throughput.examples"].value is not None


@pytest.mark.parametrize(
    ("factory", "reason"), [("Map", r"does not fit labels \[3, 16\]"), ("Regression", "nothing is labelled")]
)
def test_labels_that_are_no_classes_of_examples_leave_quality_out(
    mine: str, tmp_path: Path, factory: str, reason: str
) -> None:
    record = single(tmp_path, f"python:{mine}:{factory}")
    assert re.search(reason, record["quality.loss"].method)
    assert record["flops.executed"].value is not None
    assert record.workload.batch_size == 3


def test_floating_inputs_follow_the_models_type(tmp_path: Path) -> None:
    record = single(tmp_path, f"python:{HERE}:Vision?dtype=float64")
    assert record["quality.loss"].value is not None


@pytest.mark.parametrize(
    ("factory", "reason"), [("hidden", "no head for this task"), ("narrow", "1 classes, the data 2")]
)
def test_output_that_answers_nothing_is_named(mine: str, tmp_path: Path, factory: str, reason: str) -> None:
    record = single(tmp_path, f"python:{mine}:{factory}")
    assert reason in record["quality.accuracy"].method
    assert record["flops.executed"].value is not None


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("my_models", "names no function"),
        ("no_such_module:f", "no module `no_such_module`"),
        ("my_needy:f", "needs `no_such_library`"),
        ("my_broken:f", "importing `my_broken` failed: RuntimeError: boom"),
        ("my_models:bug", "no `bug` among the functions"),
        ("my_models:text", "returns a str, not a torch.nn.Module"),
        ("my_models:broken", "raised ZeroDivisionError: width is zero"),
        ("my_models:broken?depth=3", "unexpected keyword argument 'depth'"),
        ("my_models:Empty", r"batches\(\) yields nothing"),
        ("my_models:ragged", "3 examples and"),
        ("my_models:leaves", r"raised SystemExit: 3 \(my_models.py, line \d+\)"),
        ("my_models:lazy", "`weight` of what .* has no shape until a first call"),
        ("my_models:nowhere", "it is on `meta`"),
        ("my_models:Stumbles", r"its forward raised IndexError: no such patch \(my_models.py, line \d+\)"),
        ("my_models:Misfit", "its forward raised RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("my_models:Unwritten", "its forward raised NotImplementedError: .* missing the required"),
        ("my_models:Breaks", r"its batches\(\) raised OSError: disk is gone"),
        ("my_models:Number", r"its batches\(\) returns a int"),
        ("my_models:Once", r"its batches\(\) yields nothing when it is called again"),
        ("my_models:Draws", r"its batches\(\) yields other batches each time"),
        ("my_models:Total", r"its flops\(\) returns a int"),
        ("my_models:Unsure", r"its flops\(\) raised KeyError: 'layer'"),
    ],
)
def test_what_cannot_be_audited_is_said_in_a_line(mine: str, tmp_path: Path, target: str, message: str) -> None:
    with pytest.raises(EffauditError, match=message) as error:
        single(tmp_path, f"python:{target}")
    assert "\n" not in error.value.message


def test_errors_of_ones_own_lines_and_of_memory_are_no_mistakes_of_the_users() -> None:
    from effaudit.units import parse_share
    from effaudit.variants._user_code import users_code

    with pytest.raises(AttributeError), users_code("`mine`"):
        parse_share(None)  # type: ignore[arg-type]
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        with pytest.raises(type(error)), users_code("`mine`"):
            raise error


@pytest.mark.parametrize("query", ["", "&quantize=int8"])
def test_module_tree_begins_with_the_users_own_model(tmp_path: Path, query: str) -> None:
    record = single(tmp_path, f"python:{HERE}:Vision?width=5{query}", audit={"meters": ("flops",), "elementwise": True})
    rows = {row.path: row for row in record.modules}
    assert list(rows) == ["", "patch", "head", *(path for path in rows if path.startswith("head."))]
    assert rows[""].flops == record["flops.executed"].value == rows["patch"].flops + rows["head"].flops
    assert rows[""].calls == rows["head"].calls == 3
    assert rows[""].elementwise == record["flops.elementwise"].value
    assert sum(sum(row.ops.values()) for row in rows.values()) == rows[""].flops


def test_answer_without_a_tensor_is_refused(tmp_path: Path) -> None:
    from effaudit.variants._own import OwnModel

    class Silent(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> str:
            return "forty-two"

    from tests import makers

    with pytest.raises(EffauditError, match="returns a str"):
        OwnModel("silent", Silent(), None)(makers.batch())


def test_modules_are_not_trained_here(mine: str, tmp_path: Path) -> None:
    from effaudit.training import train

    with pytest.raises(EffauditError, match="trained"):
        train(profile(table(tmp_path / "data"), f"python:{mine}:bag"), tmp_path / "weights", is_quiet=True)
