"""From headers to callers: remembering changes nothing, what is taken back is gone at once, guesses fill no memory."""

from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.auth import access as module
from concur_proxy.auth.access import Access
from concur_proxy.auth.caller import Caller
from concur_proxy.auth.keys import Keyrings, new_key, parse, with_key

KEY, OTHER, SHORT = new_key(), new_key(), new_key()
TEXT = with_key(with_key("", "f", KEY, "a"), "f", OTHER, "b")
RINGS = Keyrings([parse(with_key(TEXT, "f", SHORT, "c", expires="2027-01-31"), "f")])
END = 1801353600.0

TOLD = st.sampled_from(
    [
        f"Bearer {KEY}",
        f"bearer  {KEY} ",
        KEY,
        OTHER,
        SHORT,
        f"Bearer {SHORT}",
        f"Basic {KEY}",
        "",
        " ",
        "Bearer",
        "x" * 99,
    ]
)
HEADERS = st.dictionaries(st.sampled_from(["authorization", "x-api-key", "x-other"]), TOLD)


def name(caller: Caller | None) -> str | None:
    return None if caller is None else caller.name


@given(requests=st.lists(st.tuples(HEADERS, st.sampled_from([END - 1, END])), max_size=20))
def test_what_is_remembered_changes_no_answer(requests):
    now = [0.0]
    long_lived = Access(RINGS, clock=lambda: now[0])
    for headers, now[0] in requests:
        fresh = Access(RINGS, clock=lambda: now[0])
        assert name(long_lived.caller(headers)) == name(fresh.caller(headers))


def test_a_key_comes_as_bearer_or_as_x_api_key_and_authorization_counts_first():
    access = Access(RINGS)
    assert name(access.caller({"authorization": f"Bearer {KEY}"})) == "a"
    assert name(access.caller({"authorization": f"bEARER {KEY}", "x-api-key": OTHER})) == "a"
    assert name(access.caller({"x-api-key": OTHER})) == "b"
    assert access.caller({"authorization": "Bearer wrong", "x-api-key": OTHER}) is None
    assert access.caller({"authorization": f"Basic {KEY}"}) is None
    assert access.caller({}) is None


def test_ways_to_write_one_key_fill_no_memory():
    access = Access(RINGS)
    for spaces in range(1, 200):
        assert name(access.caller({"authorization": f"Bearer{' ' * spaces}{KEY}{' ' * spaces}"})) == "a"
    assert not access._known
    access.caller({"authorization": f"Bearer {KEY}"})
    assert len(access._known) == 1


def test_a_key_that_has_expired_is_not_taken_though_it_was_known():
    now = [END - 1]
    access = Access(RINGS, clock=lambda: now[0])
    assert name(access.caller({"x-api-key": SHORT})) == "c"
    now[0] = END
    assert access.caller({"x-api-key": SHORT}) is None
    assert name(access.caller({"x-api-key": KEY})) == "a"


def test_a_key_that_is_taken_back_is_gone_with_the_next_request():
    access = Access(RINGS)
    assert access.caller({"x-api-key": KEY}) is not None
    access.replace_keys(Keyrings([parse(with_key("", "f", OTHER, "b"), "f")]))
    assert access.caller({"x-api-key": KEY}) is None
    assert name(access.caller({"x-api-key": OTHER})) == "b"


class AllTokens:
    def __init__(self):
        self.asked = 0

    def verify(self, token):
        self.asked += 1
        return Caller(token, f"jwt:{token}") if token.startswith("good") else None


def test_guesses_fill_no_memory_and_what_is_good_is_bounded():
    tokens = AllTokens()
    access = Access(tokens=tokens)
    for number in range(module.MAX_REMEMBERED + 100):
        assert access.caller({"x-api-key": f"bad {number}"}) is None
    assert not access._known
    for number in range(module.MAX_REMEMBERED + 100):
        assert access.caller({"x-api-key": f"good {number}"}) is not None
    assert 0 < len(access._known) <= module.MAX_REMEMBERED


def test_a_good_token_is_checked_once_and_an_endless_one_never():
    tokens = AllTokens()
    access = Access(tokens=tokens)
    assert [name(access.caller({"authorization": "Bearer good"})) for _ in range(3)] == ["good"] * 3
    assert tokens.asked == 1
    assert access.caller({"authorization": "Bearer good" + "x" * module.MAX_CREDENTIAL}) is None
    assert tokens.asked == 1


def test_who_is_vouched_for_needs_no_key_until_that_is_taken_back():
    access = Access(RINGS)
    told = access.vouch(Caller("d", "jwt:d"))
    access.forget()
    assert name(access.caller({"authorization": told})) == "d"
    assert told != access.vouch(Caller("d", "jwt:d"))
    access.withdraw(told)
    assert access.caller({"authorization": told}) is None


@given(st.none() | st.lists(st.sampled_from(["a", "b", "c*", "*"]), unique=True))
def test_models_of_a_caller_make_another_one_like_it(models):
    caller = Caller("a", "key:a", models=models)
    like = Caller("a", "key:a", models=caller.models)
    assert [like.may_use(model) for model in (None, "a", "b", "cc", "d")] == [
        caller.may_use(model) for model in (None, "a", "b", "cc", "d")
    ]
