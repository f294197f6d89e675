"use strict";
// The list of runs: newest first, filtered by words, ticked to be compared.

const MOST_TICKED = 100;

function listView() {
  const ticked = new Set();
  const nodes = new Map();
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
    onclick: () => go("compare", [...ticked]),
  });
  const reportButton = el(
    "button",
    { type: "button", class: "quiet", onclick: () => attempt(() => saveReport([...ticked])) },
    "Report",
  );
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
  const picked = el("div", { class: "picked" }, compareButton, reportButton, clear);
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

  function line(run) {
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
    return { item, box, seen: "" };
  }
  function dressLine(entry, run) {
    const seen = JSON.stringify(run);
    if (entry.seen !== seen) {
      entry.seen = seen;
      const share =
        run.rounds > 0 && Number.isFinite(run.round) ? Math.min(1, run.round / run.rounds) : 0;
      const kept = run.kept
        ? el(
            "span",
            { class: run.kept[0] === run.kept[1] ? "good whole" : "bad whole" },
            `${run.kept[0] === run.kept[1] ? "✓" : "✗"} ${run.kept[0]} of ${run.kept[1]} limits`,
          )
        : null;
      const figures = [
        run.round === null
          ? "no rows yet"
          : `round ${show(run.round, "count")} of ${show(run.rounds, "count")}`,
        run.train_cost === null ? null : `cost ${show(run.train_cost)}`,
        run.test_accuracy === null ? null : show(run.test_accuracy, "percent"),
      ].filter(Boolean);
      const parts = [
        el("label", { class: "pick" }, entry.box),
        el("a", { class: "title", href: address("run", [run.name]) }, run.name),
        badge(run.state),
        el(
          "span",
          { class: "about note" },
          [run.data, run.algorithm, ago(run.modified)].filter(Boolean).join(" · "),
        ),
        el("span", { class: "numbers note" }, figures.join(" · "), kept ? " · " : null, kept),
        run.state === "complete"
          ? null
          : el("progress", {
              max: 1,
              value: share,
              "aria-label": `${Math.round(100 * share)}% done`,
            }),
      ];
      entry.item.replaceChildren(...parts.filter(Boolean));
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
      if (!nodes.has(run.name)) nodes.set(run.name, line(run));
      const entry = nodes.get(run.name);
      dressLine(entry, run);
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
    const found = await ask("/api/runs");
    runs = found.runs;
    const there = new Set(runs.map((run) => run.name));
    for (const name of [...ticked]) if (!there.has(name)) ticked.delete(name);
    for (const name of [...nodes.keys()]) if (!there.has(name)) nodes.delete(name);
    note.title = found.folder;
    fill();
  }
  const timer = setInterval(() => {
    if (!document.hidden) load().catch(() => {});
  }, 2000);
  attempt(load);
  return { node, close: () => clearInterval(timer) };
}

function ago(modified) {
  if (!modified) return "";
  const passed = Date.now() / 1000 - modified;
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.round(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.round(passed / 3600)} h ago`;
  return new Date(modified * 1000).toLocaleDateString("en", {
    day: "numeric",
    month: "short",
    year: "numeric",
  });
}
