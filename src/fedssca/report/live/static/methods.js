// All methods on all problems of the folder: its runs, the trials of searches, benchmarks.

import { el } from "../../static/dom.js";
import { methodsCard } from "../../static/matrix.js";
import { openView } from "./address.js";
import { request } from "./api.js";

const NOTHING =
  "No problem was trained with several methods yet. Runs are grouped by their data, model, objective and limits: start a run like another one with another method, or search with fedssca tune --out in this folder.";

/** The view of methods: {node, close()}. */
export function methodsView() {
  const node = el("main", {}, el("div", { class: "listhead" }, el("h1", {}, "Methods")));
  (async () => {
    const { trainings } = await request("/api/methods");
    const open = (names) => openView("compare", [...new Set(names)].slice(0, 100));
    node.append(methodsCard(trainings, open) ?? el("p", { class: "card" }, NOTHING));
  })().catch((error) => node.append(el("p", { class: "notice wrong" }, error.message)));
  return { node, close() {} };
}
