// What a limit costs: the objective as the limit moves, from its multiplier and from other runs.

import { chartCard } from "./card.js";
import { card, el } from "./dom.js";
import { limitsOf, limitWords } from "./limits.js";
import { show } from "./numbers.js";
import { differing } from "./tables.js";

const STEPS = 100;

/** The limits of a result whose multiplier is known and that have an end to move. */
export function pricedLimits(result) {
  return limitsOf(result).filter(
    ({ multiplier, low, high }) =>
      Number.isFinite(multiplier) && (Number.isFinite(low) || Number.isFinite(high)),
  );
}

/** The limit when it is relaxed by `by` (tightened if negative): a lower end falls, an upper rises. */
export function relaxed({ low, high }, by) {
  return {
    low: Number.isFinite(low) ? low - by : null,
    high: Number.isFinite(high) ? high + by : null,
  };
}

/** The first-order estimate of the objective: the multiplier is its slope in the limit. */
export function estimate(objective, { multiplier }, by) {
  return objective - multiplier * by;
}

/** How far the slider moves a limit to either side: a quarter of its size. */
export function reach({ low, high }) {
  const size = Math.max(...[low, high].filter(Number.isFinite).map(Math.abs));
  return size > 0 ? size / 4 : 0.05;
}

/** A card with a slider over a limit: what a change of it would buy or cost; null without prices. */
export function priceCard(run) {
  const entries = pricedLimits(run.result);
  const objective = run.result?.objective;
  if (!entries.length || !Number.isFinite(objective)) return null;
  let entry = entries.reduce((a, b) => (b.multiplier > a.multiplier ? b : a));
  const words = el("p", { class: "price", role: "status", "aria-live": "polite" });
  const slider = el("input", {
    type: "range",
    min: -STEPS,
    max: STEPS,
    value: 0,
    "aria-label": "The limit: tighter to the left, more relaxed to the right",
    oninput: () => tell(),
  });
  const choice = el(
    "select",
    {
      "aria-label": "Limit",
      onchange: () => {
        entry = entries[Number(choice.value)];
        slider.value = 0;
        tell();
      },
    },
    entries.map((each, k) =>
      el("option", { value: k, selected: each === entry }, each.title ?? each.name),
    ),
  );
  function tell() {
    const by = (Number(slider.value) / STEPS) * reach(entry);
    const moved = limitWords(relaxed(entry, by));
    slider.setAttribute("aria-valuetext", moved);
    words.textContent = by === 0 ? presentWords(entry) : priceWords(objective, entry, by, moved);
  }
  tell();
  return card(
    "pricing",
    el("h3", {}, "What would another limit buy?"),
    "first-order estimate from the multiplier",
    null,
    entries.length > 1 ? choice : el("p", {}, entries[0].title ?? entries[0].name),
    el(
      "div",
      { class: "slide" },
      el("span", {}, "tighter"),
      slider,
      el("span", {}, "more relaxed"),
    ),
    words,
    el(
      "p",
      { class: "note" },
      "The estimate is exact only for small changes. Of a convex problem, relaxing gains at most, and tightening costs at least, this much. Only a run with the other limit tells the true price.",
    ),
  );
}

function presentWords(entry) {
  if (!(entry.multiplier > 0))
    return `The limit ${limitWords(entry)} costs nothing: the model keeps it without effort (multiplier 0).`;
  return `The limit is ${limitWords(entry)}. Move the slider to see what another one would buy.`;
}

function priceWords(objective, entry, by, moved) {
  const other = estimate(objective, entry, by);
  const change = other - objective;
  const share = objective
    ? `, ${change > 0 ? "+" : ""}${show((100 * change) / Math.abs(objective), "number", 2)} %`
    : "";
  return `With ${moved} instead of ${limitWords(entry)}, the objective would be about ${show(other)} instead of ${show(objective)}${share}.`;
}

/** A chart of the objective against a limit, from runs that differ in nothing else; null if there are
 *  none. The dotted line through each run is the estimate from its multiplier. */
export function priceCurve(runs) {
  const moved = differing(runs).map(({ key }) => key);
  if (moved.length !== 1 || !/^problem\.constraint\.\d+\.limit$/.test(moved[0])) return null;
  const points = runs
    .map((run, number) => ({ run, number, limit: Number(run.settings[moved[0]]) }))
    .filter(({ run, limit }) => Number.isFinite(run.result?.objective) && Number.isFinite(limit))
    .sort((a, b) => a.limit - b.limit);
  if (points.length < 2) return null;
  const span = (points.at(-1).limit - points[0].limit) / points.length / 2 || 0.01;
  return chartCard({
    title: "Price of the limit",
    note: "dotted: estimate from the multiplier of each run",
    xLabel: "limit",
    xKind: "number",
    yLabel: "objective",
    yKind: "number",
    mayLog: false,
    limits: [],
    lowers: [],
    lines: [
      ...points.map(({ run, number, limit }) => tangent(run, number, limit, span)).filter(Boolean),
      {
        name: "objective",
        number: runs.length,
        marked: true,
        star: null,
        points: points.map(({ run, limit }) => [limit, run.result.objective]),
      },
    ],
  }).node;
}

/** The estimate near one run. Limits of several constraints that moved together have no one slope. */
function tangent(run, number, limit, span) {
  const own = pricedLimits(run.result).filter(({ low, high }) => limit === high || limit === low);
  if (own.length !== 1) return null;
  const sign = own[0].high === limit ? 1 : -1;
  const at = (x) => [x, estimate(run.result.objective, own[0], sign * (x - limit))];
  return {
    name: run.name,
    number,
    dotted: true,
    star: null,
    points: [at(limit - span), at(limit + span)],
  };
}
