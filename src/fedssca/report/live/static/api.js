"use strict";
// Questions to the server: the token of the address goes along as a header, never as a cookie.

const TOKEN = new URLSearchParams(location.search).get("token") || "";
const HEADERS = { "X-Fedssca-Token": TOKEN };

/** An answer, or an Error with the server's own words; `errors` are those of a form's fields. */
async function ask(path, said) {
  const options =
    said === undefined
      ? { headers: HEADERS }
      : {
          method: "POST",
          headers: { ...HEADERS, "Content-Type": "application/json" },
          body: JSON.stringify(said),
        };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer: is fedssca ui still running?");
  }
  const found = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = new Error(found.error || `The server said ${response.status}.`);
    error.errors = found.errors || (found.field ? { [found.field]: found.error } : null);
    throw error;
  }
  return found;
}

const query = (names) => names.map((name) => `run=${encodeURIComponent(name)}`).join("&");

/** The report of runs as a download. */
async function saveReport(names) {
  const response = await fetch(`/api/report?${query(names)}`, { headers: HEADERS });
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error || "no report");
  download(
    names.length === 1 ? fileName(`report ${names[0]}`, "html") : "report.html",
    new Blob([await response.blob()], { type: "text/html" }),
  );
}

/** Server-sent events of runs, again and again until `stop()`; `hear(kind, data)`, `say(text)`. */
function follow(names, hear, say) {
  const ended = new AbortController();
  (async () => {
    let pause = 500;
    while (!ended.signal.aborted) {
      try {
        const response = await fetch(`/api/stream?${query(names)}`, {
          headers: HEADERS,
          signal: ended.signal,
        });
        if (!response.ok)
          throw new Error((await response.json().catch(() => ({}))).error || "refused");
        say("");
        pause = 500;
        await readEvents(response.body.getReader(), hear);
      } catch (error) {
        if (ended.signal.aborted) return;
        say(
          error.message === "Failed to fetch" || error instanceof TypeError
            ? "The server does not answer: trying again."
            : error.message,
        );
      }
      await new Promise((resolve) => {
        setTimeout(resolve, pause);
      });
      pause = Math.min(pause * 2, 8000);
    }
  })();
  return { stop: () => ended.abort() };
}

async function readEvents(reader, hear) {
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
      if (kind && data) hear(kind, JSON.parse(data));
    }
  }
}

/** A line at the foot of the page that goes away by itself. */
function notify(words, bad = false) {
  const box = document.getElementById("notices");
  const line = el("div", { class: bad ? "notice wrong" : "notice" }, words);
  box.append(line);
  setTimeout(() => line.remove(), bad ? 9000 : 4000);
}

/** Do something that may be refused; the refusal is shown. */
async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    notify(error.message, true);
    return null;
  }
}
