// One run or several runs while they grow: curves, results, and the buttons to stop and resume.

import { comparisonOf } from "../../static/comparison.js";
import { curvesOf } from "../../static/curves.js";
import { detailsOf, foldedRun } from "../../static/details.js";
import { el } from "../../static/dom.js";
import { summaryOf } from "../../static/limits.js";
import { show } from "../../static/numbers.js";
import { hasSites, sitesSection } from "../../static/sites.js";
import { badge, onlyOn, verdict } from "../../static/state.js";
import { runsTable } from "../../static/tables.js";
import { addressOf, openView } from "./address.js";
import { attempt, follow, notify, reportButton, request } from "./api.js";

const NO_SITES =
  "Nothing is known of single clients yet: their results come with the end of the run, and answers of sites with the rounds of a deployment.";

/** The view of some runs: {node, close()}. With `part` = "sites" that of the sites of one run. */
export function runsView(names, part = "run") {
  const runs = [];
  const single = names.length === 1;
  const ofSites = single && part === "sites";
  const tabs = single ? tabsOf(names[0], part) : null;
  const title = el("h1", {}, single ? names[0] : `${names.length} runs compared`);
  const head = headOf();
  const body = el("div", {});
  const node = el(
    "main",
    {},
    el(
      "div",
      { class: "runhead" },
      el("div", {}, el("a", { class: "back", href: "#/" }, "← Runs"), title, head.status),
      head.actions,
    ),
    head.progress,
    head.trouble,
    ...(tabs ? [tabs.node] : []),
    body,
  );
  let curves = null;
  let table = null;
  let below = null;
  let scheduled = false;
  let changed = false; // a run was received whole
  let added = false; // a run was received for the first time

  function onEvent(kind, data) {
    const at = runs.findIndex((run) => run.name === data.name);
    if (kind === "gone") {
      if (at >= 0) runs[at].state = "gone";
      notify(`The run ${data.name} no longer exists: its folder was deleted.`, true);
      if (at < 0 && !runs.length)
        body.replaceChildren(el("p", { class: "card" }, "There is no such run."));
    } else if (kind === "run") {
      if (at >= 0) Object.assign(runs[at], data);
      else insert(runs, data, names);
      changed = true;
      added = added || at < 0;
    } else if (at >= 0) {
      if (kind === "rows") addRows(runs[at].series, data.series);
      else Object.assign(runs[at], data);
      if (ofSites) changed = true;
    }
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      refresh();
    });
  }
  function rebuild() {
    if (ofSites) {
      const shown = sitesSection(runs[0]) ?? el("p", { class: "card nothing" }, NO_SITES);
      keepPlace(body, () => body.replaceChildren(shown));
      return;
    }
    if (added || !curves) {
      curves = curvesOf(runs);
      table = runsTable(runs, {
        link: (run) => el("a", { href: addressOf("run", [run.name]) }, run.name),
        toggle: single ? null : curves.toggle,
      });
      below = el("div", { class: "below" });
      body.replaceChildren(...(single ? [] : [table.node]), curves.node, below);
    }
    below.replaceChildren(
      ...(single
        ? [el("h2", {}, "Details"), detailsOf(runs[0])]
        : [comparisonOf(runs), ...runs.map((run, number) => foldedRun(run, number, false))].filter(
            Boolean,
          )),
    );
  }
  function refresh() {
    if (changed) rebuild();
    changed = false;
    added = false;
    curves?.refresh();
    table?.fill();
    if (!single) head.actions.replaceChildren(reportButton(() => names));
    else if (runs[0]) {
      head.update(runs[0]);
      tabs.update(runs[0]);
      body.hidden = runs[0].state === "failed";
    }
  }
  const stream = follow(names, onEvent, (message) => notify(message, true));
  return { node, close: () => stream.stop() };
}

/** The links between the views of a run: {node, update(run)}. */
function tabsOf(name, part) {
  const link = (view, words) =>
    el(
      "a",
      { href: addressOf(view, [name]), "aria-current": view === part ? "page" : null },
      words,
    );
  const sites = link("sites", "Clients and sites");
  const node = el(
    "nav",
    { class: "tabs", "aria-label": "Views of this run" },
    link("run", "Curves and limits"),
    sites,
  );
  node.hidden = part === "run";
  return {
    node,
    update(run) {
      node.hidden = part === "run" && !hasSites(run);
    },
  };
}

/** Change the content of a node, and leave the focus on the region in which it was. */
function keepPlace(node, change) {
  const label = node.contains(document.activeElement)
    ? document.activeElement.getAttribute("aria-label")
    : null;
  change();
  if (label) node.querySelector(`[aria-label="${CSS.escape(label)}"]`)?.focus();
}

/** State, progress, failure and buttons of one run: {status, actions, progress, trouble, update(run)}. */
function headOf() {
  const status = el("div", { class: "status" });
  const actions = el("div", { class: "actions" });
  const trouble = el("p", { class: "notice wrong", hidden: true, role: "status" });
  const progress = el("progress", { max: 1, value: 0, "aria-label": "Progress", hidden: true });

  function update(run) {
    const round = run.series.round?.at(-1);
    const rounds = mostRounds(run.settings) - 1;
    status.replaceChildren(
      badge(run.state),
      ...(run.state === "failed" ? [] : [verdict(run), ...heldOutWords(run)]),
      el("span", { class: "note" }, roundsDone(run, round, rounds)),
    );
    progress.hidden = !["running", "stopping", "starting"].includes(run.state);
    progress.value = rounds > 0 && Number.isFinite(round) ? Math.min(1, round / rounds) : 0;
    trouble.hidden = !run.error;
    trouble.textContent = run.error?.message || "";
    if (run.state === "failed" && !run.error) {
      trouble.hidden = false;
      trouble.textContent = "The run ended before its first round.";
    }
    const labels = (list) => list.map((button) => button.textContent).join("|");
    const wanted = actionsOf(run);
    if (labels(wanted) !== labels([...actions.children])) actions.replaceChildren(...wanted);
  }
  return { status, actions, progress, trouble, update };
}

/** What the mark of the limits means if held-out rows break some of them. */
function heldOutWords({ result }) {
  const words = onlyOn(summaryOf(result).status).trim();
  return words ? [el("span", { class: "warn" }, words)] : [];
}

/** The number of rounds of a run, or the largest one if it ends by itself. */
export function mostRounds(settings) {
  const rounds = settings["algorithm.rounds"];
  return Number(rounds === "auto" ? settings["algorithm.max_rounds"] : rounds);
}

function roundsDone(run, round, rounds) {
  if (Number.isFinite(round))
    return `round ${show(round, "count")}${rounds > 0 ? ` of ${show(rounds, "count")}` : ""}`;
  return run.state === "failed" ? "" : "no rows yet";
}

/** The buttons for what can be done with a run in its present state. */
function actionsOf(run) {
  const { name, state } = run;
  const button = (label, action, kind = "quiet") =>
    el("button", { type: "button", class: kind, onclick: () => attempt(action) }, label);
  if (state === "gone") return [];
  if (state === "failed") {
    const forget = async () => {
      await request("/api/forget", { name });
      openView("");
    };
    return [
      button("Change the settings", () => openView("new", [name]), "primary"),
      button("Remove from the list", forget),
    ];
  }
  const out = [];
  if (["running", "starting"].includes(state) && run.ours)
    out.push(button("Stop", () => request("/api/stop", { name })));
  if (state === "stopping")
    out.push(button("Stop at once", () => request("/api/stop", { name, force: true })));
  if (state === "paused" && run.deployed) out.push(resumeDeployed(name, button));
  else if (state === "paused")
    out.push(button("Resume", () => request("/api/resume", { name }), "primary"));
  out.push(
    button("New run like this", () => openView("new", [name])),
    reportButton(() => [name]),
  );
  return out;
}

/** A deployed run is resumed with the kit of the submitter, whose folder the user names. */
function resumeDeployed(name, button) {
  const kit = el("input", {
    type: "text",
    value: "kits/submit",
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": "Folder of the submitter's kit",
    title: "Folder of the submitter's kit",
  });
  const resume = () => request("/api/resume", { name, kit: kit.value.trim() });
  return el("span", { class: "withkit" }, kit, button("Resume", resume, "primary"));
}

/** Insert a run so that the runs keep the order of `names`. */
export function insert(runs, run, names) {
  const order = names.indexOf(run.name);
  runs.splice(runs.filter(({ name }) => names.indexOf(name) < order).length, 0, run);
}

/** Append rows to the columns of a run; a column that one side lacks is filled with nulls. */
export function addRows(series, more) {
  const before = series.round?.length || 0;
  const count = more.round?.length || 0;
  for (const key of new Set([...Object.keys(series), ...Object.keys(more)])) {
    const old = series[key] || new Array(before).fill(null);
    series[key] = old.concat(more[key] || new Array(count).fill(null));
  }
}
