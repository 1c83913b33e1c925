"""Records made by hand that hold all that an audit can find: controls, matches, classes of tokens, samples of text."""

from __future__ import annotations

from effaudit.record import AuditRecord, Control, LayerRow, Match, TextSample, TokenClassRow
from tests.fakes_records import everyone, figure

CLASSES = (
    TokenClassRow(name="space", n_tokens=9000, loss=1.1, alpha_soft=0.4, alpha_hard=0.3, layers=(1.0, 0.5, 0.3, 0.1)),
    TokenClassRow(
        name="rare word", n_tokens=700, loss=3.2, alpha_soft=0.8, alpha_hard=0.9, layers=(1.0, 1.0, 0.9, 0.8)
    ),
)
CONTROLS = (
    Control(
        kind="random",
        measurement="quality.accuracy",
        n_draws=5,
        value=0.869,
        difference=-0.07,
        interval=(-0.08, -0.06),
        flops_ratio=1.002,
        note="trained with another routing",
    ),
    Control(
        kind="constant",
        measurement="quality.accuracy",
        n_draws=1,
        value=0.938,
        difference=-0.001,
        interval=(-0.004, 0.002),
        flops_ratio=1.0,
        rate=0.44,
        n_examples=512,
    ),
    Control(
        kind="random_fixed",
        measurement="quality.accuracy",
        n_draws=1,
        value=None,
        difference=None,
        interval=None,
        flops_ratio=None,
        note="the profile names no such weights",
    ),
)
SAMPLES = (
    TextSample(index=0, pieces=tuple("To be, or <b>not</b>\nto be"), layers_run=(*[4] * 10, *[1] * 3, *[2] * 13)),
    TextSample(index=1, pieces=tuple("that is " * 40), layers_run=tuple([3] * 320)),
)
MET = Match(
    model="tsa",
    measurement="flops.executed",
    knob="threshold",
    goal=34_950_000_000,
    setting=0.83,
    reached=35_100_000_000,
    n_examples=256,
)
UNMET = Match(
    model="tsa",
    measurement="routing.alpha_hard",
    knob="s_target",
    goal=0.44,
    setting=None,
    reached=None,
    reachable=(0.5, 0.9),
    reason="every setting keeps more",
)


def complete() -> list[AuditRecord]:
    """A dense, a token-routing, a head-pruning and an exiting model."""
    reference, routed, heads, exiting = everyone()
    domains = (
        figure("energy.cpu", 1.3, "J", source="measured", method="RAPL"),
        figure("energy.ram", 2.0, "J", source="modelled", method="20 W assumed"),
    )
    attention = (
        figure("flops.attention_core", 1_000_000_000, "FLOP"),
        figure("flops.dense_attention_core", 4_000_000_000, "FLOP"),
        figure("flops.attention_layer", 8_000_000_000, "FLOP"),
        figure("flops.dense_attention_layer", 16_000_000_000, "FLOP"),
    )
    found = {"token_classes": CLASSES, "controls": CONTROLS, "text_samples": SAMPLES}
    routed = routed.model_copy(update={**found, "measurements": (*routed.measurements, *domains, *attention)})
    return [reference, routed, _matched(heads, UNMET), _matched(exiting, MET)]


def _matched(record: AuditRecord, match: Match) -> AuditRecord:
    return record.model_copy(update={"model": record.model.model_copy(update={"match": match})})


def with_layers(record: AuditRecord, n: int) -> AuditRecord:
    """The same record of a model of `n` layers, each keeping half."""
    return record.model_copy(update={"layers": tuple(LayerRow(layer=i, alpha_hard=0.5) for i in range(1, n + 1))})
