// The state of a run, and whether it keeps its limits, as short marks.

import { el } from "./dom.js";
import { statusMark, summaryOf } from "./limits.js";

/** What the states of a run are called on the page. */
export const STATES = {
  complete: "complete",
  running: "running",
  paused: "not finished",
  starting: "starting",
  failed: "failed",
  stopping: "stopping",
  gone: "deleted",
};

/** The state of a run as a coloured word. */
export function badge(state) {
  return el("span", { class: `badge ${state}` }, STATES[state] || state);
}

/** How many of its limits a run keeps; the mark before the numbers needs no colour. */
export function verdict(run) {
  if (run.result) {
    const { kept, all, status } = summaryOf(run.result);
    if (!all) return el("span", { class: "note" }, "no limits");
    return statusMark(status, `${kept} of ${all}`);
  }
  const flags = soFar(run);
  if (!flags.length) return el("span", { class: "note" }, "–");
  const kept = flags.filter(Boolean).length;
  const status = kept === flags.length ? "unchecked" : "broken";
  return statusMark(status, `${kept} of ${flags.length} so far`);
}

/** What is said beside the number of kept limits if held-out rows break some of them. */
export function onlyOn(status) {
  return status === "held-out" ? " on training rows only" : "";
}

/** From the last row; unknown if the run has more constraints than the page received. */
function soFar(run) {
  if (run.more_constraints) return [];
  return run.constraints
    .map(({ index, indices = [index] }) =>
      indices.map((m) => run.series[`value.${m}`]?.at(-1)).filter(Number.isFinite),
    )
    .filter((values) => values.length)
    .map((values) => values.every((value) => value <= 0));
}
