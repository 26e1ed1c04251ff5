import pytest

from concur_proxy import pictures
from concur_proxy.bench.plots import History, draw, recent_hit_rates
from concur_proxy.bench.report import Progress, Tally
from concur_proxy.errors import ConfigError
from concur_proxy.model import Usage


def moment(at, prompts, cached):
    return Progress(elapsed_s=at, prompt_tokens=prompts, cached_tokens=cached)


def test_the_hit_rate_is_that_of_the_last_seconds():
    moments = [moment(0, 0, None), moment(5, 100, 10), moment(12, 200, 110), moment(30, 200, 110), moment(31, 300, 110)]
    assert recent_hit_rates(moments) == ([5, 12, 31], [0.1, 1.0, 0.0])


def test_runs_are_drawn(tmp_path):
    tally, history = Tally(1, 1), History()
    tally.answered(Usage(1000, 50, 250), reusable=0, duration_s=3.0, ttft_s=None)
    tally.session_ended("a", 12.0, completed=True, turns_per_s=0.5)
    history.add("direct", 0, tally.progress(1.0))
    picture = tmp_path / "runs.svg"
    draw(picture, history, {"direct": [tally.report(2.0)]})
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(("name", "word"), [("x.txt", "must end in"), ("no/x.png", "there is no folder")])
def test_a_picture_that_cannot_be_written_is_told_before_the_run(tmp_path, name, word):
    with pytest.raises(ConfigError, match=word):
        pictures.check(tmp_path / name)
