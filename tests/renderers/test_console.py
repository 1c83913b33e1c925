import io
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from effaudit.example_table import ExampleTable
from effaudit.record import AuditRecord, Caution, LayerRow, ModuleRow, SeedRow
from effaudit.renderers import console, csv, html, markdown
from effaudit.renderers._sentence import sentence
from tests.fakes_findings import complete, with_layers
from tests.fakes_records import WORKLOAD, dense, everyone, examples, figure, latency, record, table, tsa

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
tsa            93.9 % c?  -45.0 % c  -42.0 % c -30.1 % c+  +4.0 % m!  +3.1 % ~?
budgetformer   90.0 % c!  -69.0 % c  -62.5 % c  -8.0 % c+ -25.0 % m+ -25.0 % ~?
early_exit     94.2 % c=  -30.0 % c  -30.0 % c -20.0 % c+   0.0 % m?          –
-------------------------------------------------------------------------------
c counted, m measured, ~ modelled, – unavailable
against the reference: + better, ! worse, = equal, ? no difference beyond doubt

dense is the reference: accuracy 94.2 %, FLOPs per pass 50.0 GFLOP, latency per
  batch 12.0 ms, peak memory 12.0 MB, energy per pass 3.20 J, parameters 1.23 M.
tsa: claims 45.0 % (soft), skips 42.0 % (hard), runs 30.1 % fewer FLOPs, takes
  4.0 % more time [4.0, 4.0] than dense: not faster, the saving does not arrive
  on the clock; accuracy drops 0.30 points [-1.77, 2.37], not distinguishable on
  1000 examples.
budgetformer: claims 69.0 % (soft), skips 62.5 % (hard), runs 8.0 % fewer FLOPs,
  takes 25.0 % less time [25.0, 25.0] than dense: all of the FLOPs saving and
  more arrives on the clock; accuracy drops 4.20 points [1.84, 6.56].
early_exit: claims 30.0 % (hard), skips 30.0 % (hard), runs 20.0 % fewer FLOPs,
  takes 0.0 % time [0.0, 0.0] against dense: no difference on the clock is
  shown; accuracy unchanged.

From claim to clock      change  # saved, + added   95 % interval    leaked
tsa           claimed  -45.0 % c  #########...........
              skipped  -42.0 % c  ########............                  +3.0 pt
              FLOPs    -30.1 % c  ######..............                 +11.9 pt
              latency   +4.0 % m  +...................     [4.0, 4.0]  +34.1 pt
              energy    +3.1 % ~  +...................                  -0.9 pt
budgetformer  claimed  -69.0 % c  ##############......
              skipped  -62.5 % c  ############........                  +6.5 pt
              FLOPs     -8.0 % c  ##..................                 +54.5 pt
              latency  -25.0 % m  #####............... [-25.0, -25.0]  -17.0 pt
              energy   -25.0 % ~  #####...............                   0.0 pt
early_exit    claimed  -30.0 % c  ######..............
              skipped  -30.0 % c  ######..............                   0.0 pt
              FLOPs    -20.0 % c  ####................                 +10.0 pt
              latency    0.0 % m  ....................     [0.0, 0.0]  +20.0 pt

Skipped by layer (%)
                       1          2          3          4
tsa            .....   0  ##...  40  ###..  60  ####.  80
budgetformer   ###..  62  ###..  62  ###..  62  ###..  62
early_exit     .....   0  .....  10  ##...  40  ####.  70

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
    for text in (console.render(everyone()), console.render(complete(), examples()), console.render_profile(tsa())):
        assert text.encode("cp1252").decode("cp1252") == text


def test_work_beside_products_has_a_block_where_it_was_counted() -> None:
    work = [figure("flops.elementwise", 17_500_000, "FLOP"), figure("bytes.gathered", 800_000, "B")]
    text = console.render([record("dense", measurements=work), record("tsa", measurements=work[:1])])
    lines = text.splitlines()
    start = lines.index("Work beside products, no part of the FLOPs above")
    assert [line.split() for line in lines[start + 1 : start + 4]] == [
        ["per", "element", "gather,", "scatter"],
        ["dense", "17.5", "MFLOP", "c", "800", "kB", "c"],
        ["tsa", "17.5", "MFLOP", "c"],
    ]
    assert "Work beside products" not in console.render(everyone())
    assert fits(text)


def test_a_profile_shows_totals_layers_modules_and_methods() -> None:
    text = console.render_profile(dense())
    assert "  flops.executed                  50.0 GFLOP c\n" in text
    assert "  latency.p50                        12.0 ms m  [11.9 ms, 12.1 ms]\n" in text
    assert "    blocks                         48.0 GFLOP   96.0 % #############.        32" in text
    assert "        attn                       4.00 GFLOP    8.0 % #.............        32" in text
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
    assert "runs 30.1 % fewer FLOPs" in said
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


def test_the_interval_of_a_quality_is_that_of_the_change_that_is_named() -> None:
    def answers(name: str, right: int) -> AuditRecord:
        correct = [1.0] * right + [0.0] * (100 - right)
        measured = figure("quality.accuracy", right / 100, better="higher", source="measured")
        workload = WORKLOAD.model_copy(update={"n_examples": 100})
        found = record(name, measurements=[measured], workload=workload)
        return found.with_table(ExampleTable(None, {"index": range(100), "correct": correct}))

    better, same = answers("tsa", 92), answers("early_exit", 81)
    records = [answers("dense", 80), better, same]
    assert re.search(r"accuracy rises 12.00 points \[[4-8]\.\d\d, 1[6-9]\.\d\d\]\.", sentence(better, records))
    assert "accuracy rises 1.00 points [0.00," in sentence(same, records)
    assert "not distinguishable on 100 examples" in sentence(same, records)
    fewer = answers("tsa", 68)
    said = sentence(fewer, [answers("dense", 80), fewer])
    assert re.search(r"accuracy drops 12.00 points \[[4-8]\.\d\d, 1[6-9]\.\d\d\]\.", said)


def test_quality_of_several_seeds_is_their_mean_with_its_spread() -> None:
    def answers(name: str, first: float, second: float) -> AuditRecord:
        measured = [figure("quality.accuracy", part, better="higher", source="measured") for part in (first, second)]
        twin = SeedRow(seed=1, weights_sha256=None, measurements=(measured[1],))
        return record(name, measurements=[measured[0]]).model_copy(update={"seeds": (twin,)})

    text = console.render([answers("dense", 0.90, 0.94), answers("tsa", 0.80, 0.82)])
    assert "dense is the reference: accuracy 92.0 % (mean of 2 seeds, 90.0 % to 94.0 %)" in text
    assert "\ntsa            81.0 % m" in text


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


def test_colour_marks_what_is_better_or_worse_beyond_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = io.StringIO()
    console.show(GOLDEN, coloured)
    text = coloured.getvalue()
    assert "\x1b[32m-30.1 % c+\x1b[0m" in text
    assert "\x1b[31m+4.0 % m!\x1b[0m" in text
    assert "\x1b[31m90.0 % c!\x1b[0m" in text
    assert " -45.0 % c " in text  # a claim is no saving yet
    assert "\x1b[1mCautions\x1b[0m" in text


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_wider_terminals_get_intervals_and_longer_names(width: int) -> None:
    long = "a_model_with_a_name_of_thirty_"
    records = [dense(), tsa().model_copy(update={"model": record(long, "tsa").model})]
    text = console.render(records, width=width)
    assert all(cell_len(line) <= width for line in text.splitlines())
    has_interval = "+4.0 % m! [4.0, 4.0]" in text
    is_on_one_line = any(line.startswith(long[:10]) and "93.9 %" in line for line in text.splitlines())
    assert (has_interval, is_on_one_line) == (width >= 100, width >= 120)


def test_columns_follow_the_terminal_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for asked, used in ((40, 80), (132, 132), (400, 160)):
        monkeypatch.setenv("COLUMNS", str(asked))
        assert console.columns(Terminal()) == used
        assert console.columns(io.StringIO()) == 80


def test_budgets_and_classes_are_shown_as_bars() -> None:
    text = console.render(complete(), examples())
    assert (
        """What runs, by difficulty of the examples (%)
                       1          2          3          4
tsa            ##...  40  ###..  55  ####.  70  ####.  85
"""
        in text
    )  # (1 + 3 alpha) / 4
    assert (
        """Skipped by class of tokens (%)
                   space  rare word
tsa            ####.  70  .....  10
"""
        in text
    )
    assert fits(text)


def test_one_cut_in_flops_is_shown_as_a_share_of_three_wholes() -> None:
    assert """FLOPs saved, as a share of three wholes (%)
               attention core       attention     whole model
tsa                 ####.  75       ##...  50       ##...  30
""" in console.render(complete())  # (50 - 34.95) / 50 of the whole model
    assert "three wholes" not in console.render(everyone())  # whose attention was not counted apart


def test_layers_that_do_not_fit_go_on_below() -> None:
    text = console.render([dense(), with_layers(tsa(), 8)])
    block = text[text.index("Skipped by layer") :].splitlines()
    assert block[1].split() == ["1", "2", "3", "4", "5", "6"]
    assert block[3].split() == ["7", "8"]
    assert block[4].split() == ["tsa", "##...", "50", "##...", "50"]
    assert fits(text)


def test_controls_stand_side_by_side_with_their_notes_below() -> None:
    assert """Controls                           quality  control less model            own is
tsa           random       accuracy 86.9 %  -7.00 [-8.00, -6.00]          better
              constant     accuracy 93.8 %  -0.10 [-0.40, 0.20]       not better
              fixed random      accuracy –  –                          not shown
  - the verdict on learned routing rests on: random (tsa)
  - trained with another routing (tsa: random)
  - the profile names no such weights (tsa: fixed random)
""" in console.render(complete())


def test_matches_say_what_was_reached_and_what_was_out_of_reach() -> None:
    text = " ".join(console.render(complete()).split())
    assert (
        "early_exit meets flops.executed of tsa (35.0 GFLOP) with threshold 0.830: 35.1 GFLOP on 256 examples of the "
        "calibration split, 40.0 GFLOP against 35.0 GFLOP on the audited split, +14.45 %; at that, accuracy 94.2 % "
        "against 93.9 %."
    ) in text
    assert (
        "budgetformer does not meet routing.alpha_hard of tsa (0.440): every setting keeps more, within reach: 0.500 "
        "to 0.900."
    ) in text


def test_a_caution_names_its_model_once() -> None:
    own = Caution(code="routing_not_better", text="the learned routing is not better than chance")
    named = Caution(code="elsewhere", text="tsa: trained by others")
    cautions = console.render([dense(), tsa(cautions=[own, named])]).partition("Cautions")[2]
    assert "  - the learned routing is not better than chance (tsa)\n" in cautions
    assert "  - trained by others (tsa)\n" in cautions


def test_a_model_that_is_a_control_is_called_one() -> None:
    profile = {"name": "example", "size": {"n_layers": 4}, "controls": {"trained": {"tsa": "tsa_random"}}}
    text = " ".join(console.render([dense(), tsa(), drawn(profile)]).split())
    assert "tsa_random (control of tsa, trained under fixed random routing): claims" in text
    assert "tsa: claims" in text
    unnamed = console.render([dense(), drawn({"name": "example", "controls": None})])
    assert "tsa_random (control, trained under fixed random routing): claims" in " ".join(unnamed.split())


def drawn(profile: dict[str, Any]) -> AuditRecord:
    """A tsa that was trained under fixed random routing."""
    fixed = {"name": "tsa_random", "options": {"routing": "random_fixed"}}
    model = tsa().model.model_copy(update=fixed)
    return tsa().model_copy(update={"model": model, "profile": profile})


def test_published_figures_stand_below_the_ladder_where_the_profile_asks() -> None:
    asked = tsa().model_copy(update={"profile": {"size": {"n_layers": 4}, "reference": ["tsa"]}})
    assert """Published, against dense there    claimed   latency
  TSA, Tiny-Shakespeare           -22.8 %    -2.2 %
  TSA, enwik8                     -13.9 %     0.0 %
  - tsa as published: claimed: TSA paper, arXiv 2605.05222, tables 2 and 3;
    skipped: the hard rate was never published: alpha is the mean of soft gates;
""" in console.render([dense(), asked])
    assert "Published" not in console.render([dense(), tsa()])


def test_what_is_spent_is_held_against_difficulty_with_length_held_fixed() -> None:
    levels = [float(i % 4) for i in range(400)]
    lengths = [20.0 + i % 7 for i in range(400)]
    spent = [0.1 * level + 0.05 * (i % 3) for i, level in enumerate(levels)]
    work = WORKLOAD.model_copy(update={"n_examples": 400})
    columns = {"correct": levels, "loss": levels, "heads": [None] * 400, "exit_layer": [None] * 400}
    columns |= {"difficulty": levels, "n_tokens": lengths, "alpha_hard": spent}
    columns |= {"flops_routed": lengths, "budget": [None] * 400}
    records = [record.model_copy(update={"workload": work}) for record in (dense(), tsa())]
    lines = console.render(records, {"tsa": table(**columns)}).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Follows difficulty?"))
    assert lines[start] == "Follows difficulty? Spearman's rho with level, 95 % interval"
    first, second = (line.split() for line in lines[start + 2 : start + 4])
    assert (first[:2], first[-1]) == (["tsa", "alpha_hard"], "yes")
    assert first[2].startswith("+0.9")
    assert first[5].startswith("+0.9")  # length says nothing about it
    assert (second[:2], second[-1]) == (["tsa", "flops_routed"], "doubt")
    assert max(map(len, lines)) <= 80


def test_records_of_two_machines_or_workloads_say_what_does_not_compare() -> None:
    assert "Mind:" not in console.render(everyone())
    elsewhere = tsa().model_copy(update={"environment": record(fingerprint="machine-b").environment})
    assert "Mind: these records are of 2 machines or settings: time, memory and energy" in console.render(
        [dense(), elsewhere]
    )
    other = tsa().model_copy(update={"workload": WORKLOAD.model_copy(update={"sha256": "workload-b"})})
    assert "Mind: these records are of 2 workloads" in console.render([dense(), other])


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
    assert fits(console.render(records, {r.model.name: examples()["tsa"] for r in records}))
    for one in records:
        assert fits(console.render_profile(one))
    assert csv.render(records)
    assert markdown.render(records)


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(st.lists(any_record(), max_size=3))
def test_html_never_crashes(records: Sequence[AuditRecord]) -> None:
    assert html.render(records, examples()).endswith("</html>")
