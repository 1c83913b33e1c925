"""What an audit found: measurements with their provenance, and the files they are kept in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import isclose
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, model_validator

from effaudit.errors import EffauditError
from effaudit.example_table import ExampleTable, Spill
from effaudit.files import write_atomically

SCHEMA_VERSION = 1

SAME_MEAN = 1e-5  # tables keep nine digits
MAX_TEXT_SAMPLES, MAX_SAMPLE_CHARACTERS = 10, 200  # stored and shown of a model, and of each sample

Better = Literal["lower", "higher", "neither"]
Source = Literal["counted", "measured", "modelled", "unavailable"]


class _Frozen(BaseModel):
    # Versions that add to a record keep its schema: what this one does not know, it keeps and does not show.
    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, protected_namespaces=())


class Caution(_Frozen):
    """A reason to distrust or complete a figure: a code for machines, a text and the next step for people."""

    code: str
    text: str
    hint: str = ""


class Measurement(_Frozen):
    """One figure with unit, direction, provenance; `value` is None exactly when unavailable, and `method` says why."""

    name: str
    unit: str
    better: Better
    source: Source
    method: str
    value: int | float | None
    samples: tuple[float, ...] = ()
    cautions: tuple[Caution, ...] = ()

    @model_validator(mode="after")
    def _value_matches_source(self) -> Measurement:
        if (self.value is None) != (self.source == "unavailable"):
            raise ValueError(f"{self.name}: value {self.value!r} does not fit source {self.source!r}")
        return self


def unavailable(name: str, unit: str, better: Better, reason: str, *cautions: Caution) -> Measurement:
    """The measurement that cannot be had, with the reason."""
    return Measurement(
        name=name, unit=unit, better=better, source="unavailable", method=reason, value=None, cautions=cautions
    )


class LayerRow(_Frozen):
    """Routing of one layer (1-based), means over real tokens; None where the variant makes no such choice."""

    layer: int
    head_fraction: float | None = None
    budget: float | None = None
    alpha_soft: float | None = None
    alpha_hard: float | None = None
    exit_share: float | None = None
    head_use: tuple[float, ...] = ()  # of each head or expert: share of tokens that run it, mean over examples


class ModuleRow(_Frozen):
    """FLOPs of one module path, own plus children, over the workload; `ops` are its own by op.

    `elementwise` FLOPs and `gathered` bytes, own plus children too, are None where they were not asked for.
    """

    path: str
    flops: int
    calls: int
    ops: dict[str, int] = {}
    elementwise: int | None = None
    gathered: int | None = None


class TokenClassRow(_Frozen):
    """Routing of one class of tokens (space, digit, rare word, …), means over its real tokens in the gated blocks."""

    name: str
    n_tokens: int
    loss: float | None = None
    alpha_soft: float | None = None
    alpha_hard: float | None = None
    exit_layer: float | None = None
    layers: tuple[float | None, ...] = ()  # share of the class kept in each layer, by the hard rule


class TextSample(_Frozen):
    """A stretch of the workload's text, token by token, with the number of layers that each token went through."""

    index: int  # of the example
    pieces: tuple[str, ...]
    layers_run: tuple[int, ...]  # by the hard rule, one a piece

    @model_validator(mode="after")
    def _one_a_piece(self) -> TextSample:
        if len(self.pieces) != len(self.layers_run):
            raise ValueError(f"{len(self.pieces)} pieces of text, layers of {len(self.layers_run)}")
        return self


class Match(_Frozen):
    """How a model's knob was set on the calibration split so that it meets another model's figure.

    `setting` and `reached` are None where nothing in reach meets `goal`; `reason` then says so with the
    `reachable` range.
    """

    model: str
    measurement: str
    knob: str
    goal: float
    setting: float | None
    reached: float | None
    reachable: tuple[float, float] | None = None
    reason: str = ""
    n_examples: int | None = None  # of the calibration split


class Control(_Frozen):
    """The same model under another routing: is what was learned better than chance at equal cost?

    `value` is the mean of `measurement` over the draws, `difference` the control's minus the model's own
    with its paired 95 % `interval`, `flops_ratio` executed FLOPs over the model's own, `rate` the share
    of token-blocks (stem excluded) or heads that run. `random_fixed` is a model trained so, the others are
    the same weights.
    """

    kind: Literal["random", "constant", "untrained", "soft", "random_fixed"]
    measurement: str
    n_draws: int
    value: float | None
    difference: float | None
    interval: tuple[float, float] | None
    flops_ratio: float | None
    note: str = ""
    rate: float | None = None
    n_examples: int | None = None


class SeedRow(_Frozen):
    """The same model trained from another seed: what depends on its weights, and its per-example table."""

    seed: int
    weights_sha256: str | None
    measurements: tuple[Measurement, ...]
    examples: str | None = None  # file name


class Findings(_Frozen):
    """What one meter found for one workload; the example rows of several meters are joined by index."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    measurements: tuple[Measurement, ...]
    layers: tuple[LayerRow, ...] = ()
    modules: tuple[ModuleRow, ...] = ()
    token_classes: tuple[TokenClassRow, ...] = ()
    text_samples: tuple[TextSample, ...] = ()
    choices: tuple[str, ...] = ()
    examples: Spill | None = None
    cautions: tuple[Caution, ...] = ()


class Environment(_Frozen):
    """The machine and software; `fingerprint` is the part that makes timings comparable."""

    device: str
    device_name: str
    torch: str
    python: str
    os: str
    cpu_model: str
    cpu_flags: tuple[str, ...]
    n_cpus: int
    threads: int
    dtype: str
    load_average: tuple[float, ...] | None
    git_commit: str | None
    fingerprint: str
    attention: Literal["own", "torch"] = "torch"  # whose kernel, wherever ours is usable: see `kernels`
    products: Literal["own", "torch"] = "torch"  # whose feed-forward layers and chosen rows: the quicker ones
    governor: str | None = None  # what sets the CPU's frequency, where the system tells
    peak_flop_per_s: float | None = None  # what large matrix products reach here; no model goes beyond


class ModelInfo(_Frozen):
    name: str
    variant: str
    options: dict[str, Any]  # resolved: every option of the variant with its value
    n_params: int
    weights_sha256: str | None
    run: dict[str, Any] = {}  # how it is run where that differs from the profile: dtype, threads, quantize, …
    swept: str | None = None  # the model that a sweep varied
    cell: dict[str, Any] = {}  # its place in the sweep's grid
    training: dict[str, Any] | None = None  # the training record that lies beside the weights
    match: Match | None = None
    tokens_per_pass: int | None = None  # through the layers at once; None is the whole batch


class WorkloadInfo(_Frozen):
    dataset: str
    split: str
    task: str
    n_examples: int
    n_tokens: int | None  # None where the inputs are no tokens
    n_padding: int | None
    batch_size: int
    sha256: str
    class_names: tuple[str, ...] = ()
    tokenizer: str | None = None  # identifies a model's own; the same texts are then another number of tokens


class AuditRecord(_Frozen):
    """Everything found about one model on one workload; self-describing, so old records stay readable.

    `choices` are those of `execution: auto`: a word a batch, in it a letter a layer, `s` where it skipped and `m` where
    it computed everything; batches that went through in parts have a word a part, joined by `/`.
    """

    schema_version: int = SCHEMA_VERSION
    created_utc: str
    effaudit_version: str
    profile: dict[str, Any]
    environment: Environment
    model: ModelInfo
    workload: WorkloadInfo
    measurements: tuple[Measurement, ...]
    layers: tuple[LayerRow, ...] = ()
    modules: tuple[ModuleRow, ...] = ()
    token_classes: tuple[TokenClassRow, ...] = ()
    text_samples: tuple[TextSample, ...] = ()
    choices: tuple[str, ...] = ()
    controls: tuple[Control, ...] = ()
    seeds: tuple[SeedRow, ...] = ()
    examples: str | None = None
    cautions: tuple[Caution, ...] = ()
    _table: ExampleTable | None = PrivateAttr(default=None)
    _seed_tables: dict[int, ExampleTable] = PrivateAttr(default_factory=dict)

    @property
    def table(self) -> ExampleTable | None:
        """The per-example table; None where there is none, it was left behind, or it is another audit's."""
        table = self._table
        if table is None or (table.path is not None and not table.path.is_file()):
            return None
        return table if self._fits(table) else None

    @property
    def seed(self) -> int:
        """The seed that the model was trained from, and that everything drawn was drawn from."""
        seed = (self.model.training or {}).get("seed", self.profile.get("seed"))
        return seed if isinstance(seed, int) else 0

    def values_by_seed(self, name: str) -> dict[int, float]:
        """A measurement of the model and of its twins of other seeds, where it is there."""
        rows = {row.seed: next((m.value for m in row.measurements if m.name == name), None) for row in self.seeds}
        values = {self.seed: self.value(name), **rows}
        return {seed: float(value) for seed, value in values.items() if value is not None}

    def tables_by_seed(self) -> dict[int, ExampleTable]:
        """The tables of the model and of its twins of other seeds that lie beside the record."""
        main = self.table
        if main is None:
            return {}
        for row in self.seeds:
            if row.seed not in self._seed_tables and row.examples is not None and main.path is not None:
                path = main.path.with_name(Path(row.examples).name)
                if path.is_file():
                    self._seed_tables[row.seed] = ExampleTable(path)
        return {self.seed: main, **self._seed_tables}

    def with_twins(self, others: Sequence[AuditRecord]) -> AuditRecord:
        """The same record, with records of other seeds as its twins."""
        rows = [
            SeedRow(seed=other.seed, weights_sha256=other.model.weights_sha256, measurements=other.measurements)
            for other in others
        ]
        record = self.model_copy(update={"seeds": tuple(rows)}).with_table(self._table)
        record._seed_tables = {other.seed: table for other in others if (table := other.table) is not None}
        return record

    def _fits(self, table: ExampleTable) -> bool:
        """Whether the rows are as many as the record's examples, with losses whose mean is the record's."""
        if len(table) != self.workload.n_examples:
            return False
        loss, mean = self.value("quality.loss"), table.mean("loss")
        return loss is None or mean is None or isclose(loss, mean, rel_tol=SAME_MEAN)

    def with_table(self, table: ExampleTable | None) -> AuditRecord:
        """The same record, which knows where its per-example table lies."""
        record = self.model_copy()
        record._table = table
        return record

    def __eq__(self, other: object) -> bool:
        """Where the table lies is no part of what was found."""
        return isinstance(other, AuditRecord) and self.__dict__ == other.__dict__

    def __getitem__(self, name: str) -> Measurement:
        for measurement in self.measurements:
            if measurement.name == name:
                return measurement
        raise KeyError(name)

    def get(self, name: str) -> Measurement | None:
        """The measurement of that name, or None where the audit did not ask for it."""
        return next((m for m in self.measurements if m.name == name), None)

    def value(self, name: str) -> int | float | None:
        """The value of a measurement, or None where it is absent or unavailable."""
        measurement = self.get(name)
        return measurement.value if measurement else None


def to_json(records: Iterable[AuditRecord]) -> str:
    """The one JSON document of the contract: `{"records": [...]}`, RFC 8259."""
    document = {"records": [record.model_dump(mode="json") for record in records]}
    return json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False)


def save_record(record: AuditRecord, path: Path) -> None:
    """Writes one record as JSON.

    Raises EffauditError when `path` exists (a record is never overwritten) or cannot be written.
    """
    if path.exists():
        raise EffauditError(f"`{path}` exists already", "records are never overwritten: choose another --out")
    text = json.dumps(record.model_dump(mode="json"), indent=1, allow_nan=False, ensure_ascii=False)
    write_atomically(path, text + "\n")


def load_record(path: str | Path) -> AuditRecord:
    """Reads one record.

    Raises EffauditError when the file is missing, is no record, or has a newer schema.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EffauditError(f"cannot read record `{path}`: {error.strerror}") from error
    except ValueError as error:
        raise EffauditError(f"`{path}` is not JSON: {error}", "records are written by `effaudit profile`") from error
    return record_from(data, path)


def record_from(data: object, path: Path) -> AuditRecord:
    """The record that `data`, read from `path`, describes.

    Raises EffauditError when it is no record, or has a newer schema.
    """
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise EffauditError(f"`{path}` is not an effaudit record: no schema_version")
    if version < 1:
        raise EffauditError(f"`{path}` has record schema {version}, this effaudit reads from 1 on", "audit again")
    if version > SCHEMA_VERSION:
        raise EffauditError(
            f"`{path}` has record schema {version}, this effaudit reads up to {SCHEMA_VERSION}", "upgrade effaudit"
        )
    try:
        record = AuditRecord.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise EffauditError(f"`{path}` is not a valid record: {where}: {first['msg']}") from error
    if record.examples is None:
        return record
    return record.with_table(ExampleTable(path.with_name(Path(record.examples).name)))
