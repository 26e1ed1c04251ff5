"""The clients that people use, unchanged but for ``base_url``."""

import pytest

pytest.register_assert_rewrite("tests.clients.openai_behaviour", "tests.clients.stack")
