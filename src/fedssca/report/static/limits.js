// The limits of a run as its result tells of them, and the signs of what is shown of each.

import { el } from "./dom.js";
import { show } from "./numbers.js";

/** The sign, the words and the class of every status, from what is shown to hold to what is not. */
export const STATUSES = {
  certified: { sign: "✓", words: "certified for new rows", kind: "good" },
  kept: { sign: "✓", words: "kept", kind: "good" },
  unchecked: { sign: "○", words: "kept, not checked on held-out rows", kind: "note" },
  "held-out": { sign: "!", words: "broken on held-out rows", kind: "warn" },
  broken: { sign: "✗", words: "broken", kind: "bad" },
};

/** One entry per stated limit. Older results hold constraints only: each is a limit by itself. */
export function limitsOf(result) {
  const { limits, constraints } = result?.certificate || {};
  if (Array.isArray(limits)) return limits.filter(isObject);
  if (!Array.isArray(constraints)) return [];
  return constraints.filter(isObject).map((entry) => ({
    ...entry,
    title: entry.name,
    low: null,
    high: entry.limit,
    test_value: entry.test_rate,
    status: entry.feasible ? "unchecked" : "broken",
  }));
}

/** {kept, all, status}: limits that hold on training rows, all limits, the worst of their statuses. */
export function summaryOf(result) {
  const order = Object.keys(STATUSES);
  const limits = limitsOf(result).filter(({ status }) => Object.hasOwn(STATUSES, status));
  const worst = Math.max(0, ...limits.map(({ status }) => order.indexOf(status)));
  const kept = limits.filter(({ status }) => status !== "broken").length;
  return { kept, all: limits.length, status: order[worst] };
}

/** A limit in few characters: "≤ 0.1", "≥ 0.9", "±0.05". */
export function limitWords({ low, high }) {
  const [below, above] = [Number.isFinite(low), Number.isFinite(high)];
  if (below && above) return low === -high ? `±${show(high)}` : `${show(low)} to ${show(high)}`;
  if (above) return `≤ ${show(high)}`;
  return below ? `≥ ${show(low)}` : "–";
}

/** What is promised for new rows: "≤ 0.1", or "≤ 0.2 alone" where the whole is not certified. */
export function promiseWords({ promise }) {
  if (!isObject(promise)) return null;
  const words = limitWords(promise);
  return promise.certified === true || words === "–" ? words : `${words} alone`;
}

/** A status as a coloured sign, with its words if they are wanted. */
export function statusMark(status, words = "") {
  if (!Object.hasOwn(STATUSES, status)) return el("span", { class: "note" }, words);
  const { sign, kind } = STATUSES[status];
  const title = STATUSES[status].words;
  return el("span", { class: kind, title }, `${sign} ${words}`.trim());
}

function isObject(entry) {
  return entry !== null && typeof entry === "object" && !Array.isArray(entry);
}
