import pytest

from tests.rig.vllmsim.concur_vllmsim.settings import VARIABLE, Device, StepCosts, StepWork


def test_a_device_reaches_the_engines_processes_as_it_was() -> None:
    device = Device("words.json", StepCosts(step=0.1, attention=1e-9), speed=3.0, end_probability=0.5, trace="steps")
    assert Device.read(device.variables()) == device
    assert list(device.variables()) == [VARIABLE]


def test_prefill_and_decode_are_told_apart() -> None:
    work = StepWork()
    work.add(computed=0, scheduled=100, prompt=300)  # a chunk
    work.add(computed=299, scheduled=1, prompt=300)  # a chunk of one token
    work.add(computed=300, scheduled=1, prompt=300)  # the second token of an answer
    assert (work.prefilled, work.decodes, work.context) == (101, 1, 300)
    assert work.pairs == 100 * 99 // 2 + 299


def test_a_step_costs_what_it_computes() -> None:
    costs = StepCosts(step=1.0, token=0.1, decode=0.01, context=0.001, attention=0.0001)
    assert costs.seconds(StepWork()) == 1.0
    work = StepWork(prefilled=10, decodes=2, context=50, pairs=100)
    assert costs.seconds(work) == pytest.approx(1.0 + 1.2 + 0.02 + 0.05 + 0.01)
