// The results of a run for each of its clients and for each group of rows, as tables.

import { card, el } from "./dom.js";
import { csvButton } from "./files.js";
import { limitsOf } from "./limits.js";
import { show } from "./numbers.js";

const MOST_ROWS = 1000;
const LABELS = { cost: "loss", accuracy: "accuracy" };

/** The tables of a run: one for its clients, one for each column whose groups it tells of. */
export function breakdownsOf(run) {
  const { per_client: clients, per_group: groups, per_client_hidden: why } = run.result || {};
  const out = [];
  const names = (k, all) =>
    run.site_names.length === all.length ? run.site_names[k] : `client ${k}`;
  const own = entriesOf(clients).map((entry, k, all) => ({
    name: String(entry.name ?? names(k, all)),
    entry,
  }));
  if (own.length) out.push(breakdown(run, "Each client", "client", own));
  else if (why) out.push(card("breakdown", el("h3", {}, "Each client"), `not shown: ${why}`, null));
  const parts = entriesOf(groups);
  for (const column of new Set(parts.map((entry) => String(entry.column)))) {
    const rows = parts
      .filter((entry) => String(entry.column) === column)
      .map((entry) => ({ name: String(entry.group), entry }));
    out.push(breakdown(run, `Groups of ${column}`, column, rows));
  }
  return out;
}

/** The quantities that some entry has, in the order in which they are first met. */
export function quantitiesOf(entries, part) {
  return [...new Set(entries.flatMap((entry) => Object.keys(entry?.[part] || {})))].filter((name) =>
    entries.some((entry) => Number.isFinite(entry?.[part]?.[name])),
  );
}

function breakdown(run, title, what, rows) {
  const entries = rows.map(({ entry }) => entry);
  const titles = Object.fromEntries(
    limitsOf(run.result).map(({ name, title: words }) => [name, words]),
  );
  const label = (name) => LABELS[name] ?? titles[name] ?? name;
  const columns = [
    { head: "rows", kind: "count", of: (entry) => entry.rows },
    ...quantitiesOf(entries, "train").map((name) => column(label(name), "train", name)),
    ...(entries.some((entry) => entry.test_rows > 0)
      ? [{ head: "held-out rows", kind: "count", of: (entry) => entry.test_rows }]
      : []),
    ...quantitiesOf(entries, "test").map((name) =>
      column(`${label(name)}, held out`, "test", name),
    ),
  ];
  const table = el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col" }, what),
        columns.map(({ head }) => el("th", { scope: "col", class: "figure" }, head)),
      ),
    ),
    el(
      "tbody",
      {},
      rows.slice(0, MOST_ROWS).map(({ name, entry }) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, name),
          columns.map(({ of, kind }) => el("td", { class: "figure" }, show(of(entry), kind))),
        ),
      ),
    ),
  );
  return card(
    "breakdown",
    el("h3", {}, title),
    "the returned model on the rows of each",
    csvButton(`${title.toLowerCase().replaceAll(/\W+/g, "-")}.csv`, () => [
      [what, ...columns.map(({ head }) => head)],
      ...rows.map(({ name, entry }) => [name, ...columns.map(({ of }) => of(entry))]),
    ]),
    el(
      "div",
      {
        class: "scroll tall",
        tabindex: 0,
        role: "region",
        "aria-label": `${title} of ${run.name}`,
      },
      table,
    ),
  );
}

function column(head, part, name) {
  const kind = name === "accuracy" ? "percent" : "number";
  return { head, kind, of: (entry) => entry?.[part]?.[name] ?? null };
}

function entriesOf(list) {
  return Array.isArray(list) ? list.filter((entry) => entry && typeof entry === "object") : [];
}
