"""A real vLLM, as it should be started and as it is started by default."""

from __future__ import annotations

import pytest

from concur_proxy.doctor.examination import Permissions, examine
from tests.rig.engine import RigEngine
from tests.rig.environments import missing

pytestmark = pytest.mark.engine
SOON = Permissions(apart_s=0.1)


@pytest.mark.parametrize(("details", "wanted"), [(True, set()), (False, {"cached-tokens-untold"})])
def test_what_is_missing_at_a_real_vllm(details, wanted):
    if remedy := missing("vllm"):
        pytest.skip(remedy)
    with RigEngine("vllm", kv_tokens=16_384, speed=8, prompt_tokens_details=details) as engine:
        assert {finding.code for finding in examine(engine.url, SOON).findings} == wanted
