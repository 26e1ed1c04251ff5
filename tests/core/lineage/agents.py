"""Recorded agents given words: what they would send in each of the APIs, and a stage that plays them in their time."""

import heapq
import itertools
import json
from random import Random

from concur_proxy.core.lineage import talk_of
from concur_proxy.core.lineage.answers import AnswerReader
from concur_proxy.core.usage import PassiveReader

WORDS = [f"w{number}" for number in range(500)]
SYSTEM = "You are an agent. " * 20
TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {}}}]
TOKENS_PER_WORD = 100
"""Texts are this much shorter than what was recorded."""


class Answered:
    """One answer: what the engine says, before any API has given it a shape."""

    def __init__(self, random, tokens, calls_tool):
        self.text = text(random, max(tokens, 20 * TOKENS_PER_WORD))
        self.call = f"call_{random.getrandbits(64):x}" if calls_tool else None
        self.thought = text(random, 200)
        self.response_id = f"resp_{random.getrandbits(64):x}"


def text(random, tokens):
    return " ".join(random.choices(WORDS, k=max(3, tokens // TOKENS_PER_WORD)))


class Chat:
    """The history as the client of one API writes it."""

    def __init__(self, first):
        self.first = first
        self.restart(first)

    def restart(self, words):
        self.messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": words}]

    def fields(self):
        return {"model": "m", "messages": self.messages, "tools": TOOLS}

    def take(self, answer):
        """An older answer loses its reasoning when the next one comes."""
        for message in self.messages:
            message.pop("reasoning_content", None)
        said = {"role": "assistant", "content": answer.text, "reasoning_content": answer.thought}
        if answer.call:
            said["tool_calls"] = [
                {"id": answer.call, "type": "function", "function": {"name": "run", "arguments": "{}"}}
            ]
        self.messages.append(said)
        self.call = answer.call

    def say(self, words):
        if self.call:
            self.messages.append({"role": "tool", "tool_call_id": self.call, "content": words})
        else:
            self.messages.append({"role": "user", "content": words})

    def wire(self, answer):
        """The answer as the engine sends it."""
        first = {"role": "assistant", "content": ""}
        deltas = [
            first,
            {"reasoning_content": answer.thought},
            *({"content": f"{word} "} for word in answer.text.split()),
        ]
        if answer.call:
            deltas.append({"tool_calls": [{"index": 0, "id": answer.call, "function": {"name": "run"}}]})
            deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})
        return events({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": delta}]} for delta in deltas)


class Anthropic(Chat):
    def restart(self, words):
        self.messages = [{"role": "user", "content": words}]

    def fields(self):
        """The mark for the cache moves along with the last message, whose text becomes a list for it."""
        *before, last = self.messages
        content = last["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        marked = [*parts[:-1], {**parts[-1], "cache_control": {"type": "ephemeral"}}]
        system = [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]
        return {"model": "m", "system": system, "messages": [*before, {**last, "content": marked}], "tools": TOOLS}

    def take(self, answer):
        content = [{"type": "thinking", "thinking": answer.thought}, {"type": "text", "text": answer.text}]
        if answer.call:
            content.append({"type": "tool_use", "id": answer.call, "name": "run", "input": {"a": 1}})
        self.messages.append({"role": "assistant", "content": content})
        self.call = answer.call

    def say(self, words):
        result = {"type": "tool_result", "tool_use_id": self.call, "content": [{"type": "text", "text": words}]}
        self.messages.append({"role": "user", "content": [result] if self.call else words})

    def wire(self, answer):
        said = [{"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": answer.thought}}]
        deltas = ({"type": "text_delta", "text": f"{word} "} for word in answer.text.split())
        said += [{"type": "content_block_delta", "delta": delta} for delta in deltas]
        if answer.call:
            said.append({"type": "content_block_start", "content_block": {"type": "tool_use", "id": answer.call}})
        return events(said)


class Items(Chat):
    """The Responses API, the whole history sent each time."""

    def restart(self, words):
        self.items = [{"role": "user", "content": words}]

    def fields(self):
        return {"model": "m", "instructions": SYSTEM, "input": self.items, "tools": TOOLS}

    def take(self, answer):
        self.items += output(answer)
        self.call = answer.call

    def say(self, words):
        if self.call:
            self.items.append({"type": "function_call_output", "call_id": self.call, "output": words})
        else:
            self.items.append({"role": "user", "content": [{"type": "input_text", "text": words}]})

    def wire(self, answer):
        done = ({"type": "response.output_item.done", "item": item} for item in output(answer))
        return events([{"type": "response.created", "response": {"id": answer.response_id}}, *done])


class Responses(Items):
    """The Responses API, each request going on from the last response."""

    def restart(self, words):
        super().restart(words)
        self.previous = None

    def fields(self):
        return {**super().fields(), **({"previous_response_id": self.previous} if self.previous else {})}

    def take(self, answer):
        self.items, self.previous, self.call = [], answer.response_id, answer.call


class Prompts(Chat):
    """A plain prompt that grows."""

    def restart(self, words):
        self.prompt = f"{SYSTEM}\nUser: {words}\nAgent:"

    def fields(self):
        return {"model": "m", "prompt": self.prompt}

    def take(self, answer):
        self.prompt += f" {answer.text}"

    def say(self, words):
        self.prompt += f"\nUser: {words}\nAgent:"

    def wire(self, answer):
        return events([{"choices": [{"index": 0, "text": answer.text}]}])


APIS = {"chat": Chat, "messages": Anthropic, "items": Items, "responses": Responses, "prompts": Prompts}


def output(answer):
    said = [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": answer.thought}]}]
    content = [{"type": "output_text", "text": answer.text, "annotations": []}]
    said.append({"type": "message", "role": "assistant", "content": content})
    if answer.call:
        said.append({"type": "function_call", "call_id": answer.call, "name": "run", "arguments": "{}"})
    return said


def events(chunks):
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def read(wire):
    reader = AnswerReader(PassiveReader(streamed=True), streamed=True)
    for start in range(0, len(wire), 100):
        reader.feed(wire[start : start + 100])
    return reader.answer


class Player:
    """One agent on the stage."""

    def __init__(self, name, script, api, *, first, calls_tools=0.7):
        self.random = Random(name)
        self.script, self.api, self.calls_tools = script, api(first), calls_tools
        self.pace = self.random.uniform(0.5, 2)
        """Siblings have the same script, and each its own speed."""
        self.turn = 0
        self.last = None
        """The session that its last turn was counted to."""


class Stage:
    """Plays agents one event at a time, and counts whose turn was recognised as whose."""

    def __init__(self, lineage, *, retries=0.0, seed=0):
        self.lineage, self.retries = lineage, retries
        self.random = Random(seed)
        self.order = itertools.count()
        self.events = []
        self.owners = {}
        self.turns = self.right = 0
        self.mistakes = []

    def add(self, player, *, at=0.0):
        self.call(at, self.arrive, player)

    def call(self, at, what, *arguments):
        heapq.heappush(self.events, (at, next(self.order), what, arguments))

    def play(self):
        while self.events:
            now, _, what, arguments = heapq.heappop(self.events)
            what(now, *arguments)

    def arrive(self, now, player):
        found = self.lineage.recognise("key", talk_of(player.api.fields()))
        self.judge(player, found)
        player.last = found.session
        if self.random.random() < self.retries:
            self.call(now + 1, self.lose, player, found)
        else:
            self.call(now + 0.5, self.answer, player, found)

    def judge(self, player, found):
        """A turn belongs to where its agent's last one went; a first one, and one that rewrites, to nobody else's."""
        expected = player.last
        script = player.script.turns[player.turn]
        if expected is not None and script.rewrites:
            return
        self.turns += 1
        owner = self.owners.setdefault(found.session, player)
        right = owner is player if expected is None else found.session == expected
        self.right += right
        if not right:
            self.mistakes.append((player.script.id, player.turn, found.rule))

    def lose(self, now, player, found):
        """The turn fails, and its client tries again."""
        self.lineage.answered(found.run, completed=False)
        self.call(now + 2, self.arrive, player)

    def answer(self, now, player, found):
        """The answer begins: whether it is worth reading is decided now."""
        reads = self.lineage.wants_answer(found.run)
        script = player.script.turns[player.turn]
        answer = Answered(player.random, script.output_tokens, player.random.random() < player.calls_tools)
        self.call(now + player.pace * script.output_tokens / 100, self.end, player, found, answer, reads)

    def end(self, now, player, found, answer, reads):
        response_id = answer.response_id if isinstance(player.api, Items) else None
        known = read(player.api.wire(answer)) if reads else None
        self.lineage.answered(found.run, completed=True, answer=known, response_id=response_id)
        player.api.take(answer)
        player.turn += 1
        if player.turn < len(player.script.turns):
            self.call(now + player.pace * player.script.turns[player.turn].think_s, self.speak, player)

    def speak(self, now, player):
        script = player.script.turns[player.turn]
        words = text(player.random, script.new_prompt_tokens)
        if script.rewrites:
            player.api.restart(words)
        else:
            player.api.say(words)
        self.arrive(now, player)
