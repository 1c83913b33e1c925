import io
from collections.abc import Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from effaudit.record import AuditRecord, Caution, LayerRow, ModuleRow
from effaudit.renderers import console, csv, html, markdown
from effaudit.renderers._words import sentence
from tests.fakes_records import WORKLOAD, dense, everyone, examples, figure, latency, record, tsa

GOLDEN = """\
example: graded/test, 1000 examples, 24000 tokens, batches of 32
cpu (Example CPU), 1 thread, float32, torch 2.13.0

dense, the reference
  FLOPs per pass      50.0 GFLOP c
  latency per batch      12.0 ms m
  peak memory            12.0 MB m
  energy per pass         3.20 J ~
  parameters              1.23 M c

                accuracy    claimed    skipped      FLOPs    latency     energy
-------------------------------------------------------------------------------
dense           94.2 % c          –          –        ref        ref        ref
tsa             93.9 % c  -45.0 % c  -42.0 % c  -30.1 % c   +4.0 % m   +3.1 % ~
budgetformer    90.0 % c  -69.0 % c  -62.5 % c   -8.0 % c  -25.0 % m  -25.0 % ~
early_exit      94.2 % c  -30.0 % c  -30.0 % c  -20.0 % c   0.0 % m?          –
-------------------------------------------------------------------------------
c counted, m measured, ~ modelled, – unavailable, ? interval covers no change

dense is the reference: accuracy 94.2 %, FLOPs per pass 50.0 GFLOP, latency per
  batch 12.0 ms, peak memory 12.0 MB, energy per pass 3.20 J, parameters 1.23 M.
tsa: claims -45.0 %, skips -42.0 %, executes -30.1 % FLOPs, takes 4.0 % more
  time [4.0, 4.0] than dense: not faster, the saving does not arrive on the
  clock; accuracy drops 0.30 points, not distinguishable on 1000 examples.
budgetformer: claims -69.0 %, skips -62.5 %, executes -8.0 % FLOPs, takes 25.0 %
  less time [25.0, 25.0] than dense: all of the FLOPs saving and more arrives on
  the clock; accuracy drops 4.20 points.
early_exit: claims -30.0 %, skips -30.0 %, executes -20.0 % FLOPs, takes 0.0 %
  time [0.0, 0.0] against dense: no difference on the clock is shown; accuracy
  unchanged.

Cautions
  - latency varied by 12 % between rounds (tsa)
    hint: close other programs

Not available
  - emissions: no country or intensity given (dense, tsa)
  - routing.alpha_hard: the variant makes no such choice (dense)
  - energy.gross: no energy counter can be read (early_exit)
  - routing.alpha_soft: the variant makes no such choice (early_exit)
"""


def fits(text: str) -> bool:
    return all(cell_len(line) <= 80 for line in text.splitlines())


def test_golden_comparison() -> None:
    assert console.render(everyone()) == GOLDEN


def test_every_character_exists_on_a_cp1252_console() -> None:
    for text in (console.render(everyone()), console.render_profile(tsa())):
        assert text.encode("cp1252").decode("cp1252") == text


def test_a_profile_shows_totals_layers_modules_and_methods() -> None:
    text = console.render_profile(dense())
    assert "  flops.executed                  50.0 GFLOP c" in text
    assert "  blocks                         48.0 GFLOP   96.0 % ###################." in text
    assert "      attn                       4.00 GFLOP    8.0 % ##.................." in text
    assert "query" not in text  # deeper than shown
    assert "  - energy.gross: modelled, codecarbon" in text
    assert "  - emissions: no country or intensity given\n" in text
    layers = console.render_profile(tsa())
    assert "  layer     alpha_soft     alpha_hard\n      1          0.900          1.000\n" in layers
    assert fits(text)
    assert fits(layers)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0125, "not faster, the saving does not arrive on the clock"),
        (0.0120, "no difference on the clock is shown"),
        (0.0110, "28 % of the FLOPs saving arrives on the clock"),  # 8.33 of 30.1 %
        (0.0060, "all of the FLOPs saving and more arrives on the clock"),
        (0.5, "takes x41.7 the time"),
    ],
)
def test_sentence_says_whether_the_saving_arrives(seconds: float, said: str) -> None:
    records = [dense(), tsa(seconds)]
    assert said in sentence(records[1], records)


def test_sentence_without_a_saving_in_flops() -> None:
    slow = record("tsa", measurements=[figure("flops.executed", 51_000_000_000, "FLOP"), latency(0.013)])
    fast = record("tsa", measurements=[figure("flops.executed", 51_000_000_000, "FLOP"), latency(0.011)])
    assert "slower, nothing is saved" in sentence(slow, [dense(), slow])
    assert "faster, but not by fewer FLOPs" in sentence(fast, [dense(), fast])
    assert "quality was not measured" in sentence(slow, [dense(), slow])


def test_sentence_says_what_cannot_be_compared() -> None:
    alone = tsa()
    assert "no dense model among the records" in sentence(alone, [alone])
    elsewhere = tsa().model_copy(update={"environment": record(fingerprint="machine-b").environment})
    said = sentence(elsewhere, [dense(), elsewhere])
    assert "time is not comparable (measured on different machines or settings)" in said
    assert "executes -30.1 % FLOPs" in said
    once = record("tsa", measurements=[figure("latency.p50", 0.02, "s", source="measured")])
    assert "too few samples for an interval" in sentence(once, [dense(), once])


def test_losses_rise_and_bits_are_named() -> None:
    def language(name: str, bpc: float) -> AuditRecord:
        found = [figure("quality.loss", bpc * 0.69, "nat"), figure("quality.bpc", bpc, "bit")]
        workload = WORKLOAD.model_copy(update={"task": "causal_lm"})
        return record(name, measurements=[*found, figure("quality.accuracy", 0.5)], workload=workload)

    records = [language("dense", 2.0), language("tsa", 2.05)]
    assert "bpc rises 2.50 %" in sentence(records[1], records)
    assert "      bpc" in console.render(records)


def test_cautions_and_reasons_are_said_once_with_their_models() -> None:
    noisy = Caution(code="noisy", text="the machine was busy", hint="wait")
    records = [r.model_copy(update={"cautions": (noisy,)}) for r in everyone()]
    text = console.render(records)
    assert text.count("the machine was busy (all models)") == 1
    assert text.count("no country or intensity given") == 1


def test_cautions_of_one_kind_share_their_hint() -> None:
    def spread(share: str) -> Caution:
        return Caution(code="unstable", text=f"timings span {share}", hint="stop other work")

    busy = Caution(code="busy", text="the machine was busy", hint="wait")
    records = [
        dense().model_copy(update={"cautions": (spread("20 %"), busy)}),
        tsa().model_copy(update={"cautions": (spread("30 %"), busy)}),
    ]
    assert """Cautions
  - timings span 20 % (dense)
  - timings span 30 % (tsa)
    hint: stop other work
  - the machine was busy (all models)
    hint: wait
""" in console.render(records)


def test_long_and_hostile_names_fit_and_stay_whole() -> None:
    long = "a_model_with_a_name_that_its_column_cannot_hold"
    records = [dense(), tsa().model_copy(update={"model": record(long, "tsa").model})]
    text = console.render(records)
    assert f"\n{long}\n" in text
    for name in ("模型" * 60, "\x1b[31mred\x00\n\ud800", "x" * 500):
        odd = [dense(), tsa().model_copy(update={"model": record(name, "tsa").model})]
        for text in (console.render(odd), console.render_profile(odd[1])):
            assert fits(text)
            assert "\x1b" not in text


def test_show_obeys_no_color_pipes_and_narrow_encodings(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    ascii_only = io.TextIOWrapper(raw, encoding="ascii")
    console.show(GOLDEN, ascii_only)
    ascii_only.flush()
    assert raw.getvalue().decode() == GOLDEN.encode("ascii", "replace").decode()
    piped = io.StringIO()
    console.show(GOLDEN, piped)
    assert piped.getvalue() == GOLDEN
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    plain = io.StringIO()
    console.show(GOLDEN, plain)
    assert "\x1b[32m" not in plain.getvalue()


def test_colour_marks_savings_and_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = io.StringIO()
    console.show(GOLDEN, coloured)
    assert "\x1b[32m-30.1 %\x1b[0m" in coloured.getvalue()
    assert "\x1b[31m+4.0 %\x1b[0m" in coloured.getvalue()


def test_no_records() -> None:
    assert console.render([]) == "no records\n"


SHARES = st.one_of(st.none(), st.floats(0, 1), st.integers(0, 2))
NUMBERS = st.one_of(st.none(), st.integers(0, 10**30), st.floats(0, 1e300))
FIGURES = [
    ("flops.executed", "FLOP"),
    ("flops.routed", "FLOP"),
    ("flops.dense", "FLOP"),
    ("latency.p50", "s"),
    ("energy.gross", "J"),
    ("quality.accuracy", "1"),
    ("quality.bpc", "bit"),
    ("routing.alpha_soft", "1"),
    ("routing.alpha_hard", "1"),
    ("routing.tlops_saved", "1"),
    ("routing.budget", "1"),
    ("routing.head_fraction", "1"),
    ("some.other", "furlong"),
]


@st.composite
def any_record(draw: st.DrawFn) -> AuditRecord:
    chosen = draw(st.lists(st.sampled_from(FIGURES), unique=True))
    layers = [
        LayerRow(layer=i + 1, alpha_hard=draw(SHARES), exit_share=draw(SHARES), budget=draw(SHARES))
        for i in range(draw(st.integers(0, 2)))
    ]
    modules = [ModuleRow(path=path, flops=draw(st.integers(0, 10**15)), calls=1) for path in ("", "a", "a.b")]
    return record(
        draw(st.one_of(st.sampled_from(["dense", "tsa"]), st.text(min_size=1, max_size=90))),
        draw(st.sampled_from(["dense", "tsa"])),
        [
            figure(
                name,
                draw(SHARES if unit == "1" else NUMBERS),
                unit,
                source="measured",
                samples=draw(st.lists(st.floats(0, 9), max_size=6)),
            )
            for name, unit in chosen
        ],
        workload=WORKLOAD.model_copy(update={"sha256": draw(st.sampled_from(["a", "b"]))}),
        fingerprint=draw(st.sampled_from(["a", "b"])),
        layers=layers,
        modules=draw(st.sampled_from([[], modules])),
        profile=draw(st.sampled_from([{}, {"name": "x", "size": {"n_layers": 3}}, {"size": 4}])),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(any_record(), max_size=3))
def test_text_renderers_never_crash_and_fit(records: Sequence[AuditRecord]) -> None:
    assert fits(console.render(records))
    for one in records:
        assert fits(console.render_profile(one))
    assert csv.render(records)
    assert markdown.render(records)


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(st.lists(any_record(), max_size=3))
def test_html_never_crashes(records: Sequence[AuditRecord]) -> None:
    assert html.render(records, examples()).endswith("</html>")
