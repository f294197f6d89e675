"use strict";
// Which view is on: #/ the list, #/run/NAME, #/compare/NAME/NAME..., #/new or #/new/NAME.

function address(view, names = []) {
  return `#/${[view, ...names.map(encodeURIComponent)].join("/")}`;
}

function go(view, names = []) {
  location.hash =
    view === "compare" && names.length === 1 ? address("run", names) : address(view, names);
}

(() => {
  const stage = el("div", { id: "stage" });
  const links = [
    ["Runs", "#/"],
    ["New run", "#/new"],
  ].map(([label, href]) => el("a", { href }, label));
  let now = null;
  document
    .getElementById("page")
    .append(
      el(
        "header",
        { class: "top bar" },
        el("a", { class: "brand", href: "#/" }, "fedssca"),
        el("nav", { "aria-label": "Views" }, links),
        Theme.button(),
      ),
      stage,
      el("div", { id: "notices", role: "status", "aria-live": "polite" }),
    );

  function open() {
    const [view, ...names] = location.hash
      .replace(/^#\/?/, "")
      .split("/")
      .filter(Boolean)
      .map((part) => {
        try {
          return decodeURIComponent(part);
        } catch {
          return part;
        }
      });
    now?.close();
    Theme.forget();
    if ((view === "run" || view === "compare") && names.length) now = runsView(names);
    else if (view === "new") now = formView(names[0]);
    else now = listView();
    stage.replaceChildren(now.node);
    links.forEach((link, k) => {
      if ((k === 1) === (view === "new")) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    });
    scrollTo(0, 0);
  }
  addEventListener("hashchange", open);
  open();
})();
