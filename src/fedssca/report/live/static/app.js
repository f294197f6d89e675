// The live page: the bar on top, and below it the view that the address names.

import { el, pageData } from "../../static/dom.js";
import { dropThemeListeners, startTheme, themeButton } from "../../static/theme.js";
import { parseAddress } from "./address.js";
import { takeToken } from "./api.js";
import { formView } from "./form.js";
import { listView } from "./list.js";
import { methodsView } from "./methods.js";
import { runsView } from "./run.js";

startTheme(pageData().palette);
const stage = el("div", { id: "stage" });
const links = {
  list: el("a", { href: "#/" }, "Runs"),
  methods: el("a", { href: "#/methods" }, "Methods"),
  new: el("a", { href: "#/new" }, "New run"),
};
let current = null;

document
  .getElementById("page")
  .append(
    el(
      "header",
      { class: "top bar" },
      el("a", { class: "brand", href: "#/" }, "fedssca"),
      el("nav", { "aria-label": "Views" }, Object.values(links)),
      themeButton(),
    ),
    stage,
    el("div", { id: "notices", role: "status", "aria-live": "polite" }),
  );
addEventListener("hashchange", show);
show();

function show() {
  current?.close();
  current = null;
  dropThemeListeners();
  if (!takeToken()) {
    const where = "This page needs its token: open the address that fedssca ui printed.";
    stage.replaceChildren(el("p", { class: "wrong" }, where));
    return;
  }
  const [view, ...names] = parseAddress(location.hash);
  if ((view === "run" || view === "compare") && names.length) current = runsView(names);
  else if (view === "sites" && names.length) current = runsView(names.slice(0, 1), "sites");
  else if (view === "methods") current = methodsView();
  else if (view === "new") current = formView(names[0]);
  else current = listView();
  stage.replaceChildren(current.node);
  for (const link of Object.values(links)) link.removeAttribute("aria-current");
  (links[view] ?? links.list).setAttribute("aria-current", "page");
  scrollTo(0, 0);
}
