// The proxy's API: questions, and the stream of events. The admin token stays in this tab.

const TOKEN = "concur-admin-token";
let token = sessionStorage.getItem(TOKEN) ?? "";

class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

const headers = () => (token ? { authorization: `Bearer ${token}` } : {});

async function ask(path, { method = "GET", body } = {}) {
  const options = { method, headers: headers(), cache: "no-store" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const answer = await fetch(path, options);
  if (!answer.ok) throw await failure(answer);
  return answer.json();
}

async function failure(answer) {
  const told = await answer.json().catch(() => null);
  return new ApiError(answer.status, told?.error?.message ?? `The proxy answered ${answer.status}.`);
}

const SILENCE_MS = 15000; // events come at least every few seconds
const PAUSES_MS = [500, 1000, 2000];

/**
 * Listen for ever, over restarts of the proxy. Calls told(state), and changed(condition, words) with live, lost or shut.
 * A hidden page does not listen: the proxy has a seat for so many only.
 */
async function listen(told, changed) {
  for (let failures = 0; ; ) {
    await visible();
    try {
      await stream((state) => { failures = 0; changed("live"); told(state); });
      changed("lost");
    } catch (error) {
      if (error.status === 401 || error.status === 403) {
        changed("shut", error);
        await renewed();
      } else changed("lost", error);
    }
    if (document.hidden) continue;
    await new Promise((done) => setTimeout(done, PAUSES_MS[Math.min(failures++, PAUSES_MS.length - 1)]));
  }
}

async function stream(told) {
  const stop = new AbortController();
  const hide = () => document.hidden && stop.abort();
  let alarm = setTimeout(() => stop.abort(), SILENCE_MS);
  document.addEventListener("visibilitychange", hide);
  try {
    const answer = await fetch("events", { headers: headers(), signal: stop.signal, cache: "no-store" });
    if (!answer.ok) throw await failure(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ; ) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(alarm);
      alarm = setTimeout(() => stop.abort(), SILENCE_MS);
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
        if (data.length) told(JSON.parse(data.join("\n")));
      }
    }
  } finally {
    clearTimeout(alarm);
    document.removeEventListener("visibilitychange", hide);
  }
}

function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((done) => {
    document.addEventListener("visibilitychange", function look() {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      done();
    });
  });
}

let awaited = [];
const renewed = () => new Promise((done) => awaited.push(done));

function useToken(text) {
  token = text;
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
  awaited.splice(0).forEach((done) => done());
}
