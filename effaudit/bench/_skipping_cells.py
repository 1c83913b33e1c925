"""Which models run on which drawn decisions in the benchmark of skipping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from effaudit import plugins
from effaudit.assembly import load_all
from effaudit.break_even import calibrate_on
from effaudit.flop_counting import count_flops
from effaudit.meters import _heap
from effaudit.meters._process_peak import process_peak
from effaudit.micro_batch import choose_micro_batch, quickest
from effaudit.profile_spec import ModelConfig, load_profile, validated
from effaudit.variants._blocks import Backbone
from effaudit.variants._passes import part
from effaudit.variants.budgetformer import BudgetFormer
from effaudit.workload import Batch, Routing, Task

VOCABULARY, N_CLASSES, N_LAYERS, HEAD_WIDTH = 65, 4, 6, 32

Part = Literal["tsa", "budgetformer", "early_exit", "soft", "policy", "trained", "compiled"]


@dataclass(frozen=True)
class Shape:
    """B examples of T tokens at width D."""

    examples: int
    tokens: int
    width: int

    def __str__(self) -> str:
        return f"B={self.examples} T={self.tokens} d={self.width}"


@dataclass(frozen=True)
class Contender:
    """What is timed: one call of `run`, which costs `flops`."""

    setting: str
    run: Callable[[], object]
    flops: int
    path: str
    tokens_per_pass: int | None
    peak_bytes: int  # by which one pass over the whole batch lifts the process's peak
    masked: int | None = None  # place of its masked twin among the contenders, which it must not lose against


@dataclass(frozen=True)
class Match:
    """Contenders on the same batch of `shape`; the first is the dense reference."""

    part: Part
    shape: Shape
    contenders: list[Contender]


def model(variant: str, shape: Shape, task: Task, n_layers: int = N_LAYERS, **options: Any) -> Backbone:
    """An untrained model in evaluation; its weights follow from the seed alone."""
    known = validated(plugins.load("variants", variant).Options, options, f"options of `{variant}`")
    config = ModelConfig(
        variant=variant,
        task=task,
        vocab_size=VOCABULARY,
        n_classes=N_CLASSES if task == "classification" else None,
        max_tokens=shape.tokens,
        d_model=shape.width,
        n_layers=n_layers,
        n_heads=shape.width // HEAD_WIDTH,
        d_ff=4 * shape.width,
        options=known.model_dump(mode="json", by_alias=True),
    )
    torch.manual_seed(0)
    built: Backbone = plugins.load("variants", variant).build(config)
    return built.eval()


def drawn_batch(shape: Shape, task: Task) -> Batch:
    source = torch.Generator().manual_seed(1)
    size = (shape.examples, shape.tokens)
    tokens = torch.randint(0, VOCABULARY, size, generator=source)
    labels = tokens if task == "causal_lm" else torch.zeros(shape.examples, dtype=torch.int64)
    return Batch(tokens, torch.ones(size, dtype=torch.bool), labels, torch.arange(shape.examples), is_padded=False)


def contender(setting: str, made: Backbone, batch: Batch, routing: Routing | None = None) -> Contender:
    """A whole model at its own best micro-batch."""

    def run() -> object:
        with torch.inference_mode():
            return made(batch, routing)

    peak_bytes = _peak_bytes(run)
    choose_micro_batch(made, batch, routing)
    return Contender(setting, run, _flops(run), _path(made), made.tokens_per_pass, peak_bytes)


def _path(made: Backbone) -> str:
    execution: str = made.config.options.get("execution", "full")
    return execution if made.config.variant != "dense" else "full"


def _chosen(made: Backbone, batch: Batch, routing: Routing) -> str:
    """Which layers skip under `auto`, a letter a layer."""
    with torch.inference_mode():
        masked = made(batch, routing).routing.masked
    return "auto " + "".join("m" if is_masked else "s" for is_masked in masked[0].tolist())


def _peak_bytes(run: Callable[[], object]) -> int:
    with _heap.no_holes():
        run()
        return process_peak([run]).n_bytes


def _flops(run: Callable[[], object]) -> int:
    count = count_flops(run)
    assert count.complete
    return count.total


def tsa(shapes: list[Shape], alphas: tuple[float, ...]) -> Iterator[Match]:
    """Halting drawn for each token on its own; routers run and their decisions are replaced."""
    for shape in shapes:
        batch = drawn_batch(shape, "causal_lm")
        contenders = [contender("dense", model("dense", shape, "causal_lm"), batch)]
        for mode in ("ffn", "ffn+query"):
            made = model("tsa", shape, "causal_lm", mode=mode, gate="binary")
            for alpha in alphas:
                one = twin(made)
                contenders.append(contender(f"{mode} α={alpha}", one, batch, drawn_tokens(shape, alpha)))
        yield Match("tsa", shape, contenders)


def twin(made: Backbone) -> Backbone:
    """The same weights in a model of its own, so that each keeps its own micro-batch."""
    other: Backbone = plugins.load("variants", made.config.variant).build(made.config)
    other.load_state_dict(made.state_dict(), assign=True)
    return other.eval()


def drawn_tokens(shape: Shape, alpha: float, seed: int = 2) -> Routing:
    source = torch.Generator().manual_seed(seed)
    kept = torch.rand((shape.examples, shape.tokens, N_LAYERS), generator=source) < alpha
    kept[..., 0] = True
    return Routing(tokens=kept)


def budgetformer(shapes: list[Shape], fractions: tuple[float, ...]) -> Iterator[Match]:
    """The attention layer alone: norm, budget and score nets, projections, heads, residual."""
    for shape in shapes:
        batch = drawn_batch(shape, "classification")
        dense = model("dense", shape, "classification", n_layers=1)
        adaptive = model("budgetformer", shape, "classification", n_layers=1)
        assert isinstance(adaptive, BudgetFormer)
        contenders = [_attention_of_dense(dense, batch)]
        for fraction in fractions:
            for is_shared in (True, False):
                heads = drawn_heads(shape, fraction, is_shared)
                of = "shared" if is_shared else "own"
                contenders.append(_attention_of(adaptive, batch, heads, f"k/H={fraction} {of} sets"))
        yield Match("budgetformer", shape, contenders)


def _attention_of_dense(dense: Backbone, batch: Batch) -> Contender:
    with torch.inference_mode():
        h, visible = dense.embedded(batch), dense.visibility(batch)
    return _by_passes("dense", lambda examples: dense.blocks[0].attend(h[examples], visible), batch, "full")


def _attention_of(adaptive: BudgetFormer, batch: Batch, heads: Tensor, setting: str) -> Contender:
    with torch.inference_mode():
        h, visible = adaptive.embedded(batch), adaptive.visibility(batch)

    def attend(examples: slice) -> object:
        return adaptive.attend(0, h[examples], visible, part(batch, examples), Routing(heads=heads[examples]))

    return _by_passes(setting, attend, batch, "skip")


def _by_passes(setting: str, attend: Callable[[slice], object], batch: Batch, path: str) -> Contender:
    """A layer at its own best micro-batch."""
    n_examples, n_tokens = batch.tokens.shape

    def run(tokens_per_pass: int | None) -> None:
        n = n_examples if tokens_per_pass is None else max(tokens_per_pass // n_tokens, 1)
        with torch.inference_mode():
            for start in range(0, n_examples, n):
                attend(slice(start, start + n))

    whole = partial(run, None)
    best = quickest(run, n_examples, n_tokens)
    return Contender(setting, partial(run, best), _flops(whole), path, best, _peak_bytes(whole))


def drawn_heads(shape: Shape, fraction: float, is_shared: bool, seed: int = 3) -> Tensor:
    """(B, 1, H): each example with as many heads, drawn for it or, shared, for four sets that examples take in turn."""
    n_heads = shape.width // HEAD_WIDTH
    n_sets = min(4, shape.examples) if is_shared else shape.examples
    scores = torch.rand((n_sets, n_heads), generator=torch.Generator().manual_seed(seed))
    sets = scores.argsort(dim=1).argsort(dim=1) < max(round(fraction * n_heads), 1)
    return sets.repeat(shape.examples // n_sets, 1)[:, None]


def early_exit(shapes: list[Shape], means: tuple[int, ...]) -> Iterator[Match]:
    tasks: tuple[tuple[Task, str], ...] = (("classification", "example"), ("causal_lm", "token"))
    for (task, unit), shape in product(tasks, shapes):
        batch = drawn_batch(shape, task)
        contenders = [contender("dense", model("dense", shape, task), batch)]
        for mean in means:
            made = model("early_exit", shape, task, criterion="maxprob", state="copy")
            routing = drawn_exits(shape, mean, unit == "token")
            contenders.append(contender(f"per {unit}, mean {mean} of {N_LAYERS}", made, batch, routing))
        yield Match("early_exit", shape, contenders)


def drawn_exits(shape: Shape, mean: int, is_per_token: bool, seed: int = 4) -> Routing:
    """As many leave one layer before the mean as one after it, the others at it."""
    units = shape.examples * (shape.tokens if is_per_token else 1)
    offsets = torch.arange(units) % 4  # 0 before, 1 after, 2 and 3 at the mean
    exits = mean - (offsets == 0).long() + (offsets == 1).long()
    exits = exits[torch.randperm(units, generator=torch.Generator().manual_seed(seed))]
    return Routing(exits=exits.view(shape.examples, -1) if is_per_token else exits)


def soft(shapes: list[Shape]) -> Iterator[Match]:
    """Routers on and gates soft: nothing is skipped, so time is to grow by the routers' FLOPs alone."""
    for shape in shapes:
        batch = drawn_batch(shape, "causal_lm")
        dense = contender("dense", model("dense", shape, "causal_lm"), batch)
        made = contender("soft", model("tsa", shape, "causal_lm", mode="soft"), batch)
        yield Match("soft", shape, [dense, replace(made, path="soft")])


def policy(shapes: list[Shape], alphas: tuple[float, ...]) -> Iterator[Match]:
    """`execution: auto` against dense and against its own masked twin."""
    for shape in shapes:
        batch = drawn_batch(shape, "causal_lm")
        contenders = [contender("dense", model("dense", shape, "causal_lm"), batch)]
        for mode, alpha in product(("ffn", "ffn+query"), alphas):
            routing = drawn_tokens(shape, alpha)
            masked = model("tsa", shape, "causal_lm", mode=mode, gate="binary", execution="masked")
            contenders.append(contender(f"{mode} α={alpha}", masked, batch, routing))
            auto = model("tsa", shape, "causal_lm", mode=mode, gate="binary", execution="auto")
            calibrate_on(auto, [batch])
            one = contender(f"{mode} α={alpha}", auto, batch, routing)
            place = len(contenders) - 1
            contenders.append(replace(one, path=_chosen(auto, batch, routing), masked=place))
        yield Match("policy", shape, contenders)


def trained(profiles: tuple[str, ...], examples: tuple[int, ...]) -> Iterator[Match]:
    """The models whose weights ship, on their own test split and under their own decisions."""
    for name, n in product(profiles, examples):
        profile = load_profile(name)
        profile = profile.model_copy(update={"data": profile.data.model_copy(update={"batch_size": n})})
        dataset, models = load_all(profile, None)
        batch = next(dataset.batches("test", n, n))
        shape = Shape(n, batch.tokens.shape[1], profile.size.d_model)
        contenders = [contender(f"{name}: {one.spec.name}", one.model, batch) for one in models]  # type: ignore[arg-type]
        yield Match("trained", shape, contenders)


def compiled(shapes: list[Shape]) -> Iterator[Match]:
    """Dense by torch.compile against dense as it is."""
    for shape in shapes:
        batch = drawn_batch(shape, "causal_lm")
        plain = contender("dense", model("dense", shape, "causal_lm"), batch)
        made = torch.compile(model("dense", shape, "causal_lm"))

        def run(made: Callable[[Batch], object] = made, batch: Batch = batch) -> object:
            with torch.inference_mode():
                return made(batch)

        yield Match(
            "compiled",
            shape,
            [plain, Contender("dense, torch.compile", run, plain.flops, "compiled", None, _peak_bytes(run))],
        )
