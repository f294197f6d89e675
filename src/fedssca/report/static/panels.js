"use strict";
// Which charts a set of runs has, with what on which axis; the bar that switches axes and runs.

const AXES = {
  round: { label: "rounds", kind: "count", of: (series) => series.round },
  seconds: { label: "seconds", kind: "number", of: (series) => series.seconds },
  bytes: { label: "bytes sent", kind: "bytes", of: sentBytes },
};
const PLAIN = [
  // key, section, title, y label, kind, log if it helps
  ["objective", "Training", "Objective", "F₀", "number", true],
  ["train_cost", "Training", "Training cost", "mean loss", "number", true],
  ["test_accuracy", "Training", "Test accuracy", "accuracy", "percent", false],
  ["norm_sq", "Training", "Norm", "|w|²", "number", true],
  ["bytes_up", "What it took", "Bytes up", "clients to server", "bytes", false],
  ["bytes_down", "What it took", "Bytes down", "server to clients", "bytes", false],
  ["bytes_peer", "What it took", "Bytes between parties", "party to party", "bytes", false],
  ["seconds", "What it took", "Time", "seconds", "number", false],
  ["epsilon", "What it took", "Privacy spent", "ε", "number", false],
  ["sites", "What it took", "Sites that live", "sites", "count", false],
];
const SECTIONS = ["Training", "Limits", "Multipliers", "What it took", "More curves"];
const MANY = 8;

function sentBytes(series) {
  const parts = ["bytes_up", "bytes_down", "bytes_peer"].map((key) => series[key] || []);
  return series.round.map((_, k) => parts.reduce((sum, part) => sum + (part[k] || 0), 0));
}

/** Points of a run: where both numbers are known. */
function pointsOf(run, axis, values) {
  const places = AXES[axis].of(run.series) || [];
  const out = [];
  values.forEach((y, k) => {
    const x = places[k];
    if (Number.isFinite(x) && Number.isFinite(y)) out.push([x, y]);
  });
  return out;
}

/** All charts of some runs against an axis: [{key, section, spec}]. */
function panelsOf(runs, axis, hidden, strong) {
  const shown = runs
    .map((run, number) => ({ run, number }))
    .filter(({ run }) => !hidden.has(run.name));
  const line = ({ run, number }, values, more = {}) => ({
    name: run.name,
    number,
    points: pointsOf(run, more.axis || axis, values),
    star: null,
    strong: strong === run.name,
    faint: Boolean(strong) && strong !== run.name,
    ...more,
  });
  const same =
    runs.some(({ series }) => series.round?.length) &&
    runs.every(({ series }) =>
      (series.objective || []).every((value, k) => value === series.norm_sq?.[k]),
    );
  const panels = [];
  for (const [key, section, title, yLabel, yKind, mayLog] of PLAIN) {
    if (key === "objective" && same) continue;
    const has = runs.some(({ series }) =>
      series[key]?.some((value) => Number.isFinite(value) && (value !== 0 || key !== "bytes_peer")),
    );
    if (!has && !["train_cost", "test_accuracy"].includes(key)) continue;
    const own = key === "seconds" ? "round" : axis;
    const lines = shown.map((each) =>
      line(each, each.run.series[key] || [], { axis: own, star: returned(each.run, key, section) }),
    );
    panels.push(
      panel(
        key,
        section,
        key === "norm_sq" && same ? "Norm, the objective" : title,
        yLabel,
        yKind,
        mayLog,
        own,
        lines,
        [],
      ),
    );
  }
  panels.push(...limitPanels(runs, shown, axis, line));
  panels.push(...otherPanels(runs, shown, axis, line));
  return panels.sort((a, b) => SECTIONS.indexOf(a.section) - SECTIONS.indexOf(b.section));
}

function panel(key, section, title, yLabel, yKind, mayLog, axis, lines, limits, note = "") {
  return {
    key,
    section,
    spec: {
      title,
      note,
      yLabel,
      yKind,
      mayLog,
      xLabel: AXES[axis].label,
      xKind: AXES[axis].kind,
      lines,
      limits,
    },
  };
}

/** What the returned model has, where that is not the last row's. */
function returned(run, key, section) {
  const value = run.result?.[key];
  return section === "Training" && Number.isFinite(value) && value !== run.result.last?.[key]
    ? value
    : null;
}

/** Every constraint against its limit with what held-out rows say, then the multipliers. */
function limitPanels(runs, shown, axis, line) {
  const names = [...new Set(runs.flatMap((run) => run.constraints.map((entry) => entry.name)))];
  const out = [];
  const entry = (run, name) => run.constraints.find((each) => each.name === name);
  for (const name of names) {
    const having = shown.filter(({ run }) => entry(run, name));
    const known = having.every(({ run }) => entry(run, name).limit !== null);
    const raise = (run) => (known ? entry(run, name).limit : 0);
    const lines = having.map((each) => {
      const { index } = entry(each.run, name);
      const final = each.run.result?.constraints?.[index];
      const star =
        Number.isFinite(final) && final !== each.run.result.last?.constraints?.[index]
          ? final + raise(each.run)
          : null;
      return line(
        each,
        (each.run.series[`value.${index}`] || []).map((value) =>
          value === null ? null : value + raise(each.run),
        ),
        { star },
      );
    });
    const held =
      having.length > 6
        ? []
        : having
            .filter(({ run }) => run.series[`test_${name}`])
            .map((each) => line(each, each.run.series[`test_${name}`], { held: true }));
    const limits = known ? [...new Set(having.map(({ run }) => raise(run)))] : [0];
    out.push(
      panel(
        `value ${name}`,
        "Limits",
        name,
        known ? name : "value − limit",
        "number",
        true,
        axis,
        [...lines, ...held],
        limits,
        held.length ? "dotted: held-out rows" : "",
      ),
    );
  }
  for (const [part, title, label] of [
    ["multiplier", "Multiplier of", "ν"],
    ["slack", "Slack of", "slack"],
  ]) {
    for (const name of names) {
      const lines = shown
        .filter(({ run }) => entry(run, name))
        .map((each) => line(each, each.run.series[`${part}.${entry(each.run, name).index}`] || []));
      const any = lines.some(({ points }) => points.some(([, y]) => y !== 0));
      if (any || part === "multiplier")
        out.push(
          panel(
            `${part} ${name}`,
            part === "slack" ? "More curves" : "Multipliers",
            `${title} ${name}`,
            label,
            "number",
            false,
            axis,
            lines,
            [],
          ),
        );
    }
  }
  return out;
}

/** Whatever else the rows hold. */
function otherPanels(runs, shown, axis, line) {
  const taken = new Set([
    "round",
    "last",
    ...PLAIN.map(([key]) => key),
    ...runs.flatMap((run) => run.constraints.map(({ name }) => `test_${name}`)),
  ]);
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.series)))].filter(
    (key) => !taken.has(key) && !/^(value|multiplier|slack)\.\d+$/.test(key),
  );
  return keys.slice(0, 24).map((key) =>
    panel(
      key,
      "More curves",
      key.replaceAll("_", " "),
      key,
      /accuracy/.test(key) ? "percent" : "number",
      true,
      axis,
      shown.map((each) => line(each, each.run.series[key] || [])),
      [],
    ),
  );
}

/** The charts of runs in sections, with the bar above them: {node, refresh()}. */
function curvesOf(runs) {
  const hidden = new Set();
  const cards = new Map();
  const body = el("div", {});
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Runs shown" });
  let axis = "round";
  let strong = null;
  let order = "";
  const choose = Object.entries(AXES).map(([key, { label }]) => {
    const input = el("input", {
      type: "radio",
      name: `axis-${(curvesOf.count = (curvesOf.count || 0) + 1)}`,
      value: key,
      checked: key === axis,
    });
    input.addEventListener("change", () => {
      axis = key;
      refresh();
    });
    return [input, label];
  });
  const group = choose[0][0].name;
  choose.forEach(([input]) => {
    input.name = group;
  });
  const bar = el(
    "div",
    { class: "switchboard" },
    el(
      "fieldset",
      { class: "segments" },
      el("legend", {}, "Against"),
      choose.map(([input, label]) => el("label", {}, input, el("span", {}, label))),
    ),
    legend,
  );
  const node = el("div", { class: "curves" }, bar, body);

  function refresh() {
    const panels = panelsOf(runs, axis, hidden, strong);
    const now = panels.map(({ section, key }) => `${section}/${key}`).join("|");
    for (const each of panels) {
      if (cards.has(each.key)) cards.get(each.key).update(each.spec);
      else cards.set(each.key, chartCard(each.spec));
    }
    if (now !== order) {
      order = now;
      body.replaceChildren(
        ...SECTIONS.map((section) =>
          sectionOf(
            section,
            panels.filter((each) => each.section === section),
            cards,
          ),
        ).filter(Boolean),
      );
    }
    const footnote = runs.some((run) => run.every > 1)
      ? runs.filter((run) => run.every > 1).length
      : 0;
    body.querySelector(".thinned")?.remove();
    if (footnote)
      body.append(
        el(
          "p",
          { class: "note thinned" },
          `Of ${footnote} long ${footnote === 1 ? "run" : "runs"} only every k-th row is drawn; metrics.jsonl has all of them.`,
        ),
      );
  }
  function chips() {
    legend.replaceChildren(
      ...(runs.length > 24 ? [] : runs.map((run, number) => chip(run, number))),
    );
    legend.hidden = runs.length < 2 || runs.length > 24;
  }
  function chip(run, number) {
    const button = el(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": String(!hidden.has(run.name)),
        title: run.name,
      },
      swatch(number),
      el("span", {}, run.name),
    );
    const emphasise = (name) => () => {
      strong = name;
      refresh();
    };
    button.addEventListener("click", () => {
      toggle(run.name);
    });
    button.addEventListener("pointerenter", emphasise(run.name));
    button.addEventListener("pointerleave", emphasise(null));
    return button;
  }
  function toggle(name, on = hidden.has(name)) {
    if (on) hidden.delete(name);
    else hidden.add(name);
    strong = null;
    chips();
    refresh();
  }
  Theme.onChange(refresh);
  addEventListener("beforeprint", () => cards.forEach((card) => card.draw()));
  chips();
  refresh();
  return {
    node,
    refresh: () => {
      chips();
      refresh();
    },
    toggle,
  };
}

function sectionOf(title, panels, cards) {
  if (!panels.length) return null;
  const grid = el(
    "div",
    { class: "grid" },
    panels.map(({ key }) => cards.get(key).node),
  );
  if (title === "More curves" || (title === "Multipliers" && panels.length > MANY))
    return el("details", { class: "more" }, el("summary", {}, `${title} (${panels.length})`), grid);
  return el("section", {}, el("h2", {}, title), grid);
}
