// A table of numbers about named things: sorted by its headings, and a list of facts on a narrow page.

import { el } from "./dom.js";
import { show } from "./numbers.js";
import { byValue, sortHeading } from "./sorting.js";
import { stackingTable } from "./stacking.js";
import { swatch } from "./theme.js";

const MOST_ROWS = 1000;

/** A table with one row per entry of `rows` = [{name, number, ...}], where
 *  `number` is that of its line in charts, if it has one. `columns` = [{head, of, kind, cell}]:
 *  `of(row)` is the value, which is sorted and shown; `cell(row)`, if given, what is shown instead. */
export function sortableTable(what, columns, rows, label) {
  const body = el("tbody", { role: "rowgroup" });
  const fill = (list) => body.replaceChildren(...list.slice(0, MOST_ROWS).map(rowOf));
  const rowOf = (row) =>
    el(
      "tr",
      { role: "row" },
      el(
        "th",
        { scope: "row", role: "rowheader", class: "subject", title: row.name },
        Number.isInteger(row.number) ? swatch(row.number) : null,
        row.name,
      ),
      columns.map((column) =>
        el(
          "td",
          { role: "cell", class: classOf(column), "data-head": column.head },
          column.cell ? column.cell(row) : show(column.of(row), column.kind),
        ),
      ),
    );
  const heading = (head, of, kind) => {
    const sort = (falling) => fill([...rows].sort(byValue(of, falling)));
    const cell = sortHeading(head, kind, sort);
    cell.setAttribute("role", "columnheader");
    return cell;
  };
  fill(rows);
  const heads = [
    heading(what, (row) => row.name, ""),
    ...columns.map((column) => heading(column.head, column.of, classOf(column))),
  ];
  return stackingTable(label, heads, body, { region: "tall", table: "wrapping" });
}

/** The rows of the same table for a file. */
export function sortableRows(what, columns, rows) {
  return [
    [what, ...columns.map(({ head }) => head)],
    ...rows.map((row) => [row.name, ...columns.map(({ of }) => of(row))]),
  ];
}

function classOf({ kind }) {
  return kind === "text" ? "" : "figure";
}
