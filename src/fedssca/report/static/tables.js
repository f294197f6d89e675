// The table of runs: their results side by side, and the settings in which they differ.

import { card, el } from "./dom.js";
import { csvButton } from "./files.js";
import { show } from "./numbers.js";
import { byValue, sortHeading } from "./sorting.js";
import { badge, verdict } from "./state.js";
import { swatch } from "./theme.js";

const MOST_SETTINGS = 40;
/** A longer table scrolls inside its card. */
const MOST_ROWS = 15;
const NUMBERS = [
  { label: "rounds", kind: "count", of: roundsOf },
  { label: "objective", kind: "number", of: (run) => lastOf(run, "objective") },
  { label: "train cost", kind: "number", of: (run) => lastOf(run, "train_cost") },
  { label: "test accuracy", kind: "percent", of: (run) => lastOf(run, "test_accuracy") },
  {
    label: "test label accuracy",
    kind: "percent",
    of: (run) => lastOf(run, "test_label_accuracy"),
    seldom: true,
  },
  { label: "test RMSE", kind: "number", of: (run) => lastOf(run, "test_rmse"), seldom: true },
  { label: "|w|²", kind: "number", of: (run) => lastOf(run, "norm_sq") },
  { label: "KKT residual", kind: "number", of: (run) => run.result?.kkt_residual ?? null },
  { label: "bytes", kind: "bytes", of: totalBytes },
  { label: "time", kind: "seconds", of: (run) => lastOf(run, "seconds") },
];

/** The numbers that some run has; those that are not seldom are shown in any case. */
function numbersOf(runs) {
  return NUMBERS.filter(({ of, seldom }) => !seldom || runs.some((run) => of(run) !== null));
}

/** The number in a run's result or else in its last row; null if there is none. */
export function lastOf(run, key) {
  const value = run.result?.[key];
  return Number.isFinite(value) ? value : (run.series[key]?.at(-1) ?? null);
}

/** How many rounds a run has done, the evaluation before the first update included. */
function roundsOf(run) {
  const last = run.series.round?.at(-1);
  return Number.isFinite(last) ? last + 1 : null;
}

/** Settings that differ between runs: [{key, usual, repeated}], where `usual` is the most frequent
 *  value, and `repeated` says whether more than one run has it. */
export function differing(runs) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  return keys
    .map((key) => {
      const counts = new Map();
      for (const run of runs) {
        const value = run.settings[key] ?? null;
        counts.set(value, (counts.get(value) || 0) + 1);
      }
      const [[usual, times]] = [...counts].sort((a, b) => b[1] - a[1]);
      return { key, usual, repeated: times > 1, differ: counts.size > 1 };
    })
    .filter(({ differ }) => differ)
    .map(({ key, usual, repeated }) => ({ key, usual, repeated }));
}

/** The table of runs: {node, fill()}. `link(run)` makes the content of the name's cell;
 *  `toggle(name, shown)`, if given, is called when the check box of a run changes. */
export function runsTable(runs, { link = (run) => run.name, toggle = null } = {}) {
  const differences = differing(runs).slice(0, MOST_SETTINGS);
  const shown = new Set(runs.map((run) => run.name));
  const body = el("tbody");
  let sortValue = null;
  let descending = false;

  function fill() {
    const list = runs.map((run, number) => ({ run, number }));
    if (sortValue) list.sort(byValue(({ run }) => sortValue(run), descending));
    body.replaceChildren(...list.map(row));
  }
  function row({ run, number }) {
    return el(
      "tr",
      {},
      toggle ? el("td", { class: "tick" }, tick(run)) : null,
      el(
        "th",
        { scope: "row", class: "name" },
        el("span", { class: "named" }, swatch(number), el("span", { class: "words" }, link(run))),
      ),
      el("td", {}, badge(run.state)),
      el("td", {}, verdict(run)),
      numbersOf(runs).map(({ of, kind }) => el("td", { class: "figure" }, show(of(run), kind))),
      differences.map(({ key, usual, repeated }) => {
        const value = run.settings[key] ?? null;
        const marked = repeated && value !== usual;
        return el("td", { class: marked ? "setting differs" : "setting" }, value ?? "–");
      }),
    );
  }
  function tick(run) {
    return el("input", {
      type: "checkbox",
      checked: shown.has(run.name),
      "aria-label": `Draw ${run.name}`,
      onchange: (event) => {
        if (event.target.checked) shown.add(run.name);
        else shown.delete(run.name);
        toggle(run.name, event.target.checked);
      },
    });
  }
  const heading = (label, of, kind = "") =>
    sortHeading(label, kind, (falling) => {
      sortValue = of;
      descending = falling;
      fill();
    });
  fill();
  const head = el(
    "tr",
    {},
    toggle ? el("th", { class: "tick" }, el("span", { class: "hidden" }, "drawn")) : null,
    heading("run", (run) => run.name, "name"),
    heading("state", (run) => run.state),
    heading("limits kept", (run) => (run.result ? Number(Boolean(run.result.feasible)) : null)),
    numbersOf(runs).map(({ label, of }) => heading(label, of, "figure")),
    differences.map(({ key }) => heading(key, (run) => run.settings[key] ?? null, "setting")),
  );
  const scroll = {
    class: runs.length > MOST_ROWS ? "scroll tall" : "scroll",
    tabindex: 0,
    role: "region",
    "aria-label": "Table of runs",
  };
  const node = card(
    "",
    el("h2", {}, runs.length > 1 ? `${runs.length} runs` : "Run"),
    differencesNote(runs, differences),
    csvButton("runs.csv", () => csvRows(runs, differences)),
    el("div", scroll, el("table", { class: "runs" }, el("thead", {}, head), body)),
  );
  return { node, fill };
}

function totalBytes(run) {
  const keys = ["bytes_up", "bytes_down", "bytes_peer"];
  return keys.reduce((sum, key) => sum + (lastOf(run, key) || 0), 0);
}

function differencesNote(runs, differences) {
  const { length } = differences;
  if (runs.length < 2) return "";
  if (!length) return "all settings are the same";
  const count = length === 1 ? "1 setting differs" : `${length} settings differ`;
  if (!differences.some(({ repeated }) => repeated)) return count;
  return `${count}; values other than the most frequent one are marked`;
}

function csvRows(runs, differences) {
  const head = [
    "run",
    "state",
    "feasible",
    ...numbersOf(runs).map(({ label }) => label),
    ...differences.map(({ key }) => key),
  ];
  const rows = runs.map((run) => [
    run.name,
    run.state,
    run.result?.feasible ?? "",
    ...numbersOf(runs).map(({ of }) => of(run)),
    ...differences.map(({ key }) => run.settings[key] ?? ""),
  ]);
  return [head, ...rows];
}
