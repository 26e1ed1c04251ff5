"""One engine in virtual time: vLLM's V1 scheduler over a block pool and a step-cost model.

The rules, each as vLLM has it:

1. Waiting requests are first come, first served. The head of the line blocks those behind it.
2. A step has a budget of tokens. Running requests come first, in the order of their admission: one token each where
   they decode, a chunk of their prompt where they do not. What is left goes to waiting requests.
3. A waiting request is admitted when blocks for all its tokens are free. Then the prefix cache is looked up, once; at
   least its last token is always computed.
4. When a running request finds no block, the one admitted last loses all its blocks and goes back to the head of the
   line to be computed anew (preemption by recompute), and nothing is admitted in that step.
5. Blocks become shareable in the step that fills them.

A step has two ends: ``start_step`` decides what is computed and says when it ends, ``end_step`` brings the tokens.
Requests may arrive and be aborted in between; of merged steps only after ``catch_up``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from concur_proxy.sim.kvcache import BlockPool
from concur_proxy.sim.stats import EngineStats
from concur_proxy.sim.step import EngineConfig, Request, Step, StepResult


class Engine:
    """Scheduler, cache and clockless device of one engine. ``now`` never goes back."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.pool = BlockPool(config.blocks, config.block_size)
        self.stats = EngineStats()
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._step: Step | None = None
        self._changes = 0
        """Counts what may let a waiting request fit: blocks given back, prompt blocks shared."""
        self._blocked: tuple[Request, int] | None = None
        """The head of the line that found no room, and ``_changes`` then."""

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not self._running and not self._waiting

    def submit(self, request: Request) -> None:
        """Put a request at the end of the line. ValueError when it could never run."""
        tokens = request.prompt_tokens + request.output_tokens
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError("a request has at least one prompt token and one output token")
        if tokens > self.config.max_request_tokens:
            raise ValueError(f"{tokens} tokens do not fit the cache of {self.config.max_request_tokens}")
        if len(request.hashes) < tokens // self.config.block_size:
            raise ValueError("a request needs a hash for every block it fills")
        self._waiting.append(request)

    def abort(self, request: Request) -> bool:
        """Drop a request, waiting or running, and free its blocks at once. False where it has ended already."""
        if request.running:
            self._running.remove(request)
            self._drop_blocks(request)
            return True
        try:
            self._waiting.remove(request)
        except ValueError:
            return False
        return True

    def reset_prefix_cache(self) -> bool:
        """Forget all cached content. False, and nothing happens, while requests hold blocks."""
        self._changes += 1
        return self.pool.reset()

    def step(self, now: float, *, until: float | None = None) -> StepResult | None:
        """Start and end one step; see ``start_step``. None where nothing can run."""
        if self.start_step(now, until=until) is None:
            return None
        return self.end_step()

    def start_step(self, now: float, *, until: float | None = None) -> float | None:
        """Decide what the next step computes; the time when it ends, or None where nothing can run.

        With ``until``, equal decode steps that all start before it are merged into one, which changes no result.
        """
        assert self._step is None, "the step before has not ended"
        step = Step(now, self.config.max_num_batched_tokens)
        preempted = self._continue_running(step)
        if not preempted:
            self._admit_waiting(step, now)
        if not step.batch:
            return None
        step.ends_at.append(now + self.config.cost.seconds(step.tokens, step.decodes, step.context))
        if until is not None and not preempted and step.decodes == len(self._running):
            self._merge(step, until)
        self._step = step
        return step.ends_at[-1]

    def end_step(self) -> StepResult:
        """The tokens of the step under way. Requests aborted meanwhile get none."""
        step, self._step = self._step, None
        assert step is not None, "no step is under way"
        return self._apply(step)

    def catch_up(self, now: float) -> float | None:
        """Have done what merged steps have brought until ``now``; the time when the step ends that is under way then.

        Before anything else happens to the engine in the midst of merged steps, or is read from it. The rest of the
        merged steps is forgotten: what happens may change it.
        """
        step = self._step
        if step is None:
            return None
        ends_at = step.ends_at
        done = min(bisect_right(ends_at, now), len(ends_at) - 1)
        if done:
            past, step = step.split(done)
            self._step = step
            self._apply(past)
            for request, count in step.batch:
                self._grow(request, count)
        del step.ends_at[1:]
        return step.ends_at[0]

    def _apply(self, step: Step) -> StepResult:
        """Bring what a step, or several merged ones, have computed."""
        steps = len(step.ends_at)
        emitted: list[tuple[Request, int]] = []
        finished: list[Request] = []
        fresh = 0
        for request, count in step.batch:
            if not request.running:
                continue
            if steps > 1:
                self._grow(request, count + steps - 1)
            request.computed += count + steps - 1
            if request.computed < request.prompt_tokens + request.generated + steps - 1:
                continue
            fresh += self._emit(request, step)
            emitted.append((request, steps))
            if request.generated == request.output_tokens:
                finished.append(request)
        self._count(step, len(emitted), fresh)
        self._finish(finished, step.ends_at[-1])
        return StepResult(step.started_at, step.ends_at[-1], steps, emitted, finished)

    # ------------------------------------------------------------------ what a step computes

    def _continue_running(self, step: Step) -> bool:
        """Give running requests their tokens. True where somebody was preempted for it."""
        before, size = self.stats.preemptions, self.config.block_size
        for request in tuple(self._running):
            if step.budget <= 0 or not request.running:
                break
            count = min(request.prompt_tokens + request.generated - request.computed, step.budget)
            within_its_last_block = count == 1 and (request.computed + 1) % size > 1
            if within_its_last_block or self._make_room(request, count):
                step.add(request, count)
        return self.stats.preemptions > before

    def _make_room(self, request: Request, count: int) -> bool:
        """``_grow``, at the cost of those admitted after ``request``; False where it had to go itself."""
        while not self._grow(request, count):
            victim = self._running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _admit_waiting(self, step: Step, now: float) -> None:
        while self._waiting and step.budget > 0 and len(self._running) < self.config.max_num_seqs:
            request = self._waiting[0]
            if not self._place(request):
                break
            self._waiting.popleft()
            self._running.append(request)
            request.running = True
            if request.preemptions == 0:
                self._count_admission(request, now)
            count = min(request.total - request.computed, step.budget)
            grown = self._grow(request, count)
            assert grown, "an admitted request has room for all its tokens"
            step.add(request, count)

    def _place(self, request: Request) -> bool:
        """Give a waiting request its cached blocks where all its tokens would fit.

        The look-up is repeated only after something changed that may make room.
        """
        if self._blocked == (request, self._changes):
            return False
        size = self.config.block_size
        hits = self.pool.lookup(request.hashes, (request.total - 1) // size)
        needed = -(-request.total // size) - len(hits) + self.pool.idle(hits)
        if needed > self.pool.free:
            self._blocked = (request, self._changes)
            return False
        self.pool.hold(hits)
        request.blocks = hits
        request.shared = len(hits)
        request.computed = len(hits) * size
        return True

    def _grow(self, request: Request, count: int) -> bool:
        """Give a request blocks for ``count`` more tokens, and share those they fill. False where none are free."""
        size, pool = self.config.block_size, self.pool
        after = request.computed + count
        missing = -(-after // size) - len(request.blocks)
        if missing > 0:
            if missing > pool.free:
                return False
            request.blocks.extend(pool.take(missing))
        full = after // size
        if full > request.shared:
            for index in range(request.shared, full):
                pool.register(request.blocks[index], request.hashes[index])
            request.shared = full
            self._changes += request.computed + 1 < request.total  # prompt blocks, not those of a decode step
        return True

    def _preempt(self, request: Request) -> None:
        assert self._running[-1] is request, "only the request admitted last is preempted"
        self._running.pop()
        self._drop_blocks(request)
        request.preemptions += 1
        self.stats.preemptions += 1
        self._waiting.appendleft(request)

    def _drop_blocks(self, request: Request) -> None:
        self.pool.release(request.blocks)
        request.blocks = []
        request.shared = request.computed = 0
        request.running = False
        self._changes += 1

    def _merge(self, step: Step, until: float) -> None:
        """Append equal decode steps as long as none ends, all find blocks, and each starts before ``until``."""
        size, cost = self.config.block_size, self.config.cost
        most = min(request.output_tokens - request.generated for request, _ in step.batch)
        ends_at = step.ends_at
        while len(ends_at) < most and ends_at[-1] < until:
            context = step.context + len(ends_at) * step.decodes
            ends_at.append(ends_at[-1] + cost.seconds(step.tokens, step.decodes, context))
        more = len(ends_at) - 1
        missing = sum(-(-(request.computed + 1 + more) // size) - len(request.blocks) for request, _ in step.batch)
        if missing > self.pool.free:
            del ends_at[1:]  # somebody will be preempted on the way: one step at a time

    # ------------------------------------------------------------------ what a step brings

    def _emit(self, request: Request, step: Step) -> int:
        """Count a request's tokens of this step; returns the prompt tokens computed for it if these are its first."""
        stats, ends_at, steps = self.stats, step.ends_at, len(step.ends_at)
        request.generated += steps
        fresh = 0
        if request.first_token_at is None:
            request.first_token_at = ends_at[0]
            cached = request.cached_tokens or 0
            fresh = request.prompt_tokens - cached
            stats.prompt_tokens += request.prompt_tokens
            stats.cached_tokens += cached
            stats.first_token_s.observe(ends_at[0] - request.arrived_at)
        else:
            assert request.last_token_at is not None
            stats.gap_s.observe(ends_at[0] - request.last_token_at)
        request.last_token_at = ends_at[-1]
        return fresh

    def _count(self, step: Step, emitted: int, fresh: int) -> None:
        stats, ends_at, steps = self.stats, step.ends_at, len(step.ends_at)
        stats.steps += steps
        stats.scheduled_tokens += step.tokens * steps
        stats.busy_s += ends_at[-1] - step.started_at
        stats.generation_tokens += emitted * steps
        if not emitted:
            return
        stats.iteration_tokens.observe(emitted + fresh)
        if steps > 1:
            stats.iteration_tokens.observe(emitted, steps - 1)
            self._count_gaps(ends_at, emitted)

    def _count_gaps(self, ends_at: Sequence[float], emitted: int) -> None:
        """Note the gaps between merged steps, which grow with the contexts: all at once where they are alike."""
        gaps, count = self.stats.gap_s, len(ends_at) - 1
        if gaps.bucket(ends_at[1] - ends_at[0]) == gaps.bucket(ends_at[-1] - ends_at[-2]):
            gaps.observe((ends_at[-1] - ends_at[0]) / count, emitted * count)
        else:
            for before, after in pairwise(ends_at):
                gaps.observe(after - before, emitted)

    def _count_admission(self, request: Request, now: float) -> None:
        request.cached_tokens = request.computed
        self.stats.prefix_queries += request.total
        self.stats.prefix_hits += request.computed
        self.stats.queue_s.observe(now - request.arrived_at)

    def _finish(self, finished: Iterable[Request], now: float) -> None:
        for request in finished:
            self._running.remove(request)
            self._drop_blocks(request)
            self.stats.ended[request.end] += 1
            self.stats.request_s.observe(now - request.arrived_at)
