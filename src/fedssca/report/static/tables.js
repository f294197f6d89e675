"use strict";
// Tables: the runs side by side, what differs between their settings, certificates, audits.

const STATES = {
  complete: "complete",
  going: "going",
  paused: "not finished",
  starting: "starting",
  failed: "failed",
  stopping: "stopping",
};

function badge(state) {
  return el("span", { class: `badge ${state}` }, STATES[state] || state);
}

/** "kept" with a mark that needs no colour. */
function verdict(run) {
  const limits = run.result?.certificate?.constraints;
  const values = run.constraints.map(({ index }) => run.series[`value.${index}`]?.at(-1));
  const known = Array.isArray(limits) ? limits.map((entry) => Boolean(entry.feasible)) : [];
  const now = run.more_constraints ? [] : values.filter(Number.isFinite).map((value) => value <= 0);
  const flags = run.result ? known : now;
  if (!flags.length) return el("span", { class: "note" }, run.result ? "no limits" : "–");
  const kept = flags.filter(Boolean).length;
  const all = kept === flags.length;
  return el(
    "span",
    { class: all ? "good" : "bad" },
    `${all ? "✓" : "✗"} ${kept} of ${flags.length}${run.result ? "" : " so far"}`,
  );
}

function lastOf(run, key) {
  const value = run.result?.[key];
  if (Number.isFinite(value)) return value;
  const series = run.series[key] || [];
  return series.length ? series[series.length - 1] : null;
}

/** Settings that differ between runs: [{key, values, usual}]. */
function differing(runs) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  return keys
    .map((key) => {
      const values = runs.map((run) => run.settings[key] ?? null);
      const counts = new Map();
      values.forEach((value) => counts.set(value, (counts.get(value) || 0) + 1));
      const usual = [...counts.entries()].sort((a, b) => b[1] - a[1])[0][0];
      return { key, values, usual, differ: counts.size > 1 };
    })
    .filter(({ differ }) => differ);
}

const NUMBERS = [
  ["rounds", (run) => lastOf(run, "round"), "count"],
  ["objective", (run) => lastOf(run, "objective"), "number"],
  ["train cost", (run) => lastOf(run, "train_cost"), "number"],
  ["test acc.", (run) => lastOf(run, "test_accuracy"), "percent"],
  ["|w|²", (run) => lastOf(run, "norm_sq"), "number"],
  ["KKT residual", (run) => run.result?.kkt_residual ?? null, "number"],
  [
    "bytes",
    (run) =>
      ["bytes_up", "bytes_down", "bytes_peer"].reduce(
        (sum, key) => sum + (lastOf(run, key) || 0),
        0,
      ),
    "bytes",
  ],
  ["time", (run) => lastOf(run, "seconds"), "seconds"],
];

/** The table of runs; `link` makes a run's name, `toggle(name, on)` hears ticks. */
function runsTable(runs, { link = (run) => run.name, toggle = null } = {}) {
  const differences = differing(runs).slice(0, 40);
  const shown = new Set(runs.map((run) => run.name));
  const body = el("tbody");
  let by = null;
  let down = false;
  const ordered = () => {
    const list = runs.map((run, number) => ({ run, number }));
    if (by) list.sort((a, b) => compare(by(a.run), by(b.run)) * (down ? -1 : 1));
    return list;
  };
  function fill() {
    body.replaceChildren(
      ...ordered().map(({ run, number }) =>
        el(
          "tr",
          {},
          toggle ? el("td", { class: "tick" }, tick(run)) : null,
          el(
            "th",
            { scope: "row", class: "name" },
            el(
              "span",
              { class: "named" },
              swatch(number),
              el("span", { class: "words" }, link(run)),
            ),
          ),
          el("td", {}, badge(run.state)),
          el("td", {}, verdict(run)),
          NUMBERS.map(([, of, kind]) => el("td", { class: "figure" }, show(of(run), kind))),
          differences.map(({ key, usual }) =>
            el(
              "td",
              { class: (run.settings[key] ?? null) === usual ? "setting" : "setting differs" },
              run.settings[key] ?? "–",
            ),
          ),
        ),
      ),
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
  function heading(label, of, kind = "") {
    const cell = el("th", { scope: "col", class: kind, "aria-sort": "none" });
    cell.append(
      el(
        "button",
        {
          type: "button",
          class: "sort",
          onclick: () => {
            down = by === of ? !down : false;
            by = of;
            for (const other of cell.parentElement.children)
              other.setAttribute("aria-sort", "none");
            cell.setAttribute("aria-sort", down ? "descending" : "ascending");
            fill();
          },
        },
        label,
      ),
    );
    return cell;
  }
  const save = () =>
    download(
      "runs.csv",
      csv([
        [
          "run",
          "state",
          "feasible",
          ...NUMBERS.map(([label]) => label),
          ...differences.map(({ key }) => key),
        ],
        ...runs.map((run) => [
          run.name,
          run.state,
          run.result?.feasible ?? "",
          ...NUMBERS.map(([, of]) => of(run)),
          ...differences.map(({ key }) => run.settings[key] ?? ""),
        ]),
      ]),
    );
  fill();
  const head = el(
    "tr",
    {},
    toggle ? el("th", { class: "tick" }, el("span", { class: "hidden" }, "drawn")) : null,
    heading("run", (run) => run.name, "name"),
    heading("state", (run) => run.state),
    heading("limits kept", (run) => (run.result ? Number(Boolean(run.result.feasible)) : null)),
    NUMBERS.map(([label, of]) => heading(label, of, "figure")),
    differences.map(({ key }) => heading(key, (run) => run.settings[key] ?? null, "setting")),
  );
  const words =
    runs.length > 1
      ? differences.length
        ? `${differences.length === 1 ? "1 setting differs" : `${differences.length} settings differ`}; what is unusual among these runs is marked`
        : "all settings are the same"
      : "";
  const node = el(
    "section",
    { class: "card" },
    el(
      "header",
      {},
      el(
        "div",
        {},
        el("h2", {}, runs.length > 1 ? `${runs.length} runs` : "Run"),
        el("span", { class: "note" }, words),
      ),
      el(
        "div",
        { class: "tools" },
        el("button", { type: "button", class: "quiet small", onclick: save }, "CSV"),
      ),
    ),
    el(
      "div",
      {
        class: runs.length > 15 ? "scroll tall" : "scroll",
        tabindex: 0,
        role: "region",
        "aria-label": "Table of runs",
      },
      el("table", { class: "runs" }, el("thead", {}, head), body),
    ),
  );
  return { node, fill };
}

function compare(a, b) {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
