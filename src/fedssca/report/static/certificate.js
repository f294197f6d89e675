// The certificate of a run: every limit with its values on training and held-out rows.

import { card, el } from "./dom.js";
import { csvButton } from "./files.js";
import { limitsOf, limitWords, promiseWords, STATUSES, statusMark, summaryOf } from "./limits.js";
import { show } from "./numbers.js";
import { columnHead, stackingTable } from "./stacking.js";
import { BOUND_LEGEND, limitStrip, STRIP_LEGEND } from "./strip.js";

const VERDICTS = {
  certified: "all limits certified for new rows",
  kept: "all limits kept on training and held-out rows",
  unchecked: "all limits kept on training rows; ○ could not be checked on held-out rows",
  "held-out": "all limits kept on training rows, but not on held-out rows",
  broken: "limits broken on training rows",
};
const COLUMNS = [
  { head: "limit", value: (entry) => entry.title ?? entry.name },
  { head: "status", value: (entry) => entry.status },
  { head: "allowed", value: limitWords },
  { head: "training", value: (entry) => entry.value },
  { head: "held out", value: (entry) => entry.test_value, below: heldOutWords },
  { head: "95% interval", value: (entry) => interval(entry), fileOnly: true },
  { head: "rows counted", value: (entry) => counts(entry), fileOnly: true },
  { head: "new rows", value: promiseWords, below: confidenceWords },
  { head: "margin", value: (entry) => entry.margin, digits: 3 },
  { head: "multiplier", value: (entry) => entry.multiplier, digits: 3 },
  {
    head: "gain if relaxed by 0.01",
    value: (entry) => entry["relaxing_by_0.01_buys"],
    digits: 3,
  },
];
const PICTURE = "values and limit";
const TEXTS = ["limit", "status", PICTURE];

/** Every limit, and whether the returned model keeps it; null without a certificate. */
export function certificateCard(run) {
  const certificate = run.result?.certificate;
  if (!Array.isArray(certificate?.constraints)) return null;
  const entries = limitsOf(run.result);
  const promised = entries.some((entry) => promiseWords(entry) !== null);
  const columns = COLUMNS.filter(({ value }) => promised || value !== promiseWords);
  const place = Number.isFinite(certificate.returned?.round)
    ? ` · the returned model is that of round ${certificate.returned.round}`
    : "";
  return card(
    "certificate",
    el("h3", {}, "Certificate"),
    certificateNote(run.result),
    csvButton("certificate.csv", () => [
      columns.map(({ head }) => head),
      ...entries.map((entry) => columns.map(({ value }) => value(entry))),
    ]),
    entries.length ? certificateTable(entries, columns, `Certificate of ${run.name}`) : null,
    entries.length
      ? el("p", { class: "note" }, promised ? `${STRIP_LEGEND}, ${BOUND_LEGEND}` : STRIP_LEGEND)
      : null,
    promiseNote(certificate),
    ...reasons(entries).map((why) => el("p", { class: "note" }, `○ not checked: ${why}`)),
    el(
      "p",
      { class: "note" },
      certificate.noised
        ? `all values carry privacy noise, no KKT residual is computed${place}`
        : `${convergence(certificate)}KKT residual ${show(certificate.kkt_residual)} (0 at a stationary point)${place}`,
    ),
  );
}

function convergence({ converged }) {
  if (typeof converged !== "boolean") return "";
  return converged ? "converged · " : "not converged · ";
}

function certificateNote(result) {
  const { all, status } = summaryOf(result);
  if (!all) return "no limits were set";
  const { sign, kind } = STATUSES[status];
  return el("span", { class: `note ${kind}` }, `${sign} ${VERDICTS[status]}`);
}

/** What the run promises for new rows; null if no confidence was asked for. */
function promiseNote({ certified, confidence, certify }) {
  if (typeof certified !== "boolean") return null;
  const rows = certify === "each_site" ? "new rows of every client" : "new rows";
  const level = `${show(100 * confidence)} % confidence`;
  return certified
    ? el("p", { class: "note good" }, `✓ certified: the limits hold on ${rows}, with ${level}`)
    : el("p", { class: "note warn" }, `! not certified for ${rows} at ${level}`);
}

/** Why limits could not be checked on held-out rows, each reason once. */
function reasons(entries) {
  const unchecked = entries.filter(({ status, unchecked: why }) => status === "unchecked" && why);
  return [...new Set(unchecked.map((entry) => String(entry.unchecked)))];
}

/** The interval of the value on held-out rows; "≈" marks one that is approximate. */
function interval({ test_interval: ends, interval_kind: kind }) {
  if (!Array.isArray(ends) || ends.length !== 2) return null;
  const words = `${show(ends[0], "number", 3)} to ${show(ends[1], "number", 3)}`;
  return kind === "Clopper-Pearson" ? words : `≈ ${words}`;
}

/** How many held-out rows were counted: "12 of 60, 9 of 83"; for means the numbers of rows. */
function counts({ test_counts: pairs }) {
  if (!Array.isArray(pairs) || !pairs.every(Array.isArray)) return null;
  return pairs
    .map(([top, bottom]) =>
      Number.isInteger(top) && Number.isInteger(bottom)
        ? `${show(top, "count")} of ${show(bottom, "count")}`
        : show(bottom, "count"),
    )
    .join(", ");
}

/** What stands below a value on held-out rows: its interval and how many rows were counted. */
function heldOutWords(entry) {
  return [interval(entry), counts(entry)].filter(Boolean).join(" · ");
}

/** What stands below a bound for new rows: its confidence. */
function confidenceWords({ promise }) {
  return Number.isFinite(promise?.confidence)
    ? `${show(100 * promise.confidence)} % confidence`
    : "";
}

function certificateTable(entries, columns, label) {
  const shown = columns.filter(({ fileOnly }) => !fileOnly);
  shown.splice(2, 0, { head: PICTURE, value: limitStrip });
  const kind = ({ head }) => (TEXTS.includes(head) ? "" : "figure");
  const content = ({ head, value, below, digits = 4 }, entry) => {
    const found = value(entry);
    if (head === "status") return statusMark(found, STATUSES[found]?.words ?? "objective");
    if (head === "multiplier" && found === null) return "withheld";
    if (head === PICTURE) return found;
    const words = typeof found === "string" ? found : show(found, "number", digits);
    const small = below?.(entry);
    return small ? [words, el("span", { class: "sub" }, small)] : words;
  };
  const rowOf = (entry) =>
    el(
      "tr",
      { role: "row" },
      shown.map((column, k) =>
        k
          ? el(
              "td",
              { role: "cell", class: kind(column), "data-head": column.head },
              content(column, entry),
            )
          : el("th", { scope: "row", role: "rowheader" }, content(column, entry)),
      ),
    );
  const heads = shown.map((column) => columnHead(column.head, kind(column)));
  const body = el("tbody", { role: "rowgroup" }, entries.map(rowOf));
  return stackingTable(label, heads, body, { region: "tall" });
}
