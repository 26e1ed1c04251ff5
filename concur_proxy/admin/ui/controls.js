// What a manager may do. Whatever cannot be taken back asks first.

function confirmed(title, text, yes) {
  const dialog = $("ask");
  say($("ask-title"), title);
  say($("ask-text"), text);
  say($("ask-yes"), yes);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

async function attempt(work) {
  try {
    await work();
    notice("");
  } catch (error) {
    if (error.status === 401) askToken(error.message);
    else notice(error.message);
  }
}

function notice(text) {
  say($("notice"), text);
  $("notice").hidden = !text;
}

async function endSession(id) {
  const yes = await confirmed(`End session ${id}?`, "Its place is free at once; a turn that runs may still finish. If the agent comes back, it starts anew.", "End it");
  if (yes) await attempt(async () => { await ask(`sessions/${encodeURIComponent(id)}`, { method: "DELETE" }); await loadSessions(); });
}

async function drainBackend(name, drained) {
  const text = "It takes no more turns; those that run end by themselves, and its sessions move to others. Resume takes this back.";
  if (drained && !(await confirmed(`Drain ${name}?`, text, "Drain it"))) return;
  await attempt(() => ask(`backends/${encodeURIComponent(name)}/${drained ? "drain" : "undrain"}`, { method: "POST" }));
}

async function removeBackend(name) {
  const text = "It takes no more turns, finishes those that run, and is forgotten until the next start.";
  if (await confirmed(`Remove ${name}?`, text, "Remove it")) await attempt(() => ask(`backends/${encodeURIComponent(name)}`, { method: "DELETE" }));
}

// The form shows what is in force, and sends only what somebody has changed.

const form = $("control");
let inForce = null;

const asText = (value) => (known(value) ? String(value) : "");
const formOf = (config) => ({ law: config.law, fixed: asText(config.fixed?.window), window_min: asText(config.window_min), window_max: asText(config.window_max), mode: config.mode });

async function loadConfig() {
  const config = await ask("config");
  const untouched = !inForce || Object.entries(inForce).every(([name, value]) => form.elements[name].value === value);
  const now = formOf(config);
  if (untouched) fillForm(now);
  inForce = now;
}

function fillForm(values) {
  for (const [name, value] of Object.entries(values)) form.elements[name].value = value;
  $("fixed-field").hidden = form.elements.law.value !== "fixed";
}

async function loadLaws() {
  const schema = await ask("openapi.json");
  const properties = schema.paths["/concur/config"].patch.requestBody.content["application/json"].schema.properties;
  $("law").replaceChildren(...properties.law.enum.map((name) => el("option", {}, name)));
}

/** Read a bound: a share as it is, an empty one as no bound. */
function bound(text) {
  const bare = text.replaceAll(" ", "");
  if (!bare) return null;
  return bare.endsWith("%") || Number.isNaN(Number(bare)) ? bare : Number(bare);
}

function changes() {
  const values = {};
  for (const name of ["law", "mode"]) if (form.elements[name].value !== inForce[name]) values[name] = form.elements[name].value;
  for (const name of ["window_min", "window_max"]) if (form.elements[name].value !== inForce[name]) values[name] = bound(form.elements[name].value);
  if (values.window_min === null) values.window_min = 1;
  if (form.elements.law.value === "fixed" && form.elements.fixed.value !== inForce.fixed) values.fixed = { window: bound(form.elements.fixed.value) };
  return values;
}

function controlSaid(text, bad = false) {
  $("control-said").className = bad ? "said bad" : "said";
  say($("control-said"), text);
}

async function applyChanges(event) {
  event.preventDefault();
  if (!inForce) return;
  const values = changes();
  if (!Object.keys(values).length) return controlSaid("Nothing is changed.");
  try {
    const config = await ask("config", { method: "PATCH", body: values });
    inForce = formOf(config);
    fillForm(inForce);
    controlSaid(`In force: ${Object.keys(values).join(", ")}.`);
  } catch (error) {
    controlSaid(error.message, true);
    if (error.status === 401) askToken(error.message);
  }
}

form.addEventListener("submit", applyChanges);
form.addEventListener("reset", (event) => { event.preventDefault(); if (inForce) fillForm(inForce); controlSaid(""); });
$("law").addEventListener("change", () => { $("fixed-field").hidden = $("law").value !== "fixed"; });

function askToken(why) {
  const dialog = $("token-dialog");
  if (dialog.open) return;
  say($("token-why"), why ?? "Kept in this tab only, until it is closed.");
  $("token").value = "";
  dialog.returnValue = "";
  dialog.showModal();
}

$("token-button").addEventListener("click", () => askToken());
$("token-dialog").addEventListener("close", () => {
  const chosen = $("token-dialog").returnValue;
  if (chosen === "use" && $("token").value) useToken($("token").value.trim());
  else if (chosen === "forget") useToken("");
  else return;
  $("token").value = "";
  refresh();
});
