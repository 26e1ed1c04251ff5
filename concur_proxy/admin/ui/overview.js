// What is seen first: figures, the law's sentence, and how all came about.

const TILES = [
  { id: "active", title: "Active sessions", tone: "blue" },
  { id: "held", title: "Waiting turns" },
  { id: "hits", title: "Hit rate", tone: "green" },
  { id: "usage", title: "KV cache in use", tone: "violet" },
  { id: "speed", title: "Generated tokens" },
  { id: "turns", title: "Turns finished" },
];
const tiles = {};

for (const { id, title, tone } of TILES) {
  const tile = { value: el("p", { class: "value" }), sub: el("p", { class: "sub" }), meter: tone ? meter(tone) : null };
  tiles[id] = tile;
  $("tiles").append(el("div", { class: "tile", id: `tile-${id}` }, el("h3", {}, title), tile.value, ...(tile.meter ? [tile.meter] : []), tile.sub));
}

function showTile(id, main, beside, sub, part) {
  const { value, sub: under, meter: bar } = tiles[id];
  if (value.dataset.told !== `${main}|${beside}`) {
    value.dataset.told = `${main}|${beside}`;
    value.replaceChildren(main, ...(beside ? [" ", el("small", {}, beside)] : []));
  }
  say(under, sub);
  if (bar) fill(bar, part);
}

/** Those that take turns, where any does: what others could hold is no room for anybody. */
const taking = (backends) => (backends.some((one) => one.state === "up") ? backends.filter((one) => one.state === "up") : backends);
const inTokens = (backends) => backends.some((backend) => backend.unit === "tokens");
/** The windows together; null where one is unlimited, or there is none. */
const windowOf = (backends) => (backends.length && backends.every((one) => known(one.window)) ? total(backends.map((one) => one.window)) : null);

/** Usage of all caches together, as their sizes weigh it. */
function usageOf(backends) {
  const told = backends.filter((one) => known(one.signals.kv_usage));
  const sized = told.every((one) => one.capacity_tokens > 0);
  const weight = (one) => (sized ? one.capacity_tokens : 1);
  return told.length ? total(told.map((one) => one.signals.kv_usage * weight(one))) / total(told.map(weight)) : null;
}

function showFigures(status) {
  const backends = status.backends;
  const active = total(backends.map((one) => one.active)) ?? 0;
  const window = windowOf(taking(backends));
  const tokens = total(backends.map((one) => one.footprint_tokens));
  if (inTokens(backends)) showTile("active", count(active), "", `${count(tokens)} of ${known(window) ? count(window) : "any number of"} tokens`, tokens / window);
  else showTile("active", count(active), known(window) ? `of ${count(Math.floor(window))}` : "of any number", `${plural(total(backends.map((one) => one.running)) ?? 0, "turn runs", "turns run")} now`, active / window);
  showTile("held", count(status.held), "", status.held ? `the first for ${duration(status.longest_wait_s)}` : "nobody waits");
  const usage = usageOf(taking(backends));
  showTile("usage", share(usage), "", "of running requests; contexts of idle agents count as free", usage);
  const { finished = 0, refused = 0, abandoned = 0 } = status.turns;
  showTile("turns", count(finished), "", `${refused} refused, ${abandoned} given up by clients`);
}

function showRates(series) {
  const last = (name) => series[name]?.at(-1);
  showTile("hits", share(last("hit_rate")), "", "of prompt tokens were in the cache", last("hit_rate"));
  const again = last("recomputed_tokens_per_s");
  showTile("speed", count(last("generated_tokens_per_s")), "per s", known(again) ? `${count(again)} per s computed again` : "recomputed: not known");
}

function showWhy(status, chosen) {
  const backends = status.backends.filter((one) => !chosen || one.name === chosen);
  const shown = backends.slice(0, 3);
  if (!$("why").firstChild) $("why").append(el("ul"), el("p", { class: "more" }));
  const [list, more] = $("why").children;
  keyed(list, shown, (one) => one.name, () => el("li", {}, el("p", { class: "sentence" }), el("p", { class: "who" })), (item, one) => {
    say(item.children[0], one.reason ?? "The law has not decided yet.");
    const window = known(one.window) ? `window ${count(one.window)} ${one.unit}` : "window without end";
    say(item.children[1], `${one.name}: law ${one.law.name ?? status.law}, ${window}, bounds ${count(one.window_min)} to ${known(one.window_max) ? count(one.window_max) : "any"}${one.hard ? ", a hard limit" : ""}`);
  });
  const rest = backends.length - shown.length;
  more.hidden = rest < 1 && backends.length > 0;
  say(more, backends.length ? `${plural(rest, "more backend", "more backends")}: choose one below.` : "There is no backend.");
}

const CHARTS = [
  new Chart({ id: "sessions", title: "Sessions", unit: "sessions and turns", show: count, lines: [
    { key: "active", label: "active", tone: "blue", style: "area" },
    { key: "window_sessions", label: "window", tone: "plain", style: "dash", optional: true },
    { key: "held", label: "turns waiting", tone: "amber", style: "line" }] }),
  new Chart({ id: "shares", title: "Hit rate and usage", unit: "per cent", show: share, most: 1, lines: [
    { key: "hit_rate", label: "hit rate", tone: "green", style: "line" },
    { key: "kv_usage", label: "KV usage", tone: "violet", style: "dash" }] }),
  new Chart({ id: "tokens", title: "KV tokens", unit: "tokens", show: count, lines: [
    { key: "footprint_tokens", label: "active contexts", tone: "blue", style: "area" },
    { key: "capacity_tokens", label: "cache holds", tone: "plain", style: "dash" },
    { key: "window_tokens", label: "window", tone: "violet", style: "dash", optional: true }] }),
  new Chart({ id: "speed", title: "Tokens per second", unit: "tokens per second", show: count, lines: [
    { key: "generated_tokens_per_s", label: "generated", tone: "teal", style: "area" },
    { key: "recomputed_tokens_per_s", label: "computed again", tone: "red", style: "line" }] }),
];
$("charts").append(...CHARTS.map((chart) => chart.figure));

const YOUNG_S = 300;
let past = null;

function showHistory(report) {
  past = { ...report, told: Date.now() / 1000 };
}

/** What is known since the newest moment of the history, of all backends or of one. */
function newest(status, chosen) {
  const backends = status.backends.filter((one) => !chosen || one.name === chosen);
  const tokens = inTokens(backends);
  return {
    active: total(backends.map((one) => one.active)),
    held: chosen ? total(backends.map((one) => one.held)) : status.held,
    window_sessions: tokens ? null : windowOf(backends),
    window_tokens: tokens ? windowOf(backends) : null,
    footprint_tokens: total(backends.map((one) => one.footprint_tokens)),
    capacity_tokens: total(backends.map((one) => one.capacity_tokens)),
    kv_usage: usageOf(backends),
    hit_rate: past.series.hit_rate.at(-1),
    generated_tokens_per_s: past.series.generated_tokens_per_s.at(-1),
    recomputed_tokens_per_s: past.series.recomputed_tokens_per_s.at(-1),
  };
}

/** Draw the history up to this moment; of a young proxy no more than there is. */
function drawHistory(status, chosen) {
  if (!past) return;
  const now = past.now + Date.now() / 1000 - past.told;
  const live = newest(status, chosen);
  const at = [...past.at, now];
  const series = Object.fromEntries(Object.entries(live).map(([key, value]) => [key, [...past.series[key], value ?? null]]));
  const from = Math.max(now - past.span_s, Math.min(past.at[0] ?? now, now - YOUNG_S));
  CHARTS.forEach((chart) => chart.set(at, series, from, now));
}
