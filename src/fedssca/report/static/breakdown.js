// The results of a run for each of its clients and for each group of rows, as tables.

import { beam } from "./beam.js";
import { card, el } from "./dom.js";
import { csvButton } from "./files.js";
import { limitsOf, limitWords, STATUSES, statusMark } from "./limits.js";
import { show } from "./numbers.js";
import { sortableRows, sortableTable } from "./sortable.js";

const LABELS = { cost: "loss", accuracy: "accuracy" };

/** The tables of a run for its groups of rows: one for each column. */
export function groupTables(run) {
  const parts = entriesOf(run.result?.per_group);
  return [...new Set(parts.map((entry) => String(entry.column)))].map((column) => {
    const rows = parts
      .filter((entry) => String(entry.column) === column)
      .map((entry) => ({ name: String(entry.group), entry }));
    return resultsCard(run, `Groups of ${column}`, column, rows);
  });
}

/** The results of each client; null if the run tells of none. */
export function clientTable(run) {
  const rows = clientsOf(run);
  if (rows.length) return resultsCard(run, "Results of each client", "client", rows);
  const why = run.result?.per_client_hidden;
  if (!why) return null;
  return card("breakdown", el("h3", {}, "Results of each client"), `not shown: ${why}`, null);
}

/** The clients whose results are known: [{name, entry, limits}], with the limits about each alone. */
export function clientsOf(run) {
  const told = entriesOf(run.result?.per_client);
  const losses = run.result?.client_losses;
  const entries = told.length
    ? told
    : (Array.isArray(losses) ? losses : []).map((cost) => ({ train: { cost } }));
  const limits = limitsOf(run.result);
  return entries.map((entry, k) => ({
    name: clientName(run, k),
    number: k,
    entry,
    limits: limits.filter(({ name }) => clientOf(name)?.client === k),
  }));
}

/** The name of the k-th client: that of its site, or its number. */
export function clientName(run, k) {
  return String(run.result?.per_client?.[k]?.name ?? run.site_names[k] ?? `client ${k}`);
}

/** {client, quantity} of a limit about a single client, by its name; else null. */
export function clientOf(name) {
  const found = /^(client_loss(?:_gap)?|.*_client)_(\d+)$/.exec(String(name));
  return found ? { client: Number(found[2]), quantity: found[1].replace(/_client$/, "") } : null;
}

/** The quantities that some entry has, in the order in which they are first met. */
export function quantitiesOf(entries, part) {
  return [...new Set(entries.flatMap((entry) => Object.keys(entry?.[part] || {})))].filter((name) =>
    entries.some((entry) => Number.isFinite(entry?.[part]?.[name])),
  );
}

function resultsCard(run, title, what, rows) {
  const entries = rows.map(({ entry }) => entry);
  const titles = Object.fromEntries(
    limitsOf(run.result).map(({ name, title: words }) => [name, words]),
  );
  const label = (name) => LABELS[name] ?? titles[name] ?? name;
  const columns = [
    ...(entries.some(({ rows: count }) => Number.isFinite(count))
      ? [{ head: "rows", kind: "count", of: ({ entry }) => entry.rows ?? null }]
      : []),
    ...quantitiesOf(entries, "train").map((name) => column(label(name), "train", name, rows)),
    ...(entries.some((entry) => entry.test_rows > 0)
      ? [{ head: "held-out rows", kind: "count", of: ({ entry }) => entry.test_rows }]
      : []),
    ...quantitiesOf(entries, "test").map((name) =>
      column(`${label(name)}, held out`, "test", name),
    ),
    ...(rows.some(({ limits }) => limits?.length) ? [OWN_LIMITS] : []),
  ];
  return card(
    "breakdown",
    el("h3", {}, title),
    "the returned model on the rows of each",
    csvButton(`${title.toLowerCase().replaceAll(/\W+/g, "-")}.csv`, () =>
      sortableRows(what, columns, rows),
    ),
    sortableTable(what, columns, rows, `${title} of ${run.name}`),
  );
}

/** The limits about a client alone; sorted by the one that is nearest to being broken. */
const OWN_LIMITS = {
  head: "limits of its own",
  kind: "text",
  of: ({ limits }) =>
    limits.length
      ? Math.min(...limits.map(({ margin }) => margin ?? Number.POSITIVE_INFINITY))
      : null,
  cell: ({ limits }) =>
    limits.map((limit) =>
      el(
        "div",
        {},
        statusMark(limit.status, limitWords(limit)),
        el("span", { class: "hidden" }, ` ${STATUSES[limit.status]?.words ?? ""}`),
      ),
    ),
};

/** A column of results. The loss on training rows is drawn as a beam too, for `rows`. */
function column(head, part, name, rows = []) {
  const kind = name === "accuracy" ? "percent" : "number";
  const of = ({ entry }) => entry?.[part]?.[name] ?? null;
  if (name !== "cost" || rows.length < 2) return { head, kind, of };
  const limitIn = ({ limits = [] }) =>
    limits.find((limit) => limit.name.startsWith("client_loss_"))?.high ?? null;
  const top = Math.max(...rows.flatMap((row) => [of(row) ?? 0, limitIn(row) ?? 0]));
  const cell = (row) => [
    beam(of(row), top, limitIn(row)),
    el("span", { class: "beside" }, show(of(row), kind)),
  ];
  return { head, kind, of, cell };
}

function entriesOf(list) {
  return Array.isArray(list) ? list.filter((entry) => entry && typeof entry === "object") : [];
}
