"""API keys and their file: what is in it opens nothing, what is wrong is said, one more key changes nothing else."""

import math
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concur_proxy.auth.files import add_key
from concur_proxy.auth.keys import Keyring, Keyrings, digest, new_key, parse, with_key
from concur_proxy.errors import ConfigError

SALT, CODE = "a" * 64, "b" * 64
NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=30)


def test_a_key_has_256_random_bits_and_a_prefix_that_scanners_find():
    made = {new_key() for _ in range(1000)}
    assert len(made) == 1000
    assert all(key.startswith("ck_") and len(key) == len("ck_") + 43 for key in made)


@given(names=st.lists(NAMES, min_size=1, max_size=5))
def test_every_key_of_a_file_is_found_by_its_name_and_none_is_in_it(names):
    text, made = "", {}
    for name in names:
        key = new_key()
        text, made[key] = with_key(text, "f", key, name), name
    ring = parse(text, "f")
    assert {key: ring.find(key).name for key in made} == made
    assert not any(key in text or key.removeprefix("ck_") in text for key in made)
    assert not any(
        ring.find(wrong) for key in made for wrong in (key[:-1], key + "A", key.swapcase(), "", digest(key, b""))
    )


@given(before=st.lists(NAMES, min_size=1, max_size=3), name=NAMES, models=st.lists(NAMES, max_size=3))
def test_one_more_key_leaves_the_rest_of_the_file_as_it_was(before, name, models):
    text = ""
    for one in before:
        text = with_key(text, "f", new_key(), one) + "# a remark\n"
    key = new_key()
    after = with_key(text, "f", key, name, models=models)
    assert after.startswith(text)
    caller = parse(after, "f").find(key)
    assert caller.is_restricted == bool(models)
    assert all(caller.may_use(model) for model in models)


def test_the_same_key_has_another_hmac_in_another_file():
    key = new_key()
    assert with_key("", "f", key, "a").splitlines()[-1] != with_key("", "f", key, "a").splitlines()[-1]


class NeverCompared(str):
    """A key whose comparison with anything would be noticed."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        raise AssertionError("a key was compared")


def test_keys_are_never_compared():
    key = new_key()
    ring = parse(with_key("", "f", key, "a"), "f")
    assert ring.find(NeverCompared(key)).name == "a"
    assert ring.find(NeverCompared(new_key())) is None


def test_models_are_names_or_beginnings():
    caller = parse(with_key("", "f", key := new_key(), "a", models=["one", "llama*"]), "f").find(key)
    assert [caller.may_use(model) for model in ("one", "llama", "llama-3", "ones", "two", "", None)] == [
        *(True, True, True),
        *(False, False, False, False),
    ]


def test_a_key_ends_at_the_beginning_of_its_day():
    text = with_key("", "f", key := new_key(), "a", expires="2027-01-31")
    assert parse(text, "f").find(key).expires_at == 1801353600
    assert parse(text.replace('"2027-01-31"', "2027-01-31"), "f").find(key).expires_at == 1801353600
    assert parse(with_key("", "f", key, "a"), "f").find(key).expires_at == math.inf


def test_keys_of_two_files_are_found():
    first, second = new_key(), new_key()
    rings = Keyrings([parse(with_key("", "f", first, "a"), "f"), parse(with_key("", "g", second, "b"), "g")])
    assert [rings.find(first).name, rings.find(second).name, rings.find(new_key())] == ["a", "b", None]
    assert Keyrings().find(first) is None
    assert Keyring().find(first) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "must hold `salt` and `keys`"),
        ("{", "not valid YAML"),
        ("keys: []", "salt must be 64"),
        (f"{{salt: {SALT}, kees: []}}", "and nothing else"),
        (f"{{salt: {SALT}, keys: a}}", "keys must be a list"),
        (f"{{salt: {SALT}, keys: [a]}}", "keys[0] must have name and hmac"),
        (f"{{salt: {SALT}, keys: [{{name: a, hmac: {CODE}, model: b}}]}}", "keys[0] must have name and hmac"),
        (f"{{salt: {SALT}, keys: [{{hmac: {CODE}}}]}}", "keys[0].name must be"),
        (f"{{salt: {SALT}, keys: [{{name: '', hmac: {CODE}}}]}}", "keys[0].name must be"),
        (f'{{salt: {SALT}, keys: [{{name: "a\\nb", hmac: {CODE}}}]}}', "keys[0].name must be"),
        (f"{{salt: {SALT}, keys: [{{name: a, hmac: {CODE[1:]}}}]}}", "keys[0].hmac must be 64"),
        (f"{{salt: {SALT}, keys: [{{name: a, hmac: {CODE}, models: []}}]}}", "keys[0].models must be"),
        (f"{{salt: {SALT}, keys: [{{name: a, hmac: {CODE}, models: [1]}}]}}", "keys[0].models must be"),
        (f"{{salt: {SALT}, keys: [{{name: a, hmac: {CODE}, expires: soon}}]}}", "keys[0].expires must be a date"),
        (f"{{salt: {SALT}, keys: [{{name: a, hmac: {CODE}, expires: 2027-01-31 10:00:00}}]}}", "must be a date"),
        (f"{{salt: {SALT}, keys: [{{name: a, hmac: {CODE}}}, {{name: b, hmac: {CODE}}}]}}", "a key is listed twice"),
    ],
)
def test_what_is_wrong_is_said_without_a_secret(text, said):
    with pytest.raises(ConfigError) as error:
        parse(text, "keys.yaml")
    assert error.value.message.startswith("keys.yaml")
    assert said in error.value.message
    assert SALT not in error.value.message
    assert CODE[1:] not in error.value.message


def test_a_file_that_goes_on_after_its_keys_is_not_touched(tmp_path):
    path = tmp_path / "keys.yaml"
    path.write_text(before := f"keys: []\nsalt: {SALT}\n")
    with pytest.raises(ConfigError):
        add_key(path, "a")
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_its_owners_and_keeps_the_group_and_mode_that_it_was_given(tmp_path):
    path = tmp_path / "keys.yaml"
    keys = [add_key(path, "a")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 0, 65532)
    owner = path.stat().st_uid, path.stat().st_gid
    keys.append(add_key(path, "b", models=["m"], expires="2030-01-01"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (path.stat().st_uid, path.stat().st_gid) == owner
    ring = parse(path.read_text(), "f")
    assert [ring.find(key).name for key in keys] == ["a", "b"]


@pytest.mark.parametrize(("name", "expires"), [("", None), ("a\tb", None), (" a", None), ("a", "31.1.2027")])
def test_what_cannot_be_used_makes_no_file(tmp_path, name, expires):
    with pytest.raises(ConfigError):
        add_key(tmp_path / "keys.yaml", name, expires=expires)
    assert list(tmp_path.iterdir()) == []
