// The list of runs: the latest first, filtered by words, with check boxes to compare runs.

import { el } from "../../static/dom.js";
import { STATUSES, statusMark } from "../../static/limits.js";
import { show } from "../../static/numbers.js";
import { badge, onlyOn, STATES } from "../../static/state.js";
import { addressOf, openView } from "./address.js";
import { attempt, reportButton, request } from "./api.js";

const MOST_TICKED = 100;

/** The view of all runs: {node, close()}. */
export function listView() {
  const ticked = new Set();
  const lines = new Map();
  let runs = [];
  let words = "";
  const search = el("input", {
    type: "search",
    placeholder: "Filter by name, data, method or state",
    "aria-label": "Filter runs",
    oninput: () => {
      words = search.value.toLowerCase();
      fill();
    },
  });
  const compareButton = el("button", {
    type: "button",
    class: "primary",
    onclick: () => openView("compare", [...ticked]),
  });
  const saveReport = reportButton(() => [...ticked]);
  const clear = el(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () => {
        ticked.clear();
        fill();
      },
    },
    "Clear",
  );
  const picked = el("div", { class: "picked" }, compareButton, saveReport, clear);
  const note = el("p", { class: "note" });
  const body = el("ul", { class: "runlist" });
  const empty = el(
    "div",
    { class: "card empty", hidden: true },
    el("h2", {}, "No runs yet"),
    el("p", {}, "Start one from the form, or with fedssca run."),
    el("a", { class: "primary", href: "#/new" }, "New run"),
  );
  const node = el(
    "main",
    {},
    el("div", { class: "listhead" }, el("h1", {}, "Runs"), note),
    el("div", { class: "filter" }, search, picked),
    empty,
    body,
  );

  function makeLine(run) {
    const box = el("input", {
      type: "checkbox",
      "aria-label": `Compare ${run.name}`,
      onchange: () => {
        if (box.checked && ticked.size >= MOST_TICKED) box.checked = false;
        if (box.checked) ticked.add(run.name);
        else ticked.delete(run.name);
        count();
      },
    });
    const item = el("li", { class: "card" });
    return { item, box, shown: "" };
  }
  function update(entry, run) {
    const now = JSON.stringify(run);
    if (entry.shown !== now) {
      entry.shown = now;
      entry.item.replaceChildren(...contentOf(run, entry.box));
    }
    entry.box.checked = ticked.has(run.name);
  }
  function fill() {
    const wanted = runs.filter(
      (run) =>
        !words ||
        [run.name, run.data, run.algorithm, STATES[run.state]]
          .join(" ")
          .toLowerCase()
          .includes(words),
    );
    const items = wanted.map((run) => {
      if (!lines.has(run.name)) lines.set(run.name, makeLine(run));
      const entry = lines.get(run.name);
      update(entry, run);
      return entry.item;
    });
    const same =
      items.length === body.children.length && items.every((item, k) => item === body.children[k]);
    if (!same) body.replaceChildren(...items);
    empty.hidden = runs.length > 0;
    search.hidden = runs.length === 0;
    count(wanted.length);
  }
  function count(shown = body.children.length) {
    picked.hidden = ticked.size === 0;
    compareButton.textContent = ticked.size === 1 ? "Open 1 run" : `Compare ${ticked.size} runs`;
    note.textContent =
      shown === runs.length ? `${runs.length} in this folder` : `${shown} of ${runs.length}`;
  }
  async function load() {
    const answer = await request("/api/runs");
    runs = answer.runs;
    const names = new Set(runs.map((run) => run.name));
    for (const name of [...ticked]) if (!names.has(name)) ticked.delete(name);
    for (const name of [...lines.keys()]) if (!names.has(name)) lines.delete(name);
    note.title = answer.folder;
    fill();
  }
  const timer = setInterval(() => {
    if (!document.hidden) load().catch(() => {});
  }, 2000);
  attempt(load);
  return { node, close: () => clearInterval(timer) };
}

/** The content of a run's line. */
function contentOf(run, box) {
  const share =
    run.rounds > 0 && Number.isFinite(run.round) ? Math.min(1, run.round / run.rounds) : 0;
  const progress = { max: 1, value: share, "aria-label": `${Math.round(100 * share)}% done` };
  const figures = [
    run.round === null ? (run.error ? null : "no rows yet") : roundsWords(run),
    run.train_cost === null ? null : `training cost ${show(run.train_cost)}`,
    run.test_accuracy === null ? null : `test accuracy ${show(run.test_accuracy, "percent")}`,
    run.test_label_accuracy === null
      ? null
      : `test label accuracy ${show(run.test_label_accuracy, "percent")}`,
    run.test_rmse === null ? null : `test RMSE ${show(run.test_rmse)}`,
  ].filter(Boolean);
  const about = [run.data, run.algorithm, ago(run.modified)].filter(Boolean);
  return [
    el("label", { class: "pick" }, box),
    el("a", { class: "title", href: addressOf("run", [run.name]) }, run.name),
    badge(run.state),
    el("span", { class: "about note" }, about.join(" · ")),
    el("span", { class: "numbers note" }, figures.join(" · "), limitsKept(run.kept, run.status)),
    run.error ? el("span", { class: "why bad" }, run.error) : null,
    ["complete", "failed"].includes(run.state) ? null : el("progress", progress),
  ].filter(Boolean);
}

function roundsWords({ round, rounds, state }) {
  if (state === "complete") return `${show(round + 1, "count")} rounds`;
  return `round ${show(round, "count")} of ${show(rounds, "count")}`;
}

/** How many limits are kept on training rows, given as [kept, all]; null without limits. */
function limitsKept(kept, status) {
  if (!kept) return null;
  const known = status || (kept[0] === kept[1] ? "unchecked" : "broken");
  const mark = statusMark(known, `${kept[0]} of ${kept[1]} limits${onlyOn(known)}`);
  mark.setAttribute("class", `${STATUSES[known]?.kind} whole`);
  mark.append(el("span", { class: "hidden" }, `: ${STATUSES[known]?.words ?? ""}`));
  return [" · ", mark];
}

/** How long ago a moment is, given in seconds since 1970. */
export function ago(modified, now = Date.now() / 1000) {
  if (!modified) return "";
  const passed = now - modified;
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.round(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.round(passed / 3600)} h ago`;
  return new Date(modified * 1000).toLocaleDateString("en", {
    day: "numeric",
    month: "short",
    year: "numeric",
  });
}
