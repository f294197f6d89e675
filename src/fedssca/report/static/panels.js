// Which charts a set of runs has, and what is drawn in each of them.

import { show } from "./numbers.js";

/** What the horizontal axis can show. */
export const AXES = {
  round: { choice: "rounds", label: "rounds", kind: "count", values: (series) => series.round },
  seconds: {
    choice: "seconds",
    label: "seconds since round 0",
    kind: "number",
    values: sinceFirstRow,
  },
  bytes: { choice: "bytes sent", label: "bytes sent", kind: "bytes", values: totalBytes },
};
/** Headings of the page in their order. */
export const SECTIONS = ["Training", "Limits", "Multipliers", "Resources", "More curves"];

const TRAINING = "Training";
const RESOURCES = "Resources";
const CURVES = [
  { key: "objective", section: TRAINING, title: "Objective", yLabel: "objective", mayLog: true },
  {
    key: "train_cost",
    section: TRAINING,
    title: "Training cost",
    yLabel: "mean loss",
    mayLog: true,
  },
  {
    key: "test_accuracy",
    section: TRAINING,
    title: "Test accuracy",
    yLabel: "accuracy",
    yKind: "percent",
  },
  {
    key: "test_label_accuracy",
    section: TRAINING,
    title: "Test accuracy over all labels",
    yLabel: "accuracy",
    yKind: "percent",
  },
  { key: "test_rmse", section: TRAINING, title: "Test RMSE", yLabel: "RMSE", mayLog: true },
  { key: "norm_sq", section: TRAINING, title: "Norm", yLabel: "|w|²", mayLog: true },
  {
    key: "bytes_up",
    section: RESOURCES,
    title: "Bytes up",
    yLabel: "clients to server",
    yKind: "bytes",
  },
  {
    key: "bytes_down",
    section: RESOURCES,
    title: "Bytes down",
    yLabel: "server to clients",
    yKind: "bytes",
  },
  {
    key: "bytes_peer",
    section: RESOURCES,
    title: "Bytes between parties",
    yLabel: "party to party",
    yKind: "bytes",
  },
  {
    key: "seconds",
    section: RESOURCES,
    title: "Time",
    yLabel: "seconds since round 0",
    axis: "round",
  },
  { key: "epsilon", section: RESOURCES, title: "Privacy spent", yLabel: "ε" },
  { key: "sites", section: RESOURCES, title: "Sites alive", yLabel: "sites", yKind: "count" },
];
/** Charts that are shown before the first row is written. */
const ACCURACY = "test_accuracy";
const ALWAYS = ["train_cost", ACCURACY];
/** Longer titles do not fit beside the axis. */
const LONGEST_LABEL = 24;
const MOST_OTHERS = 24;
const MOST_HELD_OUT = 6;

/** All charts of some runs: [{key, section, spec}]. The runs in `hidden` are not drawn; `strong` is
 *  the name of the run that is emphasised, or null; `drawn` the names of the limits that are drawn,
 *  or null for all. */
export function panelsOf(runs, axis, hidden, strong, drawn = null) {
  const shown = runs
    .map((run, number) => ({ run, number }))
    .filter(({ run }) => !hidden.has(run.name));
  const view = { runs, shown, axis, strong, drawn };
  const panels = [
    ...knownPanels(view),
    ...constraintPanels(view),
    ...multiplierPanels(view, "multiplier"),
    ...multiplierPanels(view, "slack"),
    ...otherPanels(view),
  ];
  return panels.sort((a, b) => SECTIONS.indexOf(a.section) - SECTIONS.indexOf(b.section));
}

/** The points of a run at which both coordinates are known. */
export function pointsOf(run, axis, values) {
  const xs = AXES[axis].values(run.series) || [];
  return values
    .map((y, k) => [xs[k], y])
    .filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
}

function totalBytes(series) {
  const parts = ["bytes_up", "bytes_down", "bytes_peer"].map((key) => series[key] || []);
  return series.round?.map((_, k) => parts.reduce((sum, part) => sum + (part[k] || 0), 0));
}

/** Seconds since the first row: what comes before it, loading and compiling, is told beside. */
export function sinceFirstRow({ seconds }) {
  const first = seconds?.find(Number.isFinite) ?? 0;
  return seconds?.map((value) => (Number.isFinite(value) ? value - first : null));
}

/** How long it took until the first row, in words. */
function setupWords(runs) {
  const known = runs.map(({ series }) => series.seconds?.[0]).filter(Number.isFinite);
  if (!known.length) return "";
  const [low, high] = [Math.min(...known), Math.max(...known)].map((n) => show(n, "seconds", 3));
  const words = low === high ? low : `${low} to ${high}`;
  return `before it: ${words} of loading and compiling`;
}

function lineOf({ axis, strong }, { run, number }, values, more = {}) {
  return {
    name: run.name,
    number,
    points: pointsOf(run, axis, values),
    star: null,
    strong: strong === run.name,
    faint: Boolean(strong) && strong !== run.name,
    ...more,
  };
}

function panel({ axis }, key, section, lines, about) {
  const { label, kind } = AXES[axis];
  const spec = { note: "", yKind: "number", mayLog: false, limits: [], lowers: [], ...about };
  return { key, section, spec: { ...spec, xLabel: label, xKind: kind, lines } };
}

/** The curves that every run may have. */
function knownPanels(view) {
  const { runs, shown } = view;
  const normIsObjective =
    runs.some(({ series }) => series.round?.length) &&
    runs.every(({ series }) =>
      (series.objective || []).every((value, k) => value === series.norm_sq?.[k]),
    );
  const has = (key) =>
    runs.some(({ series }) =>
      series[key]?.some((value) => Number.isFinite(value) && (value !== 0 || key !== "bytes_peer")),
    );
  // A regression has no accuracy, and several labels at once have one of their own.
  const others = has("test_rmse") || has("test_label_accuracy");
  return CURVES.filter(({ key }) => !(key === "objective" && normIsObjective))
    .filter(({ key }) => has(key) || (ALWAYS.includes(key) && !(key === ACCURACY && others)))
    .map(({ key, section, axis, ...about }) => {
      const own = { ...view, axis: axis || view.axis };
      const lines = shown.map((each) =>
        lineOf(own, each, valuesOf(each.run.series, key), {
          star: section === TRAINING ? returned(each.run, (row) => row[key]) : null,
        }),
      );
      if (key === "seconds") about.note = setupWords(runs);
      if (key === "norm_sq" && normIsObjective) about.title = "Norm, which is the objective";
      return panel(own, key, section, lines, about);
    });
}

function valuesOf(series, key) {
  return (key === "seconds" ? sinceFirstRow(series) : series[key]) || [];
}

/** The value of the returned model where it differs from that of the last row, else null. */
function returned(run, pick) {
  const value = run.result ? pick(run.result) : null;
  return Number.isFinite(value) && value !== pick(run.result.last || {}) ? value : null;
}

/** The names of the limits that are drawn. */
function namesOf({ runs, drawn }) {
  return limitNames(runs).filter((name) => drawn === null || drawn.has(name));
}

/** The names of all limits with curves. */
export function limitNames(runs) {
  return [...new Set(runs.flatMap((run) => run.constraints.map((entry) => entry.name)))];
}

/** The `count` names of limits that are nearest to being broken, or furthest beyond. */
export function tightestLimits(runs, count) {
  const worst = (name) =>
    Math.max(
      ...runs.flatMap((run) =>
        (constraint(run, name)?.indices ?? []).map(
          (m) => run.series[`value.${m}`]?.at(-1) ?? Number.NEGATIVE_INFINITY,
        ),
      ),
    );
  return limitNames(runs)
    .map((name) => ({ name, value: worst(name) }))
    .sort((a, b) => b.value - a.value)
    .slice(0, count)
    .map(({ name }) => name);
}

function constraint(run, name) {
  return run.constraints.find((entry) => entry.name === name);
}

/** Every limit with its quantity on training rows, and on held-out rows if few runs are drawn. */
function constraintPanels(view) {
  return namesOf(view).map((name) => {
    const having = view.shown.filter(({ run }) => constraint(run, name));
    const entries = having.map(({ run }) => constraint(run, name));
    const known = entries.every(hasLimit);
    const lines = having.map((each) => {
      const entry = constraint(each.run, name);
      const values = quantityOf(each.run, entry, known);
      const star = returned(each.run, (row) => quantityIn(row, entry, known));
      return lineOf(view, each, values, { star });
    });
    const heldOut = having
      .map((each) => ({ each, values: each.run.series[`test_${measured(each.run, name)}`] }))
      .filter(({ values }) => having.length <= MOST_HELD_OUT && values)
      .map(({ each, values }) => lineOf(view, each, values, { held: true }));
    const title = entries.find((entry) => entry.title)?.title ?? name;
    return panel(view, `value ${name}`, "Limits", [...lines, ...heldOut], {
      title,
      note: heldOut.length ? "dotted: held-out rows" : "",
      yLabel: known ? (title.length > LONGEST_LABEL ? "value" : title) : "value − limit",
      mayLog: true,
      limits: known ? distinct(entries.map(upper)) : [0],
      lowers: known ? distinct(entries.map(({ low }) => low)) : [],
    });
  });
}

function distinct(numbers) {
  return [...new Set(numbers.filter(Number.isFinite))];
}

/** The upper end of a limit. Older runs know the limit of the constraint only. */
function upper(entry) {
  return entry.quantity ? entry.high : entry.limit;
}

function hasLimit(entry) {
  return Number.isFinite(upper(entry)) || Number.isFinite(entry.low);
}

/** The name under which the quantity of a limit is reported. */
function measured(run, name) {
  return constraint(run, name).quantity || name;
}

/** The quantity of a limit over the rounds; without one, the value of its constraint. */
function quantityOf(run, entry, known) {
  const reported = entry.quantity && known ? run.series[`train_${entry.quantity}`] : null;
  if (reported) return reported;
  return (run.series[`value.${entry.index}`] || []).map((value) => shifted(value, entry, known));
}

function quantityIn(row, entry, known) {
  const reported = entry.quantity && known ? row[`train_${entry.quantity}`] : null;
  return Number.isFinite(reported)
    ? reported
    : shifted(row.constraints?.[entry.index], entry, known);
}

function shifted(value, entry, known) {
  return Number.isFinite(value) ? value + (known ? (entry.limit ?? 0) : 0) : null;
}

/** The multiplier or the slack of every constraint; a slack that is always 0 is left out. */
function multiplierPanels(view, part) {
  const slack = part === "slack";
  return namesOf(view)
    .map((name) => {
      const lines = view.shown
        .filter(({ run }) => constraint(run, name))
        .map((each) => {
          const entry = constraint(each.run, name);
          const sides = (entry.indices || [entry.index]).map(
            (m) => each.run.series[`${part}.${m}`] || [],
          );
          return lineOf(view, each, summed(sides));
        });
      return panel(view, `${part} ${name}`, slack ? "More curves" : "Multipliers", lines, {
        title: `${slack ? "Slack" : "Multiplier"} of ${titleOf(view.runs, name)}`,
        yLabel: slack ? "slack" : "ν",
      });
    })
    .filter(
      ({ spec }) => !slack || spec.lines.some(({ points }) => points.some(([, y]) => y !== 0)),
    );
}

/** The sum of columns, row by row: the sides of a limit share its multiplier. */
function summed(columns) {
  return (columns[0] || []).map((_, k) => {
    const values = columns.map((column) => column[k]);
    return values.every(Number.isFinite) ? values.reduce((a, b) => a + b, 0) : null;
  });
}

function titleOf(runs, name) {
  const titled = runs.map((run) => constraint(run, name)).find((entry) => entry?.title);
  return titled?.title ?? name;
}

/** All other numbers in the rows. */
function otherPanels(view) {
  const known = new Set([
    "round",
    "last",
    ...CURVES.map(({ key }) => key),
    ...view.runs.flatMap((run) =>
      run.constraints.flatMap(({ name, quantity }) => [
        `test_${quantity || name}`,
        ...(quantity ? [`train_${quantity}`] : []),
      ]),
    ),
  ]);
  return [...new Set(view.runs.flatMap((run) => Object.keys(run.series)))]
    .filter((key) => !known.has(key) && !/^(value|multiplier|slack)\.\d+$/.test(key))
    .slice(0, MOST_OTHERS)
    .map((key) =>
      panel(
        view,
        key,
        "More curves",
        view.shown.map((each) => lineOf(view, each, each.run.series[key] || [])),
        {
          title: wordsOf(key),
          yLabel: wordsOf(key),
          yKind: /accuracy/.test(key) ? "percent" : "number",
          mayLog: true,
        },
      ),
    );
}

/** The name of a column in words: "Training accuracy" for train_accuracy. */
function wordsOf(key) {
  const words = key.replace(/^train_/, "training ").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
