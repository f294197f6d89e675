// Several runs compared beside their curves: all limits, however many there are, and their price.

import { card, el } from "./dom.js";
import { csvButton } from "./files.js";
import { limitsOf, limitWords, STATUSES, statusMark } from "./limits.js";
import { show } from "./numbers.js";
import { priceCurve } from "./price.js";

const MOST_ROWS = 1000;

/** The section that compares the limits of runs; null if there is nothing to compare. */
export function comparisonOf(runs) {
  const cards = [limitsTable(runs), priceCurve(runs)].filter(Boolean);
  if (!cards.length) return null;
  return el("section", { class: "compared" }, el("h2", {}, "Limits compared"), cards);
}

/** Every limit that some run has: [{name, title, entries}], with one entry or null per run; limits
 *  that are broken, or nearest to it, come first. */
export function limitRows(runs) {
  const rows = new Map();
  runs.forEach((run, k) => {
    for (const entry of limitsOf(run.result)) {
      const name = String(entry.name);
      if (!rows.has(name))
        rows.set(name, { name, title: entry.title ?? name, entries: runs.map(() => null) });
      rows.get(name).entries[k] = entry;
    }
  });
  const least = ({ entries }) =>
    Math.min(...entries.map((entry) => (Number.isFinite(entry?.margin) ? entry.margin : 1e300)));
  return [...rows.values()].sort((a, b) => least(a) - least(b));
}

/** A card that compares all limits of several finished runs; null if there is nothing to compare. */
function limitsTable(runs) {
  const done = runs.filter((run) => limitsOf(run.result).length);
  if (done.length < 2) return null;
  const rows = limitRows(done);
  const body = el("tbody");
  const search = el("input", {
    type: "search",
    placeholder: "Filter limits",
    "aria-label": "Filter limits",
    oninput: () => fill(search.value.toLowerCase()),
  });
  function fill(words) {
    const wanted = rows.filter(({ title }) => String(title).toLowerCase().includes(words));
    body.replaceChildren(...wanted.slice(0, MOST_ROWS).map(rowOf));
  }
  fill("");
  return card(
    "alllimits",
    el("h3", {}, rows.length === 1 ? "The limit" : `All ${rows.length} limits`),
    "value on training rows; the limits nearest to being broken come first",
    csvButton("limits.csv", () => csvRows(done, rows)),
    rows.length > 12 ? search : null,
    el(
      "div",
      { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "All limits" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, "limit"),
            done.map((run) => el("th", { scope: "col", class: "figure" }, run.name)),
          ),
        ),
        body,
      ),
    ),
  );
}

function rowOf({ title, entries }) {
  return el("tr", {}, el("th", { scope: "row" }, String(title)), entries.map(cellOf));
}

function cellOf(entry) {
  if (!entry) return el("td", { class: "figure" }, "–");
  return el(
    "td",
    { class: "figure" },
    statusMark(entry.status, show(entry.value)),
    el("span", { class: "sub" }, limitWords(entry)),
    el("span", { class: "hidden" }, STATUSES[entry.status]?.words ?? ""),
  );
}

function csvRows(runs, rows) {
  return [
    ["limit", ...runs.flatMap(({ name }) => [name, `${name}: allowed`, `${name}: status`])],
    ...rows.map(({ title, entries }) => [
      title,
      ...entries.flatMap((e) => (e ? [e.value, limitWords(e), e.status] : ["", "", ""])),
    ]),
  ];
}
