// Backends, waiting turns, sessions.

const cell = (label, extra = "", ...children) => el("td", { class: `cell ${extra}`.trim(), "data-label": label, role: "cell" }, ...children);
const row = (...cells) => el("tr", { role: "row" }, ...cells);

const STATES = { up: "good", resting: "warn", asleep: "warn", warming: "warn", draining: "warn", lost: "bad" };

function makeBackend(one) {
  const kv = cell("KV tokens", "", el("span", { class: "whole" }), meter("violet"));
  const active = cell("Active of window", "", el("span"), meter("blue"));
  const drain = el("button", { type: "button", onclick: () => drainBackend(one.name, drain.dataset.drained !== "yes") });
  const remove = el("button", { type: "button", onclick: () => removeBackend(one.name) }, "Remove");
  return row(
    cell("Name", "head", el("span"), el("span", { class: "under" })),
    cell("State", "", el("span", { class: "tag" }), el("span", { class: "under" })),
    active, cell("Waiting", "num"), kv, cell("Usage", "num"), cell("Hit rate", "num"), cell("In its queue", "num"),
    cell("", "do", drain, remove),
  );
}

function updateBackend(line, one) {
  const [name, state, active, held, kv, usage, hits, queued, actions] = line.children;
  const signals = one.signals;
  say(name.children[0], one.name);
  say(name.children[1], [one.engine, one.url === `http://${one.name}` ? null : one.url].filter(Boolean).join(", "));
  say(state.children[0], one.state);
  state.children[0].className = `tag ${STATES[one.state] ?? ""}`;
  const age = signals.stale ? (known(signals.age_s) ? `metrics ${duration(signals.age_s)} old` : "no metrics yet") : null;
  const unread = one.problem && signals.problem?.endsWith(one.problem) ? null : signals.problem; // the same is said once
  say(state.children[1], [one.problem, unread, age].filter(Boolean).join("; "));
  const tokens = one.unit === "tokens";
  const window = known(one.window) ? count(tokens ? one.window : Math.floor(one.window)) : "any";
  say(active.children[0], tokens ? count(one.active) : `${count(one.active)} of ${window}`);
  fill(active.children[1], one.active / one.window);
  active.children[1].hidden = tokens;
  say(held, count(one.held));
  say(kv.children[0], `${count(one.footprint_tokens)} of ${tokens ? window : count(one.capacity_tokens)}`);
  fill(kv.children[1], one.footprint_tokens / (tokens ? one.window : one.capacity_tokens));
  say(usage, share(signals.stale ? null : signals.kv_usage));
  say(hits, share(one.recent_hit_rate ?? signals.hit_rate));
  say(queued, count(signals.stale ? null : signals.waiting));
  const [drain, remove] = actions.children;
  const drained = one.state === "draining";
  drain.dataset.drained = drained ? "yes" : "no";
  say(drain, drained ? "Resume" : "Drain");
  drain.setAttribute("aria-label", `${drained ? "Resume" : "Drain"} ${one.name}`);
  remove.setAttribute("aria-label", `Remove ${one.name}`);
}

const SOME = 12; // backends in the table before somebody asks for all of them
let wantsAll = false;

/** Of many backends some: those that take no turns before the others. */
function chosenBackends(backends) {
  if (wantsAll || backends.length <= SOME) return backends;
  return [...backends].sort((one, other) => (one.state === "up") - (other.state === "up")).slice(0, SOME);
}

function showBackends(backends) {
  say($("backends-count"), String(backends.length));
  keyed($("backends"), chosenBackends(backends), (one) => one.name, makeBackend, updateBackend);
  $("backends-all").hidden = backends.length <= SOME;
  say($("backends-all"), wantsAll ? "Show fewer" : `Show all ${backends.length}`);
  const choice = $("backend");
  const names = ["", ...backends.map((one) => one.name)];
  if ([...choice.options].map((one) => one.value).join("\n") !== names.join("\n")) {
    const chosen = choice.value;
    choice.replaceChildren(...names.map((name) => el("option", { value: name }, name || "All")));
    choice.value = names.includes(chosen) ? chosen : "";
    if (choice.value !== chosen) choice.dispatchEvent(new Event("change"));
  }
  $("backend-field").hidden = backends.length < 2;
}

/** Say above everything else which backends are in trouble, and why; of those that rest by somebody's wish only if no other is there. */
function showTrouble(backends) {
  const none = backends.length > 0 && !backends.some((one) => ["up", "unknown"].includes(one.state));
  const away = none ? backends : backends.filter((one) => ["lost", "resting"].includes(one.state));
  const named = away.slice(0, 3).map((one) => `${one.name} is ${one.state}${one.problem ? ` (${one.problem})` : ""}`);
  if (away.length > 3) named.push(`and ${away.length - 3} more`);
  const head = none ? "No backend takes turns" : `${away.length} of ${plural(backends.length, "backend", "backends")} ${away.length === 1 ? "takes" : "take"} no turns`;
  say($("trouble"), away.length ? `${head}: ${named.join("; ")}.` : "");
  $("trouble").hidden = away.length === 0;
}

function showQueue(queue) {
  say($("queue-count"), queue.total ? String(queue.total) : "");
  $("queue-empty").hidden = queue.total > 0;
  $("queue-scroll").hidden = queue.total === 0;
  const shown = queue.turns.slice(0, 8);
  keyed($("queue"), shown.map((turn, index) => ({ ...turn, index })), (turn) => `${turn.session}/${turn.index}`, () => row(
    cell("Session", "head id"), cell("Kind", "", el("span", { class: "tag" })), cell("Waits for", "", el("span"), meter("amber")), cell("At most", "num"),
  ), (line, turn) => {
    const [session, kind, waits, most] = line.children;
    say(session, turn.session ?? "(no session)");
    say(kind.children[0], turn.state === "paused" ? "paused" : "new");
    say(waits.children[0], duration(turn.waited_s));
    fill(waits.children[1], turn.waited_s / (turn.waited_s + Math.max(turn.left_s, 0)));
    say(most, duration(turn.left_s));
  });
  const rest = queue.total - shown.length;
  $("queue-more").hidden = rest < 1;
  say($("queue-more"), `and ${plural(rest, "more", "more")}, which came later.`);
}

const COLUMNS = [
  { title: "Session", sort: "id" }, { title: "State", sort: "state" }, { title: "Context", sort: "footprint", num: true },
  { title: "Turns", sort: "turns", num: true }, { title: "Idle for", sort: "idle", num: true }, { title: "Place kept for", num: true },
  { title: "Backend" }, { title: "" },
];
const PAGE = matchMedia("(max-width: 640px)").matches ? 8 : 15;
const LARGE = 5000; // sessions; tables of so many are asked for less often
const view = { sort: "recent", reverse: false, offset: 0, asked: 0, total: 0, due: 0 };

for (const { title, sort, num } of COLUMNS) {
  const head = el("th", { scope: "col", role: "columnheader", class: num ? "num" : null, "aria-sort": sort ? "none" : null });
  head.append(sort ? el("button", { type: "button", onclick: () => sortBy(sort) }, title) : title || el("span", { class: "hidden" }, "Actions"));
  if (sort) head.dataset.sort = sort;
  $("sessions-head").append(head);
}

/** First click: largest or first by the alphabet; second: the other way round; third: as they were heard of. */
function sortBy(sort) {
  if (view.sort !== sort) Object.assign(view, { sort, reverse: false });
  else if (!view.reverse) view.reverse = true;
  else Object.assign(view, { sort: "recent", reverse: false });
  const rising = ["id", "state"].includes(view.sort) !== view.reverse;
  for (const head of $("sessions-head").querySelectorAll("[data-sort]")) {
    head.setAttribute("aria-sort", head.dataset.sort !== view.sort ? "none" : rising ? "ascending" : "descending");
  }
  view.offset = 0;
  return loadSessions();
}

async function loadSessions() {
  const asked = ++view.asked;
  const query = new URLSearchParams({ limit: PAGE, offset: view.offset, sort: view.sort, reverse: view.reverse, search: $("search").value });
  if ($("state").value) query.set("state", $("state").value);
  const list = await ask(`sessions?${query}`);
  if (asked !== view.asked) return; // a later question is on its way
  view.total = list.total;
  view.due = Date.now() + (list.total > LARGE ? 15000 : 3000);
  if (view.offset && view.offset >= list.total) {
    view.offset = Math.max(0, Math.ceil(list.total / PAGE) - 1) * PAGE;
    return loadSessions();
  }
  showSessions(list);
}

function showSessions(list) {
  say($("sessions-count"), String(list.total));
  $("sessions-empty").hidden = list.total > 0;
  say($("sessions-empty"), $("search").value || $("state").value ? "No session matches." : "No sessions yet: point agents at this proxy.");
  $("sessions-table").hidden = list.total === 0;
  keyed($("sessions"), list.sessions, (one) => `${one.id}/${one.backend}`, makeSession, updateSession);
  const last = view.offset + list.sessions.length;
  say($("page"), list.total ? `${view.offset + 1} to ${last} of ${list.total}` : "");
  $("back").disabled = view.offset === 0;
  $("next").disabled = last >= list.total;
}

function makeSession(one) {
  const end = el("button", { type: "button", "aria-label": `End session ${one.id}`, onclick: () => endSession(one.id) }, "End");
  return row(
    cell("Session", "head id", el("span"), el("span", { class: "under" })), cell("State", "", el("span", { class: "tag" })),
    cell("Context", "num"), cell("Turns", "num"), cell("Idle for", "num"), cell("Place kept for", "num"), cell("Backend", "id"), cell("", "do", end),
  );
}

function updateSession(line, one) {
  const [id, state, context, turns, idle, lease, backend] = line.children;
  say(id.children[0], one.id);
  say(id.children[1], one.parent ? `by ${one.rule}, child of ${one.parent}` : `by ${one.rule}`);
  say(state.children[0], one.state);
  state.children[0].className = `tag ${{ running: "good", held: "warn", paused: "warn" }[one.state] ?? ""}`;
  say(context, count(one.footprint_tokens));
  say(turns, count(one.turns));
  say(idle, known(one.idle_s) ? duration(one.idle_s) : "");
  say(lease, known(one.lease_s) ? duration(one.lease_s) : "");
  say(backend, one.backend ?? "");
}
