// The frame of a table that becomes a list of facts on a narrow page.

import { el } from "./dom.js";

/** A table in a region that scrolls: `heads` are the cells of its first row, `body` is its tbody.
 *  `region` and `table` are further classes of the two. */
export function stackingTable(label, heads, body, { region = "", table = "" } = {}) {
  return el(
    "div",
    { class: `scroll ${region}`.trim(), tabindex: 0, role: "region", "aria-label": label },
    el(
      "table",
      { class: `stacking ${table}`.trim(), role: "table" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads)),
      body,
    ),
  );
}

/** The heading of a column that cannot be sorted. */
export function columnHead(words, kind = null) {
  return el("th", { scope: "col", role: "columnheader", class: kind }, words);
}
