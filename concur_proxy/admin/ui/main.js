// Ties it together: events bring state, the clock brings history and tables.

const HISTORY_MS = 10000;
const CONFIG_MS = 15000;
let lastStatus = null;
let historyDue = 0;
let configDue = 0;
let lawsKnown = false;

function onState({ status, queue }) {
  lastStatus = status;
  say($("about"), `${status.version}, up ${duration(status.uptime_s)}, law ${status.law}${status.mode === "observe" ? ", observing: nothing is held" : ""}`);
  say($("unit"), inTokens(status.backends) ? "tokens" : "sessions");
  document.title = status.held ? `(${status.held}) concur-proxy` : "concur-proxy";
  showFigures(status);
  showTrouble(status.backends);
  showBackends(status.backends);
  showWhy(status, $("backend").value);
  showQueue(queue);
  drawHistory(status, $("backend").value);
  const now = Date.now();
  if (now >= historyDue) { historyDue = now + HISTORY_MS; quietly(loadHistory); }
  if (now >= view.due) { view.due = now + 3000; quietly(loadSessions); }
  if (now >= configDue) { configDue = now + CONFIG_MS; quietly(loadConfiguration); }
}

/** What the clock asks for may fail: the stream of events says so, and it is asked for again. */
const quietly = (work) => work().catch(() => {});

async function loadConfiguration() {
  if (!lawsKnown) { await loadLaws(); lawsKnown = true; }
  await loadConfig();
}

async function loadHistory() {
  const backend = $("backend").value;
  const span = document.querySelector("#span input:checked").value;
  const query = new URLSearchParams({ span_s: span, points: 360, ...(backend ? { backend } : {}) });
  const report = await ask(`history?${query}`);
  showHistory(report);
  if (lastStatus) drawHistory(lastStatus, backend);
  if (!backend) showRates(report.series);
  else quietly(async () => showRates((await ask("history?span_s=60&points=6")).series));
}

const LINK = { live: "Live", lost: "Reconnecting", shut: "No access" };

function onLink(condition, error) {
  const pill = $("link");
  if (pill.dataset.state !== condition) {
    pill.dataset.state = condition;
    say($("link-text"), LINK[condition]);
    if (condition === "live") { notice(""); refreshSoon(); }
  }
  if (condition !== "shut") return;
  if (error.status === 401) askToken(error.message);
  notice(error.message);
}

const refreshSoon = () => { historyDue = configDue = view.due = 0; };

function refresh() {
  refreshSoon();
  if (lastStatus && $("link").dataset.state === "live") quietly(loadSessions);
}

let typing = 0;
$("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => { view.offset = 0; attempt(loadSessions); }, 200); });
$("state").addEventListener("change", () => { view.offset = 0; attempt(loadSessions); });
$("back").addEventListener("click", () => { view.offset = Math.max(0, view.offset - PAGE); attempt(loadSessions); });
$("next").addEventListener("click", () => { view.offset += PAGE; attempt(loadSessions); });
$("backends-all").addEventListener("click", () => { wantsAll = !wantsAll; if (lastStatus) showBackends(lastStatus.backends); });
$("span").addEventListener("change", () => attempt(loadHistory));
$("backend").addEventListener("change", () => { if (lastStatus) showWhy(lastStatus, $("backend").value); attempt(loadHistory); });

const THEME = "concur-theme";
$("theme").value = localStorage.getItem(THEME) ?? "";
function paint() {
  if ($("theme").value) document.documentElement.dataset.theme = $("theme").value;
  else delete document.documentElement.dataset.theme;
}
$("theme").addEventListener("change", () => { localStorage.setItem(THEME, $("theme").value); paint(); });
paint();

listen(onState, onLink);
