import json

import pytest

from concur_proxy.bench.conversation import EMBEDDED_WORDS, Conversation, History, read_words
from concur_proxy.errors import ConfigError
from concur_proxy.sim import tokens
from concur_proxy.sim.workload import SessionScript, TurnScript

SCRIPT = SessionScript("a", 40, (TurnScript(100, 10, 0.0), TurnScript(50, 10, 0.0), TurnScript(60, 10, 0.0, True)))


def conversation(script=SCRIPT, history=History.FULL, seed=0):
    return Conversation(script, EMBEDDED_WORDS, history=history, seed=seed)


def messages(talk):
    return json.loads(talk.body({"model": "m"}))["messages"]


def played(talk):
    """Prompt tokens of each turn, as the embedded engine counts them."""
    prompts = []
    for turn in SCRIPT.turns:
        talk.ask(turn)
        prompts.append(tokens.count(tokens.chat(messages(talk))))
        talk.answered("".join(f" {word}" for word in EMBEDDED_WORDS[: turn.output_tokens]))
    return prompts


def test_prompts_are_as_long_as_the_script_says():
    assert played(conversation()) == list(SCRIPT.prompts())


def test_a_turn_repeats_all_before_it():
    talk = conversation()
    talk.ask(SCRIPT.turns[0])
    first = messages(talk)
    talk.answered(" said")
    talk.ask(SCRIPT.turns[1])
    assert messages(talk)[:2] == first
    assert [message["role"] for message in messages(talk)] == ["system", "user", "assistant", "user"]
    assert messages(talk)[2]["content"] == " said"


def test_a_rewrite_starts_again_from_the_prefix():
    talk = conversation()
    for turn in SCRIPT.turns:
        talk.ask(turn)
    assert [message["role"] for message in messages(talk)] == ["system", "user"]


def test_some_clients_drop_what_was_generated():
    talk = conversation(history=History.WITHOUT_GENERATED)
    talk.ask(SCRIPT.turns[0])
    talk.answered(" said")
    talk.ask(SCRIPT.turns[1])
    assert [message["role"] for message in messages(talk)] == ["system", "user", "user"]


def test_sessions_share_the_beginning_and_nothing_else():
    long, short = (conversation(SessionScript(name, prefix, SCRIPT.turns)) for name, prefix in [("b", 90), ("c", 30)])
    for talk in (long, short):
        talk.ask(SCRIPT.turns[0])
    (long_system, long_user), (short_system, short_user) = messages(long), messages(short)
    assert long_system["content"].startswith(short_system["content"])
    assert long_user["content"] != short_user["content"]


def test_the_same_seed_says_the_same():
    assert played_text(conversation()) == played_text(conversation())
    assert played_text(conversation()) != played_text(conversation(seed=1))


def played_text(talk):
    talk.ask(SCRIPT.turns[0])
    return talk.body({})


@pytest.mark.parametrize("text", ['["one", "two"]', '{"one": 1, "two": 2}', "one\ntwo\n", "one two"])
def test_word_lists(tmp_path, text):
    path = tmp_path / "words"
    path.write_text(text)
    assert read_words(path) == ("one", "two")


def test_word_lists_that_are_none(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_words(tmp_path / "missing")
    empty = tmp_path / "empty"
    empty.write_text("[]")
    with pytest.raises(ConfigError, match="no words"):
        read_words(empty)
