// The charts of some runs in sections, and the bar above them that chooses the axis and the runs.

import { chartCard } from "./card.js";
import { el } from "./dom.js";
import { AXES, limitNames, panelsOf, SECTIONS, tightestLimits } from "./panels.js";
import { onThemeChange, swatch } from "./theme.js";

/** A legend of more runs would fill the screen. */
const MOST_IN_LEGEND = 24;
/** More charts of multipliers than this are folded. */
const MOST_UNFOLDED = 8;
/** Of more limits than this, the user chooses which are drawn. */
const MOST_LIMITS = 12;

let groups = 0;

/** The charts of runs: {node, refresh(), toggle(name, shown)}. */
export function curvesOf(runs) {
  const hidden = new Set();
  const cards = new Map();
  const body = el("div", {});
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Runs shown" });
  let axis = "round";
  let strong = null;
  let order = "";
  groups += 1;
  const group = `axis-${groups}`;
  const choice = (key, label) =>
    el(
      "label",
      {},
      el("input", {
        type: "radio",
        name: group,
        value: key,
        checked: key === axis,
        onchange: () => {
          axis = key;
          refresh();
        },
      }),
      el("span", {}, label),
    );
  const bar = el(
    "div",
    { class: "switchboard" },
    el(
      "fieldset",
      { class: "segments" },
      el("legend", {}, "Against"),
      Object.entries(AXES).map(([key, axis]) => choice(key, axis.choice)),
    ),
    legend,
  );
  const choices = limitChoices(runs, () => refresh());
  const node = el("div", { class: "curves" }, bar, choices.node, body);

  function refresh() {
    const panels = panelsOf(runs, axis, hidden, strong, choices.drawn());
    for (const each of panels) {
      if (cards.has(each.key)) cards.get(each.key).update(each.spec);
      else cards.set(each.key, chartCard(each.spec));
    }
    const now = panels.map(({ section, key }) => `${section}/${key}`).join("|");
    if (now !== order) {
      order = now;
      const inSection = (title) => panels.filter(({ section }) => section === title);
      body.replaceChildren(
        ...SECTIONS.map((title) => sectionOf(title, inSection(title), cards)).filter(Boolean),
      );
    }
    body.querySelector(".thinned")?.remove();
    const thinned = runs.filter((run) => run.every > 1).length;
    if (thinned) body.append(thinnedNote(thinned));
  }
  function fillLegend() {
    legend.hidden = runs.length < 2 || runs.length > MOST_IN_LEGEND;
    legend.replaceChildren(...(legend.hidden ? [] : runs.map(legendEntry)));
  }
  function legendEntry(run, number) {
    const emphasise = (name) => () => {
      strong = name;
      refresh();
    };
    return el(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": String(!hidden.has(run.name)),
        title: run.name,
        onclick: () => toggle(run.name),
        onpointerenter: emphasise(run.name),
        onpointerleave: emphasise(null),
      },
      swatch(number),
      el("span", {}, run.name),
    );
  }
  function toggle(name, shown = hidden.has(name)) {
    if (shown) hidden.delete(name);
    else hidden.add(name);
    strong = null;
    refreshAll();
  }
  function refreshAll() {
    fillLegend();
    refresh();
  }
  onThemeChange(refresh);
  addEventListener("beforeprint", () => {
    for (const card of cards.values()) card.draw();
  });
  refreshAll();
  return { node, refresh: refreshAll, toggle };
}

/** The choice of the limits that are drawn, where there are many: {node, drawn()}. */
function limitChoices(runs, changed) {
  let chosen = null;
  const list = el("div", { class: "choices" });
  const summary = el("summary", {});
  const node = el("details", { class: "more", hidden: true }, summary, list);
  let known = 0;
  function fill() {
    const names = limitNames(runs);
    node.hidden = names.length <= MOST_LIMITS;
    if (node.hidden || names.length === known) return;
    known = names.length;
    chosen = new Set(tightestLimits(runs, MOST_LIMITS));
    list.replaceChildren(...names.map(choice));
    count();
  }
  function choice(name) {
    const box = el("input", {
      type: "checkbox",
      onchange: () => {
        if (box.checked) chosen.add(name);
        else chosen.delete(name);
        count();
        changed();
      },
    });
    box.checked = chosen.has(name);
    return el("label", {}, box, name);
  }
  function count() {
    summary.textContent = `Limits drawn: ${chosen.size} of ${known}`;
  }
  return {
    node,
    drawn: () => {
      fill();
      return node.hidden ? null : chosen;
    },
  };
}

function sectionOf(title, panels, cards) {
  if (!panels.length) return null;
  const grid = el(
    "div",
    { class: "grid" },
    panels.map(({ key }) => cards.get(key).node),
  );
  if (title === "More curves" || (title === "Multipliers" && panels.length > MOST_UNFOLDED))
    return el("details", { class: "more" }, el("summary", {}, `${title} (${panels.length})`), grid);
  return el("section", {}, el("h2", {}, title), grid);
}

function thinnedNote(count) {
  const runs = count === 1 ? "1 long run is" : `${count} long runs are`;
  return el(
    "p",
    { class: "note thinned" },
    `${runs} drawn from a part of the rows, evenly spaced; metrics.jsonl holds all rows.`,
  );
}
