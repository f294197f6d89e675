"use strict";
// One run or several, live: curves that grow, certificates, audits; stop and resume.

function runsView(names) {
  const runs = [];
  const single = names.length === 1;
  const title = el("h1", {}, single ? names[0] : `${names.length} runs compared`);
  const status = el("div", { class: "status" });
  const actions = el("div", { class: "actions" });
  const trouble = el("p", { class: "notice wrong", hidden: true, role: "status" });
  const progress = el("progress", { max: 1, value: 0, "aria-label": "Progress", hidden: true });
  const body = el("div", {});
  const node = el(
    "main",
    {},
    el(
      "div",
      { class: "runhead" },
      el("div", {}, el("a", { class: "back", href: "#/" }, "← Runs"), title, status),
      actions,
    ),
    progress,
    trouble,
    body,
  );
  let curves = null;
  let table = null;
  let below = null;
  let due = false;
  let stale = false; // a run was told anew
  let fresh = false; // a run was told for the first time

  function find(name) {
    return runs.findIndex((run) => run.name === name);
  }
  function hear(kind, data) {
    const at = find(data.name);
    if (kind === "gone") {
      if (at >= 0) runs[at].state = "gone";
      notify(`${data.name} is no more: its folder was deleted.`, true);
      if (at < 0 && !runs.length)
        body.replaceChildren(el("p", { class: "card" }, "There is no such run (any more)."));
    } else if (kind === "run") {
      if (at >= 0) Object.assign(runs[at], data);
      else
        runs.splice(
          names.filter((name, k) => k < names.indexOf(data.name) && find(name) >= 0).length,
          0,
          data,
        );
      stale = true;
      fresh = fresh || at < 0;
    } else if (at >= 0) {
      addRows(runs[at].series, data.series);
    }
    if (!due) {
      due = true;
      requestAnimationFrame(() => {
        due = false;
        refresh();
      });
    }
  }
  function rebuild() {
    if (fresh || !curves) {
      curves = curvesOf(runs);
      table = runsTable(runs, {
        link: (run) => el("a", { href: address("run", [run.name]) }, run.name),
        toggle: single ? null : (name, on) => curves.toggle(name, on),
      });
      below = el("div", {});
      body.replaceChildren(...(single ? [] : [table.node]), curves.node, below);
    }
    below.replaceChildren(
      ...(single
        ? [el("h2", {}, "Details"), detailsOf(runs[0])]
        : runs.map((run, number) => foldedRun(run, number, false))),
    );
  }
  function refresh() {
    if (stale) rebuild();
    stale = false;
    fresh = false;
    curves?.refresh();
    table?.fill();
    if (single && runs[0]) head(runs[0]);
    else if (!single) actions.replaceChildren(reportOf(names));
  }
  function head(run) {
    const round = run.series.round?.at(-1);
    const rounds = Number(run.settings["algorithm.rounds"]) - 1;
    const moving = ["going", "stopping", "starting"].includes(run.state);
    status.replaceChildren(
      badge(run.state),
      verdict(run),
      el(
        "span",
        { class: "note" },
        Number.isFinite(round)
          ? `round ${show(round, "count")}${rounds > 0 ? ` of ${show(rounds, "count")}` : ""}`
          : run.state === "failed"
            ? ""
            : "no rows yet",
      ),
    );
    progress.hidden = !moving;
    progress.value = rounds > 0 && Number.isFinite(round) ? Math.min(1, round / rounds) : 0;
    trouble.hidden = !run.error;
    trouble.textContent = run.error || "";
    body.hidden = run.state === "failed";
    const name = run.name;
    const button = (label, action, kind = "quiet") =>
      el("button", { type: "button", class: kind, onclick: () => attempt(action) }, label);
    const wanted = [
      ["going", "starting"].includes(run.state) && run.ours
        ? button("Stop", () => ask("/api/stop", { name }))
        : null,
      run.state === "stopping"
        ? button("Stop at once", () => ask("/api/stop", { name, force: true }))
        : null,
      run.state === "paused"
        ? button("Resume", () => ask("/api/resume", { name }), "primary")
        : null,
      run.state === "failed"
        ? button(
            "Change the settings",
            () => {
              Draft.blame(run.error);
              go("new");
            },
            "primary",
          )
        : null,
      run.state === "failed" || run.state === "gone"
        ? null
        : button("New run like this", () => go("new", [name])),
      run.state === "failed" || run.state === "gone" ? null : reportOf([name]),
    ].filter(Boolean);
    const labels = (list) => list.map((each) => each.textContent).join("|");
    if (labels(wanted) !== labels([...actions.children])) actions.replaceChildren(...wanted);
  }
  const stream = follow(names, hear, (words) => {
    if (words) notify(words, true);
  });
  return { node, close: () => stream.stop() };
}

function reportOf(names) {
  return el(
    "button",
    { type: "button", class: "quiet", onclick: () => attempt(() => saveReport(names)) },
    "Report",
  );
}

/** Append rows to the columns of a run; columns that one side lacks are filled with nothing. */
function addRows(series, more) {
  const before = series.round?.length || 0;
  const count = more.round?.length || 0;
  for (const key of new Set([...Object.keys(series), ...Object.keys(more)])) {
    const old = series[key] || new Array(before).fill(null);
    series[key] = old.concat(more[key] || new Array(count).fill(null));
  }
}
