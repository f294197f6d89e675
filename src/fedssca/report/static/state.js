// The state of a run, and whether it keeps its limits, as short marks.

import { el } from "./dom.js";

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
  const flags = run.result ? certified(run.result) : soFar(run);
  if (!flags.length) return el("span", { class: "note" }, run.result ? "no limits" : "–");
  const kept = flags.filter(Boolean).length;
  const all = kept === flags.length;
  return el(
    "span",
    { class: all ? "good" : "bad" },
    `${all ? "✓" : "✗"} ${kept} of ${flags.length}${run.result ? "" : " so far"}`,
  );
}

function certified(result) {
  const limits = result.certificate?.constraints;
  return Array.isArray(limits) ? limits.map((entry) => Boolean(entry.feasible)) : [];
}

/** From the last row; unknown if the run has more constraints than the page received. */
function soFar(run) {
  if (run.more_constraints) return [];
  return run.constraints
    .map(({ index }) => run.series[`value.${index}`]?.at(-1))
    .filter(Number.isFinite)
    .map((value) => value <= 0);
}
