"""The same interval for many, one timer."""

from concur_proxy.gateway.rounds import Rounds
from tests.gateway.harness import run, until


class Member:
    def __init__(self):
        self.rounds = 0

    def on_round(self):
        self.rounds += 1


def test_all_are_called_by_one_timer_until_they_stop(loop):
    async def main():
        rounds, members = Rounds(0.01), [Member() for _ in range(100)]
        for one in members:
            rounds.start(one)
        timer = rounds._timer
        for one in members:
            rounds.start(one)
        assert rounds._timer is timer
        await until(lambda: all(one.rounds >= 3 for one in members))
        counts = {one.rounds for one in members}
        assert max(counts) - min(counts) <= 1
        for one in members[1:]:
            rounds.stop(one)
        before = members[1].rounds
        at = members[0].rounds
        await until(lambda: members[0].rounds >= at + 3)
        assert members[1].rounds == before
        rounds.stop(members[0])
        await until(lambda: rounds._timer is None)

    run(main(), loop)
