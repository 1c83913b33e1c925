"""Running a model as meters do: cold once, and said where a device cannot."""

import pytest
import torch

from effaudit.errors import EffauditError
from tests.fakes import CPU, Scripted, batch, workload

MESSAGE = "The operator 'aten::_foo' is not currently implemented for the MPS device. If you want this op, see GitHub."


def fail(_):
    raise NotImplementedError(MESSAGE)


def test_what_mps_lacks_is_one_line_with_the_way_round():
    work = workload(fail, name="tsa", device=torch.device("mps"))
    with pytest.raises(EffauditError) as caught:
        work.run(batch())
    assert caught.value.message == (
        "`tsa` cannot run on mps: The operator 'aten::_foo' is not currently implemented for the MPS device"
    )
    assert "PYTORCH_ENABLE_MPS_FALLBACK=1" in caught.value.hint
    assert "mps+cpu_fallback" in caught.value.hint


def test_elsewhere_a_missing_function_is_a_bug_of_the_model():
    with pytest.raises(NotImplementedError, match="aten::_foo"):
        workload(fail, device=CPU).run(batch())


def test_a_model_is_cold_until_any_workload_has_run_it():
    model = Scripted(lambda _: None)
    first, second = workload(model), workload(model)
    assert first.is_cold
    first.run(batch())
    assert not first.is_cold
    assert not second.is_cold
    assert workload(lambda _: None).is_cold
