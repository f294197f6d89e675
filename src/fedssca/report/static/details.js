// Everything about one run apart from its curves: certificate, bar charts, audit, notes, settings.

import { barsOf } from "./bars.js";
import { card, el } from "./dom.js";
import { csvButton } from "./files.js";
import { show } from "./numbers.js";
import { badge, verdict } from "./state.js";
import { swatch } from "./theme.js";

const MOST_ITEMS = 100;
const DEEPEST = 3;
const COLUMNS = [
  { head: "constraint", value: (entry) => entry.name },
  { head: "kept", value: (entry) => entry.feasible },
  { head: "value", value: (entry) => entry.value },
  { head: "limit", value: (entry) => entry.limit },
  { head: "margin", value: (entry) => entry.margin, digits: 3 },
  { head: "held out", value: (entry) => entry.test_rate },
  { head: "multiplier", value: (entry) => entry.multiplier, digits: 3 },
  {
    head: "gain if relaxed by 0.01",
    value: (entry) => entry["relaxing_by_0.01_buys"],
    digits: 3,
  },
];

/** A run that unfolds; its details are made when it is first opened. */
export function foldedRun(run, number, open) {
  const box = el(
    "details",
    { class: "run", open },
    el(
      "summary",
      {},
      swatch(number),
      el("span", { class: "words" }, run.name),
      badge(run.state),
      verdict(run),
    ),
  );
  const fill = () => {
    if (box.open && !box.querySelector(".details")) box.append(detailsOf(run));
  };
  box.addEventListener("toggle", fill);
  fill();
  return box;
}

/** The details of a run, below its curves. */
export function detailsOf(run) {
  const notes = [...(Array.isArray(run.result?.notes) ? run.result.notes : []), ...run.trouble];
  const events = run.events.map((event) => `round ${event.round}: ${event.site} ${event.event}`);
  return el(
    "div",
    { class: "details" },
    notes.length ? list(notes) : null,
    el("div", { class: "grid wide" }, certificateCard(run), ...barsOf(run), auditCard(run)),
    run.more_constraints > 0
      ? el(
          "p",
          { class: "note" },
          `Curves are drawn for the constraints with the largest values; ${run.more_constraints} others have none.`,
        )
      : null,
    events.length ? folded(`Events (${events.length})`, list(events)) : null,
    folded("All settings", el("div", { class: "card" }, factsTable(settingsOf(run)))),
  );
}

function list(lines) {
  return el(
    "ul",
    { class: "notes" },
    lines.map((line) => el("li", {}, String(line))),
  );
}

function folded(title, content) {
  return el("details", { class: "more" }, el("summary", {}, title), content);
}

function settingsOf(run) {
  const versions = Object.entries(run.result?.versions || {});
  if (!versions.length) return run.settings;
  return {
    ...run.settings,
    versions: versions.map(([name, number]) => `${name} ${number}`).join(", "),
  };
}

/** Value, limit, margin and multiplier of every constraint, and whether the returned model keeps it. */
function certificateCard(run) {
  const certificate = run.result?.certificate;
  if (!Array.isArray(certificate?.constraints)) return null;
  const entries = certificate.constraints;
  const place = Number.isFinite(certificate.returned?.round)
    ? ` · the returned model is that of round ${certificate.returned.round}`
    : "";
  return card(
    "certificate",
    el("h3", {}, "Certificate"),
    el(
      "span",
      { class: `note ${certificate.feasible ? "good" : "bad"}` },
      certificateNote(certificate),
    ),
    csvButton("certificate.csv", () => [
      COLUMNS.map(({ head }) => head),
      ...entries.map((entry) => COLUMNS.map(({ value }) => value(entry))),
    ]),
    entries.length ? certificateTable(entries) : null,
    el(
      "p",
      { class: "note" },
      `${convergence(certificate)}KKT residual ${show(certificate.kkt_residual)} (0 at a stationary point)${place}`,
    ),
  );
}

function convergence({ converged }) {
  if (typeof converged !== "boolean") return "";
  return converged ? "converged · " : "not converged · ";
}

function certificateNote({ constraints, feasible }) {
  if (!constraints.length) return "no limits were set";
  return `${feasible ? "✓ all limits kept" : "✗ limits broken"}, on the full training data`;
}

function certificateTable(entries) {
  const kind = (k) => (k > 1 ? "figure" : "");
  const content = ({ head, value, digits = 4 }, entry) => {
    if (head === "constraint") return String(value(entry));
    if (head === "multiplier" && value(entry) === null) return "withheld";
    if (head !== "kept") return show(value(entry), "number", digits);
    return el(
      "span",
      { class: value(entry) ? "good" : "bad" },
      value(entry) ? "✓ kept" : "✗ broken",
    );
  };
  return el(
    "div",
    { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Certificate" },
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          COLUMNS.map(({ head }, k) => el("th", { scope: "col", class: kind(k) }, head)),
        ),
      ),
      el(
        "tbody",
        {},
        entries.map((entry) =>
          el(
            "tr",
            {},
            COLUMNS.map((column, k) =>
              k
                ? el("td", { class: kind(k) }, content(column, entry))
                : el("th", { scope: "row" }, content(column, entry)),
            ),
          ),
        ),
      ),
    ),
  );
}

function auditCard(run) {
  if (!run.audit && !run.audit_picture) return null;
  return card(
    "audit",
    el("h3", {}, "Privacy audit"),
    "what could be worked out from the messages of this run",
    null,
    run.audit_picture ? el("img", { src: run.audit_picture, alt: `Audit of ${run.name}` }) : null,
    run.audit ? el("div", { class: "scroll" }, factsTable(run.audit)) : null,
  );
}

/** A table of keys and values; objects within become tables within. */
function factsTable(tree, depth = 0) {
  return el(
    "table",
    { class: "facts" },
    el(
      "tbody",
      {},
      Object.entries(tree || {}).map(([key, value]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, key.replaceAll("_", " ")),
          el("td", {}, fact(value, depth)),
        ),
      ),
    ),
  );
}

function fact(value, depth) {
  if (typeof value === "number") return show(value, "number", 6);
  if (value === null || typeof value !== "object") return String(value);
  const flat = Array.isArray(value) && value.every((item) => typeof item !== "object");
  if (!flat && depth < DEEPEST) return factsTable(value, depth + 1);
  if (!Array.isArray(value)) return JSON.stringify(value);
  return value
    .slice(0, MOST_ITEMS)
    .map((item) => (typeof item === "number" ? show(item) : String(item)))
    .join(", ");
}
