"use strict";
// The report: a table of runs, their curves, and all about each of them.

(() => {
  const { runs } = DATA;
  const curves = curvesOf(runs);
  const table = runsTable(runs, {
    toggle: runs.length > 1 ? (name, on) => curves.toggle(name, on) : null,
  });
  const open = runs.length <= 3;
  const each = runs.map((run, number) => foldedRun(run, number, open));
  const made = el(
    "footer",
    {},
    "Made by fedssca report. This file holds everything it shows and asks no host for anything. ★ marks the returned model where it is not that of the last row.",
  );
  document
    .getElementById("page")
    .append(
      el(
        "header",
        { class: "top" },
        el("h1", {}, runs.length === 1 ? runs[0].name : `${runs.length} runs compared`),
        Theme.button(),
      ),
      el(
        "main",
        {},
        table.node,
        curves.node,
        el("section", {}, el("h2", {}, runs.length === 1 ? "Details" : "Each run"), each),
      ),
      made,
    );
})();
