import pytest


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request):
    return request.param
