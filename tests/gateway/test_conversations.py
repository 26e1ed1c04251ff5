"""What a session's last turn began with is not read again, and a body tells what reading all of it tells."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from concur_proxy.gateway import conversations
from concur_proxy.gateway.body import LONG, facts
from concur_proxy.gateway.conversations import GROWTH, TAIL, Conversations
from concur_proxy.model import SessionKey
from tests.gateway.harness import Engine, Proxy, run
from tests.gateway.test_skim import IMAGE, MESSAGES, ODD, SESSION, TEXTS, check_that_the_readers_agree, told, written

OTHER = SessionKey("ns", "other")
SYSTEM = {"role": "system", "content": "You are a coding agent."}
COMPACT, SPACED = (",", ":"), (", ", ": ")


def chat(messages, separators=COMPACT, **fields):
    return json.dumps({"messages": messages, **fields}, separators=separators).encode()


def texts(count, size=50):
    return [{"role": ("user", "assistant")[number % 2], "content": f"{number} " * size} for number in range(count)]


def read(known, body, session=SESSION):
    return facts(body, conversations=known, session=session, long=0)


def check(known, body):
    assert told(read(known, body)) == told(facts(body))


@pytest.fixture
def skims(monkeypatch):
    """Bodies that were read from their first byte to their last."""
    found = []
    plain = conversations.skim
    monkeypatch.setattr(conversations, "skim", lambda body: found.append(body) or plain(body))
    return found


ROLED = st.builds(
    lambda message, role: {"role": role, **message}, MESSAGES, st.sampled_from(["system", "user", "tool"])
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "model": TEXTS | ODD,
        "stream": st.booleans() | ODD,
        "max_tokens": st.integers(0, 1 << 33) | ODD,
        "tools": st.lists(st.fixed_dictionaries({"type": ODD, "role": TEXTS}), max_size=3),
        "metadata": st.lists(ROLED, max_size=3),
        "priority": ODD,
    },
)


@st.composite
def conversation(draw):
    """The bodies of one session's turns: most go on from the last one, some do not; names may come twice."""
    separators = draw(st.sampled_from([COMPACT, SPACED, (" ,", ":")]))
    name, other = draw(st.permutations(["messages", "input"]))
    messages, bodies = draw(st.lists(ROLED, max_size=4)), []
    for _ in range(draw(st.integers(1, 4))):
        messages = draw(st.sampled_from([messages, messages[:-1], messages[1:]])) + draw(st.lists(ROLED, max_size=3))
        pairs = [*draw(FIELDS).items(), (name, messages), *draw(FIELDS).items()]
        if draw(st.integers(0, 9)) == 0:
            pairs.insert(draw(st.integers(0, len(pairs))), (draw(st.sampled_from([name, other])), draw(ODD)))
        if draw(st.integers(0, 9)) == 0:
            pairs.insert(
                draw(st.integers(0, len(pairs))), (draw(st.sampled_from([name, other])), draw(st.lists(ROLED)))
            )
        comma, colon = separators
        items = [f"{json.dumps(key)}{colon}{json.dumps(value, separators=separators)}" for key, value in pairs]
        bodies.append(("{" + comma.join(items) + "}").encode())
    return bodies


@settings(max_examples=60)
@given(conversation())
@example([chat([SYSTEM]), chat([SYSTEM, *texts(1)]), chat([SYSTEM, *texts(1), {"role": "user", "content": [IMAGE]}])])
def test_turn_after_turn_the_same_is_told(bodies):
    known = Conversations()
    for body in bodies:
        check(known, body)


@settings(max_examples=60)
@given(conversation(), st.integers(0, 60))
def test_beginnings_may_be_of_any_length(bodies, growth):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversations, "GROWTH", growth)
        known = Conversations()
        for body in bodies:
            check(known, body)


@settings(max_examples=40)
@given(written(), written())
def test_any_two_bodies_tell_what_they_tell_alone(one, other):
    known = Conversations()
    read(known, one)
    check(known, other)


CUT = chat([SYSTEM, *texts(3)])
AT = CUT.rindex(b',{"role":')


@pytest.mark.parametrize(
    "rest",
    [
        b'],"messages":[{"role":"user","content":"x"}],"model":"m"}',
        b'],"messages":null,"model":"m"}',
        b'],"messages":"x","model":"m"}',
        b'],"input":[],"model":"m"}',
        b'],"max_tokens":5,"max_tokens":6}',
        b',{"role":"system","content":"late"}],"model":"m"}',
        b',1],"model":"m"}',
        b'],"model":"m"',
        b'],"model":"m"}}',
        b',],"model":"m"}',
        b'"x"],"model":"m"}',
        b'}],"model":"m"}',
        b"]}",
        b"",
    ],
)
def test_whatever_follows_a_beginning_counts_as_it_does_there(rest):
    known = Conversations()
    read(known, CUT)
    check(known, CUT[:AT] + rest)


def test_media_count_whether_they_were_there_before_or_came_now(skims):
    known = Conversations()
    shown = {"role": "user", "content": [IMAGE]}
    listed = {"role": "user", "content": [{"type": "text", "text": "what is this"}]}
    messages = [SYSTEM, shown, *[listed] * 600]
    for _ in range(3):
        body = chat(messages)
        check(known, body)
        assert read(known, body).media_bytes == messages.count(shown) * len(IMAGE["image_url"]["url"])
        assert known.kept_bytes
        messages += [shown, listed]
    assert not skims


@pytest.mark.parametrize(
    "message", [b'{"role":"\xff"}', b'{"role":1e999}', b'{"content":["\xff"]}', b'{"source":"\xed\xa0"}']
)
@pytest.mark.parametrize("growth", [0, GROWTH])
def test_what_only_a_full_reading_notices_breaks_nothing(message, growth, monkeypatch):
    """Bytes that are no UTF-8, a number that no float can hold: in what began, and in what came to it."""
    monkeypatch.setattr(conversations, "GROWTH", growth)
    known, good = Conversations(), chat([SYSTEM, *texts(6)])
    bad = good.replace(b"]}", b",%b,%b]}" % (message, b",".join([b'{"role":"user"}'] * 3)))
    worse = bad.replace(b'"system"', b'"\xff"')
    for body in (good, bad, bad, worse, worse, good):
        found = read(known, body)
        assert (found.media_bytes, found.model) == (0, None)


@pytest.mark.parametrize("name", ["messages", "input"])
@pytest.mark.parametrize("separators", [COMPACT, SPACED])
def test_what_was_read_is_not_read_again(name, separators, skims):
    known, messages = Conversations(), [SYSTEM, *texts(6)]
    for _ in range(5):
        body = chat(messages, separators, model="m").replace(b'"messages"', b'"%b"' % name.encode())
        check(known, body)
        messages += texts(2)
    assert not skims


def test_an_end_that_changes_each_time_costs_no_more(skims):
    known = Conversations()
    for number in range(4):
        check(known, chat([SYSTEM, *texts(6), {"role": "user", "content": f"number {number}"}], model="m"))
    assert not skims


def test_tools_behind_the_conversation_do_not_count_as_messages(skims):
    """Of a list that ends as a conversation does no beginning is kept."""
    known, tools = Conversations(), [{"role": "tool", "function": {"name": "f"}}] * 3
    for _ in range(2):
        check(known, chat([{"content": "a", "role": "user"}], tools=tools))
    assert len(skims) == 2
    assert known.kept_bytes == 0


def test_a_conversation_that_grows_is_kept_up_to_its_last_message():
    known, messages = Conversations(), [SYSTEM, *texts(10)]
    read(known, chat(messages))
    first = known.kept_bytes
    messages += texts(2, size=GROWTH // 2)
    body = chat(messages)
    check(known, body)
    assert len(body) - TAIL < known.kept_bytes < len(body)
    assert known.kept_bytes > first + GROWTH // 2


def test_memory_is_bounded_and_the_oldest_go(skims):
    body = chat([SYSTEM, *texts(6)])
    known = Conversations(2 * len(body))
    for number in range(5):
        read(known, body, SessionKey("ns", str(number)))
        assert known.kept_bytes <= 2 * len(body)
    before = known.kept_bytes
    read(known, body, SessionKey("ns", "4"))
    assert known.kept_bytes == before
    nothing = Conversations(10)
    read(nothing, body)
    assert nothing.kept_bytes == 0
    assert not skims


def test_a_conversation_of_many_small_objects_is_not_kept():
    """Each would take many times the memory that it has as text."""
    known, body = Conversations(), chat([{"role": "system"}] * 600)
    for _ in range(2):
        check(known, body)
        assert known.kept_bytes == 0


def test_sessions_know_nothing_of_each_other():
    known = Conversations()
    read(known, CUT)
    before = known.kept_bytes
    check_that_the_readers_agree(CUT)
    assert read(known, CUT, OTHER).model is None
    assert known.kept_bytes == 2 * before


def test_turns_of_a_long_session_are_served_and_compared():
    """Over the wire: the engine gets each body as it was sent."""

    async def body():
        messages = [SYSTEM, *texts(300, size=LONG // 600)]
        async with Engine() as engine, Proxy((engine,)) as proxy:
            sent = []
            for _ in range(3):
                sent.append(chat(messages, model="m"))
                assert (await proxy.ask(sent[-1], headers=b"X-Session-ID: one\r\n")).status == 200
                assert LONG // 2 < proxy.handler.conversations.kept_bytes < len(sent[-1])
                messages += texts(2)
            assert [seen.body for seen in engine.seen] == sent

    run(body())
