// Everything about one run apart from its curves and sites: certificate, groups, audit, notes, settings.

import { groupTables } from "./breakdown.js";
import { certificateCard } from "./certificate.js";
import { card, el } from "./dom.js";
import { limitsOf } from "./limits.js";
import { show } from "./numbers.js";
import { priceCard } from "./price.js";
import { sitesSection } from "./sites.js";
import { badge, verdict } from "./state.js";
import { swatch } from "./theme.js";

const MOST_ITEMS = 100;
const DEEPEST = 3;

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
    if (box.open && !box.querySelector(".details"))
      box.append(detailsOf(run), ...[sitesSection(run)].filter(Boolean));
  };
  box.addEventListener("toggle", fill);
  fill();
  return box;
}

/** The details of a run, below its curves; its sites are shown by `sitesSection`. */
export function detailsOf(run) {
  const notes = [...(Array.isArray(run.result?.notes) ? run.result.notes : []), ...run.trouble];
  return el(
    "div",
    { class: "details" },
    notes.length ? list(notes, heldOutNotes(run)) : null,
    certificateCard(run),
    priceCard(run),
    ...groupTables(run),
    auditCard(run),
    run.more_constraints > 0
      ? el(
          "p",
          { class: "note" },
          `Curves can be drawn for the limits with the largest values; ${run.more_constraints} others have none.`,
        )
      : null,
    folded("All settings", el("div", { class: "card" }, factsTable(settingsOf(run)))),
  );
}

function list(lines, warnings = new Set()) {
  return el(
    "ul",
    { class: "notes" },
    lines.map((line) => el("li", { class: warnings.has(line) ? "warn" : null }, String(line))),
  );
}

/** The notes about limits that held-out rows break. */
function heldOutNotes(run) {
  return new Set(limitsOf(run.result).map(({ note }) => note));
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
