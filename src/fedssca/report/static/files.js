// Files that the user saves. They are made in the page; nothing is sent anywhere.

import { el } from "./dom.js";

/** Offer a file to the browser as a download. */
export function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** A file name made of the letters and digits of a title. */
export function fileName(title, ending) {
  const clean = title
    .normalize("NFKD")
    .replace(/[^A-Za-z0-9]+/g, "-")
    .replace(/^-|-$/g, "")
    .toLowerCase();
  return `${clean.slice(0, 60) || "chart"}.${ending}`;
}

/** Rows of cells as CSV text. */
export function csvText(rows) {
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** A button that saves rows as CSV; `rows` is called when the button is pressed. */
export function csvButton(name, rows) {
  return el(
    "button",
    {
      type: "button",
      class: "quiet small",
      onclick: () => download(name, new Blob([csvText(rows())], { type: "text/csv" })),
    },
    "CSV",
  );
}

/** A cell is quoted where CSV needs it; text that a spreadsheet would take for a formula gets a
 *  leading apostrophe. */
function cell(value) {
  if (typeof value === "number") return String(value);
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
