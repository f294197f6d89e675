// Requests to the server. The token comes with the page's address, behind the "#", and is taken out of
// it at once. It is sent as a header, never as a cookie, and kept for the tabs of this address.

import { el } from "../../static/dom.js";
import { download, fileName } from "../../static/files.js";

const TOKEN = "fedssca-token";
const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8000;

/** The answer to a GET, or to a POST of `body`. Fails with the server's message; `errors` of the
 *  failure maps names of fields to messages. */
export async function request(path, body) {
  const response = await fetchWithToken(path, body).catch(() => {
    throw new Error("The server does not answer. Is fedssca ui still running?");
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = new Error(answer.error || `The server answered with status ${response.status}.`);
    error.errors = answer.errors || (answer.field ? { [answer.field]: answer.error } : null);
    throw error;
  }
  return answer;
}

/** Names of runs as the query of an address. */
export function queryOf(names) {
  return names.map((name) => `run=${encodeURIComponent(name)}`).join("&");
}

/** A button that saves the report of runs. */
export function reportButton(names) {
  return el(
    "button",
    { type: "button", class: "quiet", onclick: () => attempt(() => saveReport(names())) },
    "Report",
  );
}

async function saveReport(names) {
  const response = await fetchWithToken(`/api/report?${queryOf(names)}`);
  if (!response.ok) throw await refusal(response);
  download(
    names.length === 1 ? fileName(`report ${names[0]}`, "html") : "report.html",
    new Blob([await response.blob()], { type: "text/html" }),
  );
}

/** Receive the server-sent events of runs until `stop()` is called, connecting again when the
 *  connection ends. `onEvent(kind, data)` gets the events, `onTrouble(message)` what went wrong. */
export function follow(names, onEvent, onTrouble) {
  const ended = new AbortController();
  (async () => {
    let pause = FIRST_PAUSE;
    while (!ended.signal.aborted) {
      try {
        const path = `/api/stream?${queryOf(names)}`;
        const response = await fetchWithToken(path, undefined, ended.signal);
        if (!response.ok) throw await refusal(response);
        pause = FIRST_PAUSE;
        await readEvents(response.body.getReader(), onEvent);
      } catch (error) {
        if (ended.signal.aborted) return;
        onTrouble(
          error instanceof TypeError
            ? "The server does not answer. The page tries again."
            : error.message,
        );
      }
      await new Promise((resolve) => {
        setTimeout(resolve, pause);
      });
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  })();
  return { stop: () => ended.abort() };
}

/** Parse server-sent events from a stream of bytes. */
export async function readEvents(reader, onEvent) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const kind = /^event: (\w+)$/m.exec(part)?.[1];
      const data = /^data: (.*)$/m.exec(part)?.[1];
      if (kind && data) onEvent(kind, JSON.parse(data));
    }
  }
}

/** Show a message at the foot of the page for a few seconds. */
export function notify(message, bad = false) {
  const line = el("div", { class: bad ? "notice wrong" : "notice" }, message);
  document.getElementById("notices").append(line);
  setTimeout(() => line.remove(), bad ? 9000 : 4000);
}

/** The result of an action, or null after its failure was shown. */
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    notify(error.message, true);
    return null;
  }
}

/** Keep the token of the page's address and remove it from there; false if there is none. */
export function takeToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
  if (found) {
    localStorage.setItem(TOKEN, found);
    history.replaceState(null, "", location.pathname); // nothing of it stays in the history
  }
  return localStorage.getItem(TOKEN) !== null;
}

function fetchWithToken(path, body, signal) {
  const headers = { "X-Fedssca-Token": localStorage.getItem(TOKEN) || "" };
  if (body === undefined) return fetch(path, { headers, signal });
  headers["Content-Type"] = "application/json";
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
}

async function refusal(response) {
  const answer = await response.json().catch(() => ({}));
  return new Error(answer.error || `The server answered with status ${response.status}.`);
}
