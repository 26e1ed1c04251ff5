from concur_proxy.windows.pace import Pace


def test_a_change_begins_a_period_from_when_it_was_decided():
    pace = Pace(10.0)
    assert not pace.rests(16.0, now=0.0)
    assert pace.rests(18.0, now=1.0)
    assert pace.rests(18.0, now=8.9)
    assert not pace.rests(18.0, now=9.0)


def test_where_nothing_changes_there_is_nothing_to_rest_from():
    pace = Pace(10.0)
    assert not any(pace.rests(16.0, now=float(now)) for now in range(5))
