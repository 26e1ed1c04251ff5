import asyncio

import pytest

from concur_proxy.config import BackendSettings
from concur_proxy.errors import ConfigError
from concur_proxy.fleet import members as module
from concur_proxy.fleet.members import PATIENCE_S, Members
from concur_proxy.model import BackendId
from tests.control.engines import eventually

A, B, C = (BackendSettings(url=f"http://{name}:8000", name=name) for name in "abc")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.001)


class Port:
    """A proxy whose backends are up when the test says so; all serve the same model."""

    def __init__(self):
        self.here, self.up, self.busy, self.drained = {}, set(), set(), set()
        self.story = []
        self.leaving = asyncio.Event()
        self.leaving.set()

    def enter(self, settings):
        if settings.url.endswith(":666"):
            raise ConfigError("cannot be used")
        assert settings.id not in self.here
        self.here[settings.id] = settings
        self.story.append(("enter", settings.id))

    def drain(self, backend, *, drained):
        self.story.append(("drain" if drained else "undrain", backend))
        (self.drained.add if drained else self.drained.discard)(backend)

    def is_up(self, backend):
        return backend in self.up and backend not in self.drained

    def is_busy(self, backend):
        return backend in self.busy

    def has_stand_in(self, backend):
        return any(self.is_up(other) for other in self.here if other != backend)

    async def leave(self, backend):
        self.story.append(("leave", backend))
        await self.leaving.wait()
        del self.here[backend]


class Stand:
    def __init__(self):
        self.now = 0.0
        self.port = Port()
        self.members = Members(self.port, clock=lambda: self.now)

    def say(self, *backends, source="file"):
        self.members.say(source, backends)

    @property
    def here(self):
        return set(self.port.here)


def play(body):
    async def main():
        stand = Stand()
        await body(stand)
        await stand.members.aclose()

    asyncio.run(main())


async def some_looks():
    for _ in range(5):
        await asyncio.sleep(0.002)


def test_who_is_named_enters_and_who_is_not_named_any_more_leaves():
    async def body(stand):
        stand.say(A, B)
        stand.port.up |= {"a", "b"}
        stand.say(B, C)
        await eventually(lambda: stand.here == {"b", "c"})
        assert stand.port.story == [("enter", "a"), ("enter", "b"), ("enter", "c"), ("drain", "a"), ("leave", "a")]

    play(body)


def test_what_runs_there_ends_before_it_is_forgotten():
    async def body(stand):
        stand.say(A, B)
        stand.port.up |= {"a", "b"}
        stand.port.busy.add("a")
        stand.say(B)
        await eventually(lambda: "a" in stand.port.drained)
        await some_looks()
        assert stand.here == {"a", "b"}
        assert stand.members.is_leaving(BackendId("a"))
        stand.port.busy.clear()
        await eventually(lambda: stand.here == {"b"})

    play(body)


def test_the_last_one_that_is_up_goes_on_until_a_newcomer_is():
    async def body(stand):
        stand.say(A)
        stand.port.up.add("a")
        stand.say(B)
        await some_looks()
        assert stand.port.drained == set()
        stand.port.up.add("b")
        await eventually(lambda: stand.here == {"b"})

    play(body)


def test_a_newcomer_that_does_not_come_up_is_not_waited_for_for_ever():
    async def body(stand):
        stand.say(A)
        stand.port.up.add("a")
        stand.say(B)
        await some_looks()
        assert stand.here == {"a", "b"}
        stand.now = PATIENCE_S
        await eventually(lambda: stand.here == {"b"})

    play(body)


def test_where_nobody_is_about_to_come_even_the_last_one_leaves():
    async def body(stand):
        stand.say(A)
        stand.port.up.add("a")
        stand.say()
        await eventually(lambda: not stand.here)

    play(body)


def test_one_that_is_named_again_while_it_leaves_stays():
    async def body(stand):
        stand.say(A, B)
        stand.port.up |= {"a", "b"}
        stand.port.busy.add("a")
        stand.say(B)
        await eventually(lambda: "a" in stand.port.drained)
        stand.say(A, B)
        assert stand.port.drained == set()
        stand.port.busy.clear()
        await some_looks()
        assert stand.here == {"a", "b"}

    play(body)


def test_one_that_is_named_again_too_late_comes_back():
    async def body(stand):
        stand.say(A, B)
        stand.port.up |= {"a", "b"}
        stand.port.leaving.clear()
        stand.say(B)
        await eventually(lambda: ("leave", "a") in stand.port.story)
        stand.say(A, B)
        stand.port.leaving.set()
        await eventually(lambda: stand.port.story[-1] == ("enter", "a"))
        assert stand.here == {"a", "b"}

    play(body)


def test_one_that_is_described_anew_leaves_and_comes_back_as_described():
    async def body(stand):
        stand.say(A, B)
        stand.port.up |= {"a", "b"}
        other = BackendSettings(url="http://elsewhere:8000", name="a")
        stand.say(other, B)
        await eventually(lambda: stand.port.here.get("a") == other)

    play(body)


def test_one_stays_as_long_as_any_source_names_it():
    async def body(stand):
        stand.say(A, source="configuration")
        stand.say(A, B)
        stand.port.up |= {"a", "b"}
        stand.say(source="configuration")
        await some_looks()
        assert stand.here == {"a", "b"}
        stand.say(B)
        await eventually(lambda: stand.here == {"b"})

    play(body)


def test_one_url_under_two_names_is_one_backend():
    async def body(stand):
        stand.say(A, source="configuration")
        stand.say(BackendSettings(url=A.url, name="z"))
        assert stand.here == {"a"}

    play(body)


def test_each_data_parallel_rank_is_a_backend_and_all_are_drained_by_the_name_that_they_share():
    async def body(stand):
        stand.say(BackendSettings(url="http://gpu:8000", data_parallel_size=3))
        assert [(one, each.data_parallel_rank) for one, each in stand.port.here.items()] == [
            ("gpu:8000/dp0", 0),
            ("gpu:8000/dp1", 1),
            ("gpu:8000/dp2", 2),
        ]
        assert stand.members.drain(BackendId("gpu:8000/dp1"), drained=True)
        assert stand.port.drained == {"gpu:8000/dp1"}
        assert stand.members.drain(BackendId("gpu:8000"), drained=True)
        assert stand.port.drained == stand.here
        stand.say()
        await eventually(lambda: not stand.here)

    play(body)


def test_one_that_cannot_be_used_keeps_no_other_out():
    async def body(stand):
        with pytest.raises(ConfigError, match="cannot be used"):
            stand.say(BackendSettings(url="http://bad:666"), A)
        assert stand.here == {"a"}

    play(body)


def test_draining_is_remembered_over_a_departure_that_was_called_off():
    async def body(stand):
        stand.say(A, B)
        stand.port.up |= {"a", "b"}
        stand.port.busy.add("a")
        assert stand.members.drain(BackendId("a"), drained=True)
        assert not stand.members.drain(BackendId("nobody"), drained=True)
        stand.say(B)
        await some_looks()
        stand.say(A, B)
        assert stand.port.drained == {"a"}

    play(body)
