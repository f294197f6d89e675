// The table of methods and problems: a column for each method, a row for each problem.

import { card, el } from "./dom.js";
import { csvButton } from "./files.js";
import { grouped, summaryOf } from "./methods.js";
import { show } from "./numbers.js";
import { columnHead, stackingTable } from "./stacking.js";

const LEVEL = 0.01;
const MOST_WITHOUT_FILTER = 8;

/** What the cells can show beside the mark of the limits. */
const MEASURES = {
  objective: { label: "objective", lines: objectiveLines },
  price: { label: "price", lines: priceLines },
  seconds: { label: "time", lines: ({ shown }) => [show(shown.seconds, "seconds")] },
  bytes: { label: "bytes", lines: ({ shown }) => [show(shown.bytes, "bytes")] },
};
const LEGEND =
  "✓ keeps all limits on training rows, ✗ does not. Of several trainings the best one is shown: the lowest objective among those that keep the limits. Percentages compare its objective with the best known one of the problem; shaded: within 1 % of it.";
const OF_TRIALS =
  "Trials of fedssca tune are judged on training rows that were held out of their training.";

let groups = 0;

/** A card that compares methods; null unless some problem was trained with several. `open(names)`, if
 *  given, shows the runs of a cell. */
export function methodsCard(trainings, open = null) {
  const all = grouped(trainings);
  const several = all.problems.filter(({ cells }) => cells.size > 1);
  if (!several.length) return null;
  const searched = all.problems.some(({ key }) => key.startsWith("search "));
  let measure = "objective";
  let words = "";
  let others = false;
  const stage = el("div", {});
  const note = el("p", { class: "note", role: "status", "aria-live": "polite" });
  function fill() {
    const wanted = (others ? all.problems : several).filter(({ title }) =>
      title.toLowerCase().includes(words),
    );
    const methods = all.methods.filter((method) => wanted.some(({ cells }) => cells.has(method)));
    stage.replaceChildren(matrix(wanted, methods, MEASURES[measure], open));
    note.textContent = wanted.length === 1 ? "1 problem" : `${wanted.length} problems`;
  }
  const search = el("input", {
    type: "search",
    placeholder: "Filter problems",
    "aria-label": "Filter problems",
    oninput: () => {
      words = search.value.toLowerCase();
      fill();
    },
  });
  const single = all.problems.length - several.length;
  const more = el("input", {
    type: "checkbox",
    onchange: () => {
      others = more.checked;
      fill();
    },
  });
  fill();
  return card(
    "matrix",
    el("h2", {}, "Each method on each problem"),
    null,
    csvButton("methods.csv", () => csvRows(all)),
    el(
      "div",
      { class: "switches" },
      measureSwitch((chosen) => {
        measure = chosen;
        fill();
      }),
      all.problems.length > MOST_WITHOUT_FILTER ? search : null,
      single ? el("label", { class: "also" }, more, `also ${single} with a single method`) : null,
      note,
    ),
    stage,
    el("p", { class: "note" }, searched ? `${LEGEND} ${OF_TRIALS}` : LEGEND),
  );
}

function measureSwitch(choose) {
  groups += 1;
  return el(
    "fieldset",
    { class: "segments" },
    el("legend", {}, "Show"),
    Object.entries(MEASURES).map(([key, { label }], k) =>
      el(
        "label",
        {},
        el("input", {
          type: "radio",
          name: `measure-${groups}`,
          checked: k === 0,
          onchange: () => choose(key),
        }),
        el("span", {}, label),
      ),
    ),
  );
}

function matrix(problems, methods, measure, open) {
  const heads = ["problem", ...methods].map((name) => columnHead(name));
  const body = el(
    "tbody",
    { role: "rowgroup" },
    problems.length > 1 ? summaryRow(problems, methods) : null,
    problems.map((problem) => problemRow(problem, methods, measure, open)),
  );
  return stackingTable("Methods and problems", heads, body, { table: "wrapping" });
}

function summaryRow(problems, methods) {
  const words = ({ tried, kept, best, gap }) => [
    el("div", {}, `keeps ${kept} of ${tried}`),
    el("span", { class: "sub" }, `best or within 1 %: ${best}`),
    gap === null ? null : el("span", { class: "sub" }, `median ${percent(gap)}`),
  ];
  return el(
    "tr",
    { role: "row", class: "whole" },
    el("th", { scope: "row", role: "rowheader" }, "all problems"),
    methods.map((method) =>
      el(
        "td",
        { role: "cell", "data-head": method },
        words(summaryOf(problems, method)).filter(Boolean),
      ),
    ),
  );
}

function problemRow(problem, methods, measure, open) {
  return el(
    "tr",
    { role: "row" },
    el(
      "th",
      { scope: "row", role: "rowheader" },
      problem.title,
      problem.best === null
        ? null
        : el("span", { class: "sub" }, `best known ${show(problem.best)}`),
    ),
    methods.map((method) => cell(problem, method, measure, open)),
  );
}

function cell({ cells, limited }, method, measure, open) {
  const found = cells.get(method);
  const attributes = { role: "cell", "data-head": method };
  if (!found) return el("td", attributes, el("span", { class: "note" }, "–"));
  const level = found.gap !== null && found.gap <= LEVEL;
  const [first, ...rest] = measure.lines(found);
  const lines = [el("div", {}, mark(found.shown, limited), first)];
  const below = [...rest, trainingsWords(found)].filter(Boolean);
  lines.push(...below.map((words) => el("span", { class: "sub" }, words)));
  return el("td", { ...attributes, class: level ? "level" : null }, linked(lines, found, open));
}

/** The content of a cell; as a button if its runs can be shown. */
function linked(lines, { runs }, open) {
  if (!open || !runs.length) return lines;
  const title = runs.length === 1 ? runs[0] : `Compare ${runs.length} runs`;
  return el("button", { type: "button", class: "open", title, onclick: () => open(runs) }, lines);
}

function mark({ state }, limited) {
  if (state === "kept")
    return limited
      ? el("span", { class: "good" }, "✓ ", el("span", { class: "hidden" }, "keeps the limits, "))
      : null;
  return state === "unfinished" ? null : el("span", { class: "bad" }, "✗ ");
}

function objectiveLines({ shown, gap }) {
  if (shown.state !== "kept") return [stateWords(shown), objectiveWords(shown)].filter(Boolean);
  return [gap === 0 ? "best" : percent(gap), objectiveWords(shown)];
}

function objectiveWords({ objective }) {
  return Number.isFinite(objective) ? `objective ${show(objective)}` : null;
}

function stateWords({ state, over }) {
  return (
    { broken: `over by ${show(over, "number", 3)}`, failed: "failed" }[state] ?? "not finished"
  );
}

/** What the limits cost: against the objective without them, and the multiplier of the dearest one. */
function priceLines({ shown, cost }) {
  if (shown.state !== "kept") return [stateWords(shown)];
  const dearest = Number.isFinite(shown.price)
    ? `multiplier ${show(shown.price, "number", 3)}`
    : null;
  if (cost === null) return [dearest ?? "price not known"];
  return [`${percent(cost)} on no limits`, dearest];
}

function trainingsWords({ count, kept }) {
  return count > 1 ? `best of ${count}, ${kept} of them keep the limits` : null;
}

function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = 100 * share;
  const words = Math.abs(value) >= 1000 ? show(value, "number", 2) : value.toFixed(1);
  return `${share >= 0 ? "+" : ""}${words} %`;
}

function csvRows({ problems }) {
  const head = ["problem", "method", "trainings", "that keep the limits", "state", "objective"];
  const more = ["above best known", "above no limits", "multiplier", "over", "seconds", "bytes"];
  return [
    [...head, ...more],
    ...problems.flatMap(({ title, cells }) =>
      [...cells].map(([method, { count, kept, shown, gap, cost }]) => [
        ...[title, method, count, kept, shown.state, shown.objective],
        ...[gap, cost, shown.price, shown.over, shown.seconds, shown.bytes],
      ]),
    ),
  ];
}
