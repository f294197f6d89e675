// Which charts a set of runs has, and what is drawn in each of them.

/** What the horizontal axis can show. */
export const AXES = {
  round: { label: "rounds", kind: "count", values: (series) => series.round },
  seconds: { label: "seconds", kind: "number", values: (series) => series.seconds },
  bytes: { label: "bytes sent", kind: "bytes", values: totalBytes },
};
/** Headings of the page in their order. */
export const SECTIONS = ["Training", "Limits", "Multipliers", "Resources", "More curves"];

const TRAINING = "Training";
const RESOURCES = "Resources";
const CURVES = [
  { key: "objective", section: TRAINING, title: "Objective", yLabel: "F₀", mayLog: true },
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
  { key: "seconds", section: RESOURCES, title: "Time", yLabel: "seconds", axis: "round" },
  { key: "epsilon", section: RESOURCES, title: "Privacy spent", yLabel: "ε" },
  { key: "sites", section: RESOURCES, title: "Sites alive", yLabel: "sites", yKind: "count" },
];
/** Charts that are shown before the first row is written. */
const ALWAYS = ["train_cost", "test_accuracy"];
const MOST_OTHERS = 24;
const MOST_HELD_OUT = 6;

/** All charts of some runs: [{key, section, spec}]. The runs in `hidden` are not drawn; `strong` is
 *  the name of the run that is emphasised, or null. */
export function panelsOf(runs, axis, hidden, strong) {
  const shown = runs
    .map((run, number) => ({ run, number }))
    .filter(({ run }) => !hidden.has(run.name));
  const view = { runs, shown, axis, strong };
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
  const spec = { note: "", yKind: "number", mayLog: false, limits: [], ...about };
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
  return CURVES.filter(({ key }) => !(key === "objective" && normIsObjective))
    .filter(({ key }) => has(key) || ALWAYS.includes(key))
    .map(({ key, section, axis, ...about }) => {
      const own = { ...view, axis: axis || view.axis };
      const lines = shown.map((each) =>
        lineOf(own, each, each.run.series[key] || [], {
          star: section === TRAINING ? returned(each.run, (row) => row[key]) : null,
        }),
      );
      if (key === "norm_sq" && normIsObjective) about.title = "Norm, which is the objective";
      return panel(own, key, section, lines, about);
    });
}

/** The value of the returned model where it differs from that of the last row, else null. */
function returned(run, pick) {
  const value = run.result ? pick(run.result) : null;
  return Number.isFinite(value) && value !== pick(run.result.last || {}) ? value : null;
}

function namesOf(runs) {
  return [...new Set(runs.flatMap((run) => run.constraints.map((entry) => entry.name)))];
}

function constraint(run, name) {
  return run.constraints.find((entry) => entry.name === name);
}

/** Every constraint against its limit, with the values on held-out rows if few runs are drawn. */
function constraintPanels(view) {
  return namesOf(view.runs).map((name) => {
    const having = view.shown.filter(({ run }) => constraint(run, name));
    const known = having.every(({ run }) => constraint(run, name).limit !== null);
    const limitOf = (run) => (known ? constraint(run, name).limit : 0);
    const lines = having.map((each) => {
      const { index } = constraint(each.run, name);
      const values = each.run.series[`value.${index}`] || [];
      const star = returned(each.run, (row) => row.constraints?.[index]);
      return lineOf(
        view,
        each,
        values.map((value) => (value === null ? null : value + limitOf(each.run))),
        { star: star === null ? null : star + limitOf(each.run) },
      );
    });
    const heldOut = having
      .filter(({ run }) => having.length <= MOST_HELD_OUT && run.series[`test_${name}`])
      .map((each) => lineOf(view, each, each.run.series[`test_${name}`], { held: true }));
    return panel(view, `value ${name}`, "Limits", [...lines, ...heldOut], {
      title: name,
      note: heldOut.length ? "dotted: held-out rows" : "",
      yLabel: known ? name : "value − limit",
      mayLog: true,
      limits: known ? [...new Set(having.map(({ run }) => limitOf(run)))] : [0],
    });
  });
}

/** The multiplier or the slack of every constraint; a slack that is always 0 is left out. */
function multiplierPanels(view, part) {
  const slack = part === "slack";
  return namesOf(view.runs)
    .map((name) => {
      const lines = view.shown
        .filter(({ run }) => constraint(run, name))
        .map((each) => {
          const { index } = constraint(each.run, name);
          return lineOf(view, each, each.run.series[`${part}.${index}`] || []);
        });
      return panel(view, `${part} ${name}`, slack ? "More curves" : "Multipliers", lines, {
        title: `${slack ? "Slack" : "Multiplier"} of ${name}`,
        yLabel: slack ? "slack" : "ν",
      });
    })
    .filter(
      ({ spec }) => !slack || spec.lines.some(({ points }) => points.some(([, y]) => y !== 0)),
    );
}

/** All other numbers in the rows. */
function otherPanels(view) {
  const known = new Set([
    "round",
    "last",
    ...CURVES.map(({ key }) => key),
    ...namesOf(view.runs).map((name) => `test_${name}`),
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
          title: key.replaceAll("_", " "),
          yLabel: key,
          yKind: /accuracy/.test(key) ? "percent" : "number",
          mayLog: true,
        },
      ),
    );
}
