// Tables that are sorted by a click on a heading.

import { el } from "./dom.js";

/** The order of two cells: numbers by value, texts by the alphabet, null last. */
export function compare(a, b) {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** A comparison of rows by `value(row)`; unknown values stand last in both directions. */
export function byValue(value, descending) {
  return (a, b) => {
    const [left, right] = [value(a), value(b)];
    const sign = descending && left !== null && right !== null ? -1 : 1;
    return sign * compare(left, right);
  };
}

/** A heading whose button sorts: `sort(descending)` is called, first rising, then falling. */
export function sortHeading(label, kind, sort) {
  const cell = el("th", { scope: "col", class: kind, "aria-sort": "none" });
  const press = () => {
    const falling = cell.getAttribute("aria-sort") === "ascending";
    for (const other of cell.parentElement.children)
      if (other.getAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    cell.setAttribute("aria-sort", falling ? "descending" : "ascending");
    sort(falling);
  };
  cell.append(el("button", { type: "button", class: "sort", onclick: press }, label));
  return cell;
}
